"""The format `nebula` in a real Spark, in jobs, which know it without being told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import count
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from nebula import sync
from nebula.avro import Schema
from nebula.rpc.contract.job_runner import JobFailure
from nebula.testing import RunningBroker
from tests.own_logs import all_logs
from tests.spark.engine import PATIENCE_SECONDS, Engine, until
from tests.spark.told import task

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

READING = Schema({
    "type": "record", "name": "Reading", "namespace": "venue",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "parts", "type": {"type": "map", "values": "double"}},
    ],
})  # fmt: skip

Run: TypeAlias = Callable[..., Any]

_NUMBERS = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    schemas = tmp_path_factory.mktemp("schemas")
    (schemas / "reading.avsc").write_text(json.dumps(READING.definition))
    destinations = [{"pattern": "/queue/checked", "avro": READING.name}]
    with RunningBroker(transport="tcp", schemas=schemas, destination=destinations) as started:
        yield started


@pytest.fixture
def run(shared_engine: Engine) -> Run:
    def run_one(function: str, **parameters: Any) -> Any:
        job = f"{function}-{next(_NUMBERS)}"
        shared_engine.submit(task(job, f"tests.spark.source.jobs:{function}", **parameters))
        told = shared_engine.told.wait(job, "done", "failed", seconds=3 * PATIENCE_SECONDS)
        return told if isinstance(told, JobFailure) else told.value

    return run_one


def stream(broker: RunningBroker, folder: Path, destination: str, **options: str) -> dict[str, str]:
    return {"broker": broker.url, "destination": destination, "spool": str(folder / "spool"), **options}


def test_rows_that_were_written_are_streamed_once_over_restarts(
    run: Run, broker: RunningBroker, tmp_path: Path
) -> None:
    sink = {"broker": broker.url, "destination": "/queue/json"}
    read = {
        "options": stream(broker, tmp_path, "/queue/json", content="text", maxRowsPerBatch="100"),
        "checkpoint": str(tmp_path / "checkpoint"),
        "out": str(tmp_path / "out"),
        "columns": ["get_json_object(body, '$.id') as id", "content_type"],
    }
    run("write_rows", count=250, options=sink)
    first = run("read_stream", **read, rows=250)
    run("write_rows", count=10, options=sink)
    second = run("read_stream", **read, rows=10)

    assert not isinstance(first, JobFailure), first.trace
    assert sorted(int(row["id"]) for row in first) == list(range(250))
    assert len(second) == 260
    assert first[0]["content_type"] == "application/json"


@pytest.mark.parametrize(
    "named", [{"schemaName": READING.name, "content": "envelope"}, pytest.param({}, marks=pytest.mark.slow)]
)
def test_rows_come_back_in_the_columns_of_their_schema_named_or_bound(
    named: dict[str, str], run: Run, broker: RunningBroker, tmp_path: Path
) -> None:
    sink = {"broker": broker.url, "destination": "/queue/checked", **named}
    run("write_rows", count=3, options=sink)
    rows = run(
        "read_stream",
        options=stream(broker, tmp_path, "/queue/checked", **named),
        checkpoint=str(tmp_path / "checkpoint"),
        out=str(tmp_path / "out"),
        columns=["id", "name", "at", "parts"],
        rows=3,
    )

    assert sorted(rows, key=itemgetter("id")) == [
        {
            "id": number,
            "name": f"name {number}",
            "at": datetime(1970, 1, 1, microsecond=1000 * number).isoformat(),  # noqa: DTZ001
            "parts": {"half": number / 2},
        }
        for number in range(3)
    ]


def test_row_that_the_broker_refuses_fails_the_write_with_its_number(run: Run, broker: RunningBroker) -> None:
    sink = {"broker": broker.url, "destination": "/queue/checked", "content": "json"}
    failure = run("write_rows", count=1, options=sink)

    assert isinstance(failure, JobFailure)
    assert "row 0 was refused by the broker for /queue/checked: rejected-invalid" in failure.trace


@pytest.mark.slow
def test_stream_is_forwarded_in_batches_of_the_size_that_was_asked_for(
    run: Run, broker: RunningBroker, tmp_path: Path
) -> None:
    run("write_rows", count=50, options={"broker": broker.url, "destination": "/queue/from"})
    batches = run(
        "forward",
        source=stream(
            broker, tmp_path, "/queue/from", content="text", maxRowsPerBatch="20", quietSeconds="3"
        ),
        sink={"broker": broker.url, "destination": "/queue/to"},
        checkpoint=str(tmp_path / "checkpoint"),
    )
    with sync.Client(broker.url) as client, client.subscribe("/queue/to") as subscription:
        bodies = {json.loads(json.loads(next(subscription).body)["body"])["id"] for _ in range(50)}

    assert [each for each in batches if each] == [20, 20, 10]
    assert bodies == set(range(50))


@pytest.mark.slow
def test_stream_that_is_stopped_takes_leave_of_the_broker(
    run: Run, broker: RunningBroker, tmp_path: Path
) -> None:
    run("write_rows", count=100, options={"broker": broker.url, "destination": "/queue/left"})
    options = stream(broker, tmp_path, "/queue/left", maxRowsPerBatch="10", clientId="reader")
    with all_logs() as logs:
        run("read_some", options=options, checkpoint=str(tmp_path / "checkpoint"), out=str(tmp_path / "out"))
        until(lambda: ends_of("reader", logs), "the session has ended")

    assert ends_of("reader", logs) == ["disconnected"]


def ends_of(session: str, logs: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Why the broker has closed a session, each time."""
    return [
        entry["reason"]
        for entry in logs
        if entry["event"] == "connection closed" and entry["session"] == session
    ]


def test_last_values_are_a_table_of_what_is_there_now(run: Run, broker: RunningBroker) -> None:
    with sync.Client(broker.url) as client:
        for number in range(5):
            client.publish(f"X/EGM.{number}", {"coins": 0})
            client.publish(f"X/EGM.{number}", {"coins": number})
    rows = run("read_snapshot", options={"broker": broker.url, "destination": "X/EGM.*", "content": "text"})

    values = {row["destination"]: json.loads(row["body"]) for row in rows}
    assert values == {f"X/EGM.{number}": {"coins": number} for number in range(5)}


def test_stream_without_a_spool_is_refused_as_it_is_declared(run: Run, broker: RunningBroker) -> None:
    options = {"broker": broker.url, "destination": "/queue/any"}
    failure = run("read_stream", options=options, checkpoint="/nowhere", out="/nowhere", columns=[], rows=1)

    assert isinstance(failure, JobFailure)
    assert 'needs .option("spool", FOLDER)' in failure.trace
