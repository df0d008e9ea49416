"""The rows about what one peer costs the others have that peer there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks import contention, recorder
from benchmarks.own import nebula_broker
from benchmarks.peers import Broker
from benchmarks.processes import Unavailable

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with nebula_broker() as running:
        yield running


@pytest.mark.parametrize("stalled", [True, False])
def test_good_subscribers_get_all_beside_a_stalled_one(broker: Broker, *, stalled: bool) -> None:
    assert contention.nine_subscribers(broker, 1.0, stalled=stalled).rate > 0


def test_stalled_reader_without_anything_to_read_fails_the_row(broker: Broker) -> None:
    with (
        pytest.raises(ConnectionError, match="was sent nothing"),
        contention.stalled_reader(broker, "/topic/bench-silent"),
    ):
        pass


@pytest.mark.parametrize("headers", ["", "persistent:true\n"])
def test_requests_are_answered_while_the_flood_goes_on(
    broker: Broker, headers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Beside a flood the requester takes long to start.
    monkeypatch.setattr(contention, "_FLOOD_MORE_SECONDS", 2.8)
    measured = contention.request_during_flood(broker, 0.2, headers=headers)

    assert measured.p99 is not None
    assert measured.others is not None
    assert measured.others > 0


def test_flood_that_ends_too_soon_fails_the_row(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention, "_FLOOD_MORE_SECONDS", -1.0)

    with pytest.raises(Unavailable, match="the flood was over too soon: ready"):
        contention.request_during_flood(broker, 1.0)


def test_subscriber_gets_all_beside_a_recorder_that_stands_still(broker: Broker) -> None:
    assert recorder.beside_recorder(broker, 0.5, stands="still").rate > 0
