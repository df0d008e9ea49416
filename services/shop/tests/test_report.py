"""The report adds up what was recorded: by the recorder that runs in production, and a real Spark."""

from __future__ import annotations

import json
import shlex
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from nebula import Client, JobStatus
from nebula.record import Recorder, Recording
from nebula.testing import FakeCall, Serve, TestClient, fake
from services.shop.orders import ORDERS, Order
from services.shop.report import Sold, app, takings

CRONTAB = Path(__file__).parents[1] / "crontab"


async def record(client: Client, folder: Path, *orders: tuple[str, int, int]) -> None:
    """Place orders as the service does, and have them recorded."""
    now = datetime.now(UTC)
    for number, (item, count, cents) in enumerate(orders):
        order = Order(id=str(number), placed_at=now, item=item, count=count, cents=cents)
        await client.publish(ORDERS, order)
    await Recorder(Recording([ORDERS], folder, idle_seconds=0.5)).run()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.anyio
async def test_report_adds_up_what_was_recorded_of_the_day(tmp_path: Path) -> None:
    async with TestClient(app, timeout=120) as client:
        await record(client, tmp_path / "recorded", ("hat", 2, 3000), ("scarf", 1, 800), ("hat", 1, 1500))
        # Recorded a moment ago: by now it may be another day.
        today = max(date.fromisoformat(path.name[5:]) for path in tmp_path.rglob("date=*"))

        of_today = await client.start(takings, today)
        of_next_year = await client.start(takings, today + timedelta(days=365))

        assert await of_today.result() == [
            Sold(item="hat", orders=2, pieces=3, cents=4500),
            Sold(item="scarf", orders=1, pieces=1, cents=800),
        ]
        assert await of_next_year.result() == []


@pytest.mark.anyio
@pytest.mark.parametrize("nebula_transport", ["tcp"])
async def test_line_of_cron_starts_the_report_of_yesterday(
    nebula_serve: Serve, nebula_client: Client
) -> None:
    line = CRONTAB.read_text().splitlines()[-1]
    words = shlex.split(line)[5:]
    report = fake(takings, returns=[])
    async with nebula_serve(report), nebula_client.subscribe("/queue/shop.reports") as ended:
        await anyio.run_process([sys.executable, "-m", "nebula.cli", *words[1:]])
        async for message in ended:
            status = JobStatus.from_json(json.loads(message.body))
            if status.is_final:
                break

    assert (words[0], status.state) == ("nebula", "done")
    assert report.calls == [FakeCall({"day": None})]
