"""Spark's source and sink on RabbitMQ and ActiveMQ: each message is in the table once, none in the queue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nebula import sync
from nebula.rpc.contract.job_runner import JobFailure
from tests.spark.conftest import shared_engine, shared_state
from tests.spark.source.test_spark import Run, run
from tests.spark.source.test_stream import Query, publish, until

__all__ = ["run", "shared_engine", "shared_state"]  # fixtures

# The first one waits for the broker to be installed.
pytestmark = [pytest.mark.foreign, pytest.mark.slow, pytest.mark.timeout(300)]

ROWS = 300


@pytest.fixture(params=["rabbitmq_url", "activemq_url"])
def url(request: pytest.FixtureRequest) -> str:
    """Each of the brokers."""
    found: str = request.getfixturevalue(request.param)
    return found


def first_in(url: str, queue: str) -> bytes:
    """What a new consumer gets first."""
    with sync.Client(url) as client, client.subscribe(queue) as messages:
        return next(messages).body


@pytest.mark.spark
def test_rows_that_were_written_are_read_once_though_the_query_is_stopped_in_their_midst(
    run: Run, url: str, queue: str, tmp_path: Path
) -> None:
    sink = {"broker": url, "destination": queue}
    source = {
        "broker": url,
        "destination": queue,
        "spool": str(tmp_path / "spool"),
        "content": "text",
        "prefetch": "20",
        "maxRowsPerBatch": "30",
    }
    places: dict[str, Any] = {"checkpoint": str(tmp_path / "checkpoint"), "out": str(tmp_path / "out")}
    columns = ["get_json_object(body, '$.id') as id"]

    assert run("write_rows", count=ROWS, options=sink) == ROWS
    some = run("read_some", options=source, **places)
    assert some > 0
    first = run("read_stream", options=source, columns=columns, rows=ROWS - some, **places)
    run("write_rows", count=10, options=sink)
    second = run("read_stream", options=source, columns=columns, rows=10, **places)

    assert not isinstance(first, JobFailure), first.trace
    assert sorted(int(row["id"]) for row in first) == list(range(ROWS))
    assert sorted(int(row["id"]) for row in second) == sorted([*range(ROWS), *range(10)])
    publish(url, ["next"], queue)
    assert first_in(url, queue) == b"next"


def test_durable_subscription_there_keeps_what_comes_while_the_query_is_away(
    url: str, queue: str, tmp_path: Path
) -> None:
    topic, name = queue.replace("/queue/", "/topic/"), f"warehouse-{queue[-8:]}"
    said = {"destination": topic, "durable": name, "clientId": name}
    with Query(url, tmp_path, **said) as query:
        query.reader.prepareForTriggerAvailableNow()
        publish(url, ["a"], topic)
        until(query.reader.reportLatestOffset, lambda offset: query.size(offset) == 1)
    publish(url, ["b"], topic)
    with Query(url, tmp_path, **said) as query:
        assert query.rows(query.until(2)) == ["a", "b"]
