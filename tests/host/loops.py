"""What reads and writes a pipe in its tests: loops that a test turns by hand, and loops in threads."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import uvloop

from nebula.broker.server.connection import Connection
from nebula.host.pipe import AppEnd, BrokerEnd, make_pipe

T = TypeVar("T")

DEADLINE = 20.0


class HandLoop:
    """An event loop as far as a pipe needs one: what is due runs when the test says so."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        self.wake_ups = 0
        self.is_closed = False

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.due.append(callback)

    def call_soon_threadsafe(self, callback: Callable[[], None], *, context: contextvars.Context) -> None:
        if self.is_closed:
            raise RuntimeError("Event loop is closed")
        self.wake_ups += 1
        self.due.append(lambda: context.run(callback))

    def turn(self) -> bool:
        """Run what is due now; False if nothing was."""
        due, self.due = self.due, []
        for callback in due:
            callback()
        return bool(due)


class Side:
    """Who is at one end and notes what it is told: a `Receiver`, or for a pipe as good as a `Connection`."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.losses: list[Exception | None] = []
        self.is_told_to_stop = False
        self.stops = 0
        self.on_data: Callable[[bytes], None] = self.received.extend

    def data_received(self, data: bytes) -> None:
        assert data
        assert not self.losses, "data after the end"
        self.on_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.losses.append(error)

    def pause_writing(self) -> None:
        assert not self.is_told_to_stop
        self.is_told_to_stop = True
        self.stops += 1

    def resume_writing(self) -> None:
        assert self.is_told_to_stop
        assert not self.losses, "called back after the end"
        self.is_told_to_stop = False


class HandPipe:
    """A pipe between two hand-turned loops, with somebody at each end."""

    def __init__(self, *, start: bool = True) -> None:
        self.broker_loop, self.app_loop = HandLoop(), HandLoop()
        ends = make_pipe(
            cast("asyncio.AbstractEventLoop", self.broker_loop),
            cast("asyncio.AbstractEventLoop", self.app_loop),
        )
        self.broker_end, self.app_end = ends
        self.broker, self.app = Side(), Side()
        self.is_started = False
        seat(self.broker_end, self.broker)
        if start:
            self.start()

    def start(self) -> None:
        self.is_started = True
        self.app_end.start(self.app, cast("Any", None))

    def settle(self) -> None:
        """Turn both loops until nothing is due."""
        while self.broker_loop.turn() | self.app_loop.turn():
            pass


def seat(end: BrokerEnd, side: Side) -> None:
    """Put somebody else where the broker's connection sits."""
    end.connection = cast("Connection", side)


class LoopThread:
    """A real loop in a thread of its own."""

    def __init__(self, new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop) -> None:
        self.loop = new_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="test loop")
        self._thread.start()

    def do(self, work: Callable[[], T]) -> T:
        """Call `work` on the loop, and wait for what it returns."""

        async def run() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(DEADLINE)

    def close(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(DEADLINE)
            self.loop.close()


class ThreadPipe:
    """A pipe between two loops in two threads."""

    def __init__(self, broker: LoopThread, app: LoopThread) -> None:
        self.broker_thread, self.app_thread = broker, app
        self.broker, self.app = Side(), Side()
        self.broker_end: BrokerEnd
        self.app_end: AppEnd
        self.broker_end, self.app_end = app.do(lambda: make_pipe(broker.loop, app.loop))
        seat(self.broker_end, self.broker)
        app.do(lambda: self.app_end.start(self.app, cast("Any", None)))


@contextmanager
def thread_pipe() -> Iterator[ThreadPipe]:
    """A pipe, and the two threads that it joins, on a loop of each kind."""
    threads = [LoopThread(uvloop.new_event_loop), LoopThread()]
    try:
        yield ThreadPipe(*threads)
    finally:
        for thread in threads:
            thread.close()
