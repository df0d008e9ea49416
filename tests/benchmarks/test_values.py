"""The rows about last values measure what they say, and notice when it is not so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks import publish, values
from benchmarks.own import RIGHTS, nebula_broker
from benchmarks.peers import Broker

pytestmark = pytest.mark.slow

_BLIND = """
[capability.Bench]
publish = ["X/bench-*"]

[identity]
anonymous = ["Bench"]
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with nebula_broker() as running:
        yield running


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "KEYS", 2_000)
    monkeypatch.setattr(values, "_PER_GROUP", 20)
    monkeypatch.setattr(publish, "_CROWD", 1_000)


@pytest.mark.parametrize("each_its_part", [True, False])
def test_changes_are_counted_when_all_readers_have_the_last_values(
    broker: Broker, *, each_its_part: bool
) -> None:
    measured = values.updates(broker, 0.5, each_its_part=each_its_part)

    assert measured.received is not None
    assert measured.received > 0
    assert measured.slow_received is not None
    assert measured.slow_received > 0


@pytest.mark.parametrize("ack", ["auto", "client"])
def test_snapshot_is_measured_to_its_end(broker: Broker, ack: str) -> None:
    measured = values.snapshot(broker, 0.1, ack=ack)

    assert measured.size_bytes is not None
    assert measured.size_bytes > values.KEYS * 200


def test_stored_values_are_taken_away_again(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "KEYS", 1)
    two = publish.stored(["X/bench-gone-a", "X/bench-gone-b"], broker)
    with two, pytest.raises(ConnectionError, match="does not end"):
        values.take_snapshot(broker, "X/bench-gone-*", "auto")

    with publish.stored(["X/bench-gone-b"], broker):
        values.take_snapshot(broker, "X/bench-gone-*", "auto")


@pytest.mark.parametrize("crowd", ["*", "x", ""])
def test_crowd_is_sent_nothing_and_gone_afterwards(broker: Broker, crowd: str) -> None:
    assert publish.beside_globs(broker, 0.1, crowd=crowd).rate > 0


def test_reader_that_is_not_told_fails_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "_PATIENCE_SECONDS", 0.5)

    with (
        nebula_broker(rights=_BLIND) as running,
        pytest.raises(ConnectionError, match="99 readers are behind, 1000 values are wrong"),
    ):
        values.updates(running, 0.1, each_its_part=False)


def test_rejected_change_fails_the_row() -> None:
    with (
        nebula_broker(rights=RIGHTS) as running,
        pytest.raises(ConnectionError, match="disposition:rejected"),
    ):
        values.updates(running, 0.1, each_its_part=False)
