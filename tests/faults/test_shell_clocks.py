"""The machine's clock is put forward and back by days, while the broker runs and while it does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias

import pytest

from nebula.broker.core.limits import Limits
from nebula.broker.store.sqlite import SqliteStore
from tests.broker.invariants import destinations
from tests.broker.script import Received
from tests.faults.served import Served, Wire, serve, wait_until

_DAY = 86_400.0
_LIMITS = Limits(session_expiry_seconds=3600)

_Start: TypeAlias = Callable[[], AbstractContextManager[Served]]


class Clock:
    """The wall clock. Nobody can put the other one, which only counts."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._true = time.time

    def __call__(self) -> float:
        return self._true() + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "time", clock)
    return clock


@pytest.fixture
def start(tmp_path: Path) -> _Start:
    """Starts a broker on the same folder, again and again."""
    return lambda: serve(_LIMITS, store=SqliteStore(tmp_path))


def say(broker: Served, *lines: str, client_id: str = "c") -> list[Received]:
    """What a client that says all this is told before it leaves in peace."""
    wire = Wire(broker.port)
    wire.say(f"CONNECT accept-version:1.2; host:h; client-id:{client_id}")
    wire.say(*lines)
    heard = wire.probe()
    wire.say("DISCONNECT")
    wire.rest()
    wire.close()
    return heard


def bodies(frames: list[Received]) -> list[str]:
    return ["".join(frame[2:]) for frame in frames if frame[0] == "MESSAGE"]


def pass_time(broker: Served) -> None:
    """Have the core look at its clocks now."""
    broker.ask(lambda: broker.server.broker.advance(broker.server.runtime.time()))


_TAKE = "SUBSCRIBE id:s; destination:/queue/a"
_WATCH = "SUBSCRIBE id:s; destination:/topic/t; durable:true; ack:client"


# While the broker runs: it counts seconds, and does not ask what day it is


@pytest.mark.parametrize("ahead", [_DAY, -_DAY])
def test_request_keeps_its_time_when_the_clock_is_put(clock: Clock, start: _Start, ahead: float) -> None:
    with start() as broker:
        say(broker, "SEND destination:/queue/a; neb-timeout:60000 | lives")
        clock.ahead = ahead
        pass_time(broker)

        (frame,) = (each for each in say(broker, _TAKE) if each[0] == "MESSAGE")

        assert 0 < int(frame[1]["neb-timeout"]) <= 60_000


@pytest.mark.parametrize("ahead", [_DAY, -_DAY])
def test_request_expires_in_its_time_when_the_clock_is_put(clock: Clock, start: _Start, ahead: float) -> None:
    with start() as broker:
        say(broker, "SEND destination:/queue/a; neb-timeout:20 | goes")
        clock.ahead = ahead

        wait_until(broker, lambda: not destinations(broker.server.broker))


def test_what_expires_at_an_hour_of_the_clock_stays_when_that_is_put_on(clock: Clock, start: _Start) -> None:
    with start() as broker:
        say(broker, f"SEND destination:/queue/a; expires:{int(clock() + 60) * 1000} | lives")
        clock.ahead = _DAY
        pass_time(broker)

        assert bodies(say(broker, _TAKE)) == ["lives"]


@pytest.mark.parametrize("ahead", [_DAY, -_DAY])
def test_delayed_message_comes_when_the_clock_is_put(clock: Clock, start: _Start, ahead: float) -> None:
    with start() as broker:
        wire = broker.connect()
        wire.say(_TAKE, "SEND destination:/queue/a; delay:100; persistent:true | comes")
        clock.ahead = ahead

        frame = wire.next()

        assert frame is not None
        assert bodies([frame]) == ["comes"]
        wire.close()


@pytest.mark.parametrize("ahead", [_DAY, -_DAY])
def test_session_that_is_away_stays_when_the_clock_is_put(clock: Clock, start: _Start, ahead: float) -> None:
    with start() as broker:
        say(broker, _WATCH)
        clock.ahead = ahead
        pass_time(broker)
        say(broker, "SEND destination:/topic/t | missed", client_id="other")

        assert bodies(say(broker, _WATCH)) == ["missed"]


# While it does not run: what is kept has the time of the wall


def test_clock_that_was_put_back_loses_nothing(clock: Clock, start: _Start) -> None:
    with start() as broker:
        say(broker, _WATCH)
        say(
            broker,
            "SEND destination:/topic/t | missed",
            "SEND destination:/queue/a; persistent:true | stays",
            "SEND destination:/queue/a; persistent:true; neb-timeout:60000 | lives",
            client_id="other",
        )
    clock.ahead = -_DAY

    with start() as broker:
        pass_time(broker)
        say(broker, "SEND destination:/queue/a; persistent:true | follows")

        assert bodies(say(broker, _TAKE, client_id="other")) == ["stays", "lives", "follows"]
        assert bodies(say(broker, _WATCH)) == ["missed"]


def test_session_does_not_live_longer_for_a_clock_that_was_put_back(clock: Clock, start: _Start) -> None:
    with start() as broker:
        say(broker, _WATCH)
    clock.ahead = -_DAY

    with start() as broker:
        (session,) = broker.ask(lambda: list(broker.server.broker.durable_sessions.by_id.values()))

        assert session.away_since <= broker.ask(lambda: broker.server.runtime.time())


def test_clock_that_was_put_on_ends_what_has_a_time_and_nothing_else(clock: Clock, start: _Start) -> None:
    with start() as broker:
        say(broker, _WATCH)
        say(
            broker,
            "SEND destination:/queue/a; persistent:true | stays",
            "SEND destination:/queue/a; persistent:true; neb-timeout:60000 | goes",
            "SEND destination:/queue/a; persistent:true; delay:60000 | comes",
        )
    clock.ahead = _DAY

    with start() as broker:
        pass_time(broker)

        # What has been due is delivered when the disk has it in its queue.
        wait_until(broker, lambda: not broker.server.broker.receipts.is_any)
        assert bodies(say(broker, _TAKE, client_id="other")) == ["stays", "comes"]
        assert not broker.ask(lambda: broker.server.broker.durable_sessions.by_id)
