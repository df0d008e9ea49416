"""Fair scheduling of reads and writes between connections.

Everything happens on one loop, so a connection is served at the expense of all others. Three rules keep the
delay of a small request short while others transfer much:

1. Long reads take turns. A connection that sent much in one read (128 KiB) stops reading and joins a line.
   uvloop would otherwise go on reading it, 8 MB or so, before it looks at another socket. At each turn of the
   loop a few connections are taken from the line. There is one line for each principal and the lines rotate,
   so that a thousand connections of one principal get no more turns than one connection of another.
2. A turn is short where others are at work. Reads bring frames, and handling them is what takes time, so the
   protocol asks from time to time whether its turn is over. The limit is a time and not a number of frames
   because some frames cost a hundred times as much as others. A connection that is alone (no other was read
   for 0.1 s) is not interrupted, since to stop and go on costs throughput.
3. Large writes are spread over turns of the loop. A body of 8 MB to a thousand subscribers is one message and
   8 GB of copying in the kernel. After 4 MB, connections with large outboxes are flushed in later turns.
   Meanwhile reads have to wait: a good reader's outbox would otherwise grow faster than its turn to be
   written comes, and it would be ended as too slow.

The caller pauses the transport before `line_up`, and resumes it in `take_turn`.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from nebula.broker.core.fixed_limits import (
    AT_WORK_SECONDS,
    LONG_READ_BYTES,
    LONG_READS_AT_ONCE,
    LONG_WRITES_BYTES,
    READ_BEHIND_BYTES,
    SHORT_TURN_SECONDS,
    TURN_SECONDS,
)


# Needed because uvloop reads up to 8 MB of one socket before it looks at the next, see docs/decisions/0004.
class Scheduled(Protocol):
    """A connection, as the scheduler sees it."""

    @property
    def payer(self) -> str:
        """The principal or address whose connections share turns."""
        ...

    @property
    def outbox_bytes(self) -> int:
        """What it has been told and was not handed to the transport yet."""
        ...

    def take_turn(self) -> None:
        """It is the connection's turn: read again, or go on with frames that wait."""


_C = TypeVar("_C", bound=Scheduled)


class FairScheduler(Generic[_C]):
    """The connections that wait for their turn to be read or written.

    Args:
        loop: the loop whose turns are shared.
        flush: writes what a connection was told.
        work: called after some were flushed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        flush: Callable[[_C, float], None],
        work: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._flush = flush
        self._work = work
        # By principal, so that a thousand connections of one get as many turns as a single connection of
        # another.
        self._lines: OrderedDict[str, deque[_C]] = OrderedDict()
        self._waiting = 0
        self._reads_on_soon = False
        # Connections with large outboxes, in the order in which they are flushed. While there is one, none of
        # the lines is read (rule 3).
        self._unwritten: deque[_C] = deque()
        # The connection that was read last (its id: a reference would keep it alive), and when it changed.
        self._reader = 0
        self._changed_at = float("-inf")
        # When the turn of the connection that is read now is over, by `time.perf_counter`.
        self._over_at = 0.0
        # The same by principal.
        self._payer = ""
        self._payer_changed_at = float("-inf")

    def begin(self, connection: _C, now: float) -> Callable[[], bool] | None:
        """Begin a connection's turn: it was read just now.

        Returns:
            A function that tells whether the turn is over; None: no other connection is at work.
        """
        if id(connection) != self._reader:
            self._reader, self._changed_at = id(connection), now
            if connection.payer != self._payer:
                self._payer, self._payer_changed_at = connection.payer, now
        # Alone: the reader has not changed for a while, so no other one waits.
        if now - self._changed_at >= AT_WORK_SECONDS:
            return None
        # One value for all connections: handling is synchronous, so there is one turn at a time.
        self._over_at = time.perf_counter() + SHORT_TURN_SECONDS
        return self._is_over

    def has_other_principals(self, now: float) -> bool:
        """Whether connections of several principals were read a moment ago."""
        return now - self._payer_changed_at < AT_WORK_SECONDS

    def _is_over(self) -> bool:
        return time.perf_counter() >= self._over_at

    def is_long_read(self, size: int) -> bool:
        """Whether a connection that sent this much has to line up before it is read again.

        The threshold is lower while connections wait to be written.
        """
        # Rule 3. Small reads go on even then, so that heart-beats and ACKs do not wait for a large fan-out.
        return size >= LONG_READ_BYTES or (size >= READ_BEHIND_BYTES and bool(self._unwritten))

    def line_up(self, connection: _C) -> None:
        """Queue a connection that has stopped reading. Its `take_turn` is called once.

        Principals take turns in rotation, and so do the connections of each.
        """
        # The payer is read here because a login may change it between two turns.
        self._lines.setdefault(connection.payer, deque()).append(connection)
        self._waiting += 1
        self._read_on_soon()

    def defers(self, connection: _C, written_bytes: int) -> bool:
        """Whether a connection with a large outbox is flushed in a later turn. If so, it is queued for that.

        Args:
            written_bytes: what was written in this turn to connections with large outboxes.
        """
        # While others wait to be written, this one lines up behind them.
        # The first large outboxes of a turn are written directly. That saves a turn in the usual case of one
        # large body for a few readers.
        if written_bytes < LONG_WRITES_BYTES and not self._unwritten:
            return False
        # One callback for all of them: it goes on until none is left.
        if not self._unwritten:
            self._loop.call_soon(self._write_on)
        self._unwritten.append(connection)
        return True

    def _read_on_soon(self) -> None:
        if self._lines and not (self._unwritten or self._reads_on_soon):
            self._reads_on_soon = True
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        self._reads_on_soon = False
        # `defers` may have been called since `call_soon`; `_write_on` calls `_read_on_soon` when it is done.
        if self._unwritten:
            return
        # Not the loop's time, which stands still within a turn.
        until = time.perf_counter() + TURN_SECONDS
        # Those that line up again meanwhile wait for the next turn.
        for _ in range(min(LONG_READS_AT_ONCE, self._waiting)):
            self._take_next().take_turn()
            if time.perf_counter() >= until:
                break
        # `call_soon` and not a loop: the sockets are polled between two turns, so new input is seen.
        self._read_on_soon()

    def _take_next(self) -> _C:
        # Round robin: the principal in front gives its next connection, and goes to the end.
        payer, line = self._lines.popitem(last=False)
        connection = line.popleft()
        self._waiting -= 1
        if line:
            self._lines[payer] = line
        return connection

    def _write_on(self) -> None:
        now = self._loop.time()
        written_bytes = 0
        while self._unwritten and written_bytes < LONG_WRITES_BYTES:
            connection = self._unwritten.popleft()
            written_bytes += connection.outbox_bytes
            # The connection may have closed since; `flush` then writes nothing.
            self._flush(connection, now)
        if self._unwritten:
            self._loop.call_soon(self._write_on)
        else:
            self._read_on_soon()
        # Flushing makes room in outboxes, so queues may dispatch more.
        self._work()
