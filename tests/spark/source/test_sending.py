"""Rows go out with receipts, over connections that end, and one that is refused is told by its number."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nebula import sync
from nebula.errors import ConnectionLost
from nebula.headers import DEDUP_ID, PERSISTENT
from nebula.spark.source.options import BrokerOptions
from nebula.spark.source.sending import Outgoing, RowRejected, Sender
from nebula.spark.source.writer import DedupIds
from nebula.testing import RunningBroker

MANY = 3000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    destination = [{"pattern": "/queue/small", "max_messages": 5}]
    with RunningBroker(transport="tcp", data=tmp_path / "data", destination=destination) as running:
        yield running


def options(url: str, timeout: float = 20.0) -> BrokerOptions:
    return BrokerOptions(url=url, client_id=None, timeout=timeout)


def numbered(start: int, end: int, destination: str = "/queue/a") -> list[Outgoing]:
    return [
        Outgoing(destination, json.dumps(n).encode(), {PERSISTENT: "true", DEDUP_ID: f"row {n}"})
        for n in range(start, end)
    ]


def received(url: str, count: int) -> list[int]:
    with sync.Client(url) as client, client.subscribe("/queue/a") as subscription:
        return [json.loads(next(subscription).body) for _ in range(count)]


def test_all_rows_have_arrived_in_order_when_the_sender_has_finished(broker: RunningBroker) -> None:
    with Sender(options(broker.url), window=100) as sender:
        sender.send(numbered(0, MANY))
        assert sender.finish() == MANY

    assert received(broker.url, MANY) == list(range(MANY))


def test_refused_row_is_told_by_its_number_and_verdict(broker: RunningBroker) -> None:
    with Sender(options(broker.url), window=2) as sender, pytest.raises(RowRejected) as caught:
        sender.send(numbered(0, 10, "/queue/small"))

    assert (caught.value.row, caught.value.verdict) == (5, "rejected-full")


def test_rows_arrive_once_though_the_broker_ends_between_them(broker: RunningBroker) -> None:
    with Sender(options(broker.url), window=MANY) as sender:
        sender.send(numbered(0, MANY // 2))
        broker.stop()
        sender.send(numbered(MANY // 2, MANY))
        broker.start()
        assert sender.finish() == MANY

    assert received(broker.url, MANY) == list(range(MANY))


def test_broker_that_stays_away_is_an_error(broker: RunningBroker) -> None:
    with Sender(options(broker.url, timeout=0.2), window=10) as sender:
        broker.stop()
        sender.send(numbered(0, 1))
        with pytest.raises(ConnectionLost, match="receipted none of 1 messages"):
            sender.finish()


def test_second_try_of_a_task_names_its_rows_as_the_first_did_in_any_order() -> None:
    first, second = DedupIds("job/0"), DedupIds("job/0")
    bodies = [b"a", b"b", b"a"]

    assert {first.of(body) for body in bodies} == {second.of(body) for body in reversed(bodies)}
    assert len({first.of(body) for body in bodies}) == 3
    assert DedupIds("job/1").of(b"a") != DedupIds("job/0").of(b"a")


def test_rows_of_a_long_task_have_names_of_their_own_in_bounded_memory() -> None:
    ids = DedupIds("job/0", run=10)
    bodies = [b"%d" % (number % 25) for number in range(1000)]

    assert len({ids.of(body) for body in bodies}) == len(bodies)
    assert len(ids._met) <= 10
