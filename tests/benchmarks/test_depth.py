"""The rows about what waits measure what they say, and leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from benchmarks import depth
from benchmarks.depth import drain
from benchmarks.own import nebula_broker
from benchmarks.peers import Broker
from benchmarks.stream import Measurement, Stream

pytestmark = pytest.mark.slow

_QUEUE = "/queue/bench-rest"
_DEPTH = 5_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with nebula_broker(store="sqlite") as running:
        yield running


@pytest.mark.parametrize("receipt_every", [1, 256])
def test_queue_holds_what_was_sent_until_it_is_drained(broker: Broker, receipt_every: int) -> None:
    with Stream(broker, _QUEUE, receipt_every=receipt_every, headers="persistent:true\n") as stream:
        stream.fill(1_000)

    drain(broker, _QUEUE, stream.sent)
    drain(broker, _QUEUE, 0)


def test_message_that_was_not_expected_fails_the_row(broker: Broker) -> None:
    with Stream(broker, _QUEUE, receipt_every=256) as stream:
        stream.fill(512)

    with pytest.raises(ConnectionError, match="more than the 1 that were sent"):
        drain(broker, _QUEUE, 1)


def test_message_that_is_refused_fails_the_row() -> None:
    with (
        nebula_broker(environment={"NEBULA_SERVER_LIMITS__MAX_QUEUE_MESSAGES": "1000"}) as small,
        pytest.raises(ConnectionError, match="disposition:rejected-full"),
        Stream(small, _QUEUE, receipt_every=1) as stream,
    ):
        stream.fill(5_000)


@pytest.mark.parametrize(
    "measure",
    [
        depth.sends,
        partial(depth.sends, receipt_every=256),
        depth.sends_and_acks,
        partial(depth.sends_and_acks, receipt_every=256),
        partial(depth.deep, depth=_DEPTH),
        depth.shallow,
        partial(depth.start_up, depth=_DEPTH),
    ],
)
def test_row_is_measured(broker: Broker, measure: Callable[[Broker, float], Measurement]) -> None:
    # Long enough for a machine that is busy with others.
    assert measure(broker, 1.0).rate > 0


def test_deep_queue_is_measured_in_both_directions_and_by_its_memory(broker: Broker) -> None:
    measured = depth.deep(broker, 0.2, depth=_DEPTH)

    assert measured.drained is not None
    assert measured.drained > 0
    assert measured.resident_bytes is not None
    assert measured.resident_bytes > 10_000_000


def test_queues_cost_memory(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depth, "QUEUES", 2_000)
    measured = depth.many_queues(broker, 0.1)

    assert measured.resident_bytes is not None
    assert measured.resident_bytes > 2_000 * 200
