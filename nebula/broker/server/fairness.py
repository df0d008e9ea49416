"""Whose turn it is to be read, and to be written: nobody's much holds up everybody else's little."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nebula.broker.server.connection import Connection

# Who sent so much at once has more to say. uvloop would go on reading it, 8 MB or so, before it
# looks at anybody else.
_LONG_READ_BYTES = 128 * 1024

# And so much, while large bodies wait to be written to their receivers.
_READ_BEHIND_BYTES = 4 * 1024

# Connections with much to say are read so many at a time, for at most a read each: with 256 KB a
# read the others, timers and signals wait for one MB at most, however many such peers there are.
_LONG_READS_AT_ONCE = 4

# Some of them were read already, and go on with what that brought. It is work: no more of it in a turn.
_TURN_SECONDS = 0.004

# While others are at work too, a turn ends after this time: a request waits for such a turn at each of its
# four steps. It is a time and no number of frames because some frames cost a hundred times as much as others.
# A connection that is alone is not interrupted so often.
_SHORT_TURN_SECONDS = 0.0005
_AT_WORK_SECONDS = 0.1

# Who is to be written much waits for the next turn of the loop once so much was written in this one: a
# large body that a thousand receive would hold the others up for seconds. The kernel takes a GB/s or less.
_LONG_WRITES_BYTES = 4 * 1024 * 1024


class FairScheduler:
    """The connections that wait for their turn.

    Args:
        loop: whose turns they are.
        flush: writes to a connection what it was told.
        work: called when that was done for some.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        flush: Callable[[Connection, float], None],
        work: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._flush = flush
        self._work = work
        # By principal, so that a thousand connections of one get as many turns as a single connection of
        # another.
        self._lines: OrderedDict[str, deque[Connection]] = OrderedDict()
        self._waiting = 0
        self._reads_on_soon = False
        self._unwritten: deque[Connection] = deque()
        # Who was read last (its id: itself it would live on by this), and when that was another than before.
        self._reader = 0
        self._changed_at = float("-inf")
        self._over_at = 0.0
        # The same by principal.
        self._payer = ""
        self._payer_changed_at = float("-inf")

    def begin(self, connection: Connection, now: float) -> Callable[[], bool] | None:
        """A connection is read now.

        Returns:
            What tells whether its turn is over; None: nobody else is at work.
        """
        if id(connection) != self._reader:
            self._reader, self._changed_at = id(connection), now
            if connection.payer != self._payer:
                self._payer, self._payer_changed_at = connection.payer, now
        if now - self._changed_at >= _AT_WORK_SECONDS:
            return None
        self._over_at = time.perf_counter() + _SHORT_TURN_SECONDS
        return self._is_over

    def has_other_principals(self, now: float) -> bool:
        """Whether connections of several principals were read a moment ago."""
        return now - self._payer_changed_at < _AT_WORK_SECONDS

    def _is_over(self) -> bool:
        return time.perf_counter() >= self._over_at

    def is_long_read(self, size: int) -> bool:
        """Whether who has sent so much is to line up before it is read again.

        Where connections wait to be written, already who sends more than a little: else a good reader's
        outbox would fill before its turn, and it would be ended as too slow.
        """
        return size >= _LONG_READ_BYTES or (size >= _READ_BEHIND_BYTES and bool(self._unwritten))

    def line_up(self, connection: Connection) -> None:
        """Queue a connection that has stopped reading, so that its `take_turn` is called after those before
        it.

        Principals take turns in rotation, and so do the connections of each.
        """
        self._lines.setdefault(connection.payer, deque()).append(connection)
        self._waiting += 1
        self._read_on_soon()

    def defers(self, connection: Connection, written_bytes: int) -> bool:
        """Whether it is to be written in a later turn, as it will be: ask for who is to be written much.

        Args:
            written_bytes: what was written in this turn to those of whom was asked.
        """
        if written_bytes < _LONG_WRITES_BYTES and not self._unwritten:
            return False
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
        if self._unwritten:
            return
        # Not the loop's time, which stands still within a turn.
        until = time.perf_counter() + _TURN_SECONDS
        # Those that line up again meanwhile wait for the next turn.
        for _ in range(min(_LONG_READS_AT_ONCE, self._waiting)):
            self._take_next().take_turn()
            if time.perf_counter() >= until:
                break
        self._read_on_soon()

    def _take_next(self) -> Connection:
        payer, line = self._lines.popitem(last=False)
        connection = line.popleft()
        self._waiting -= 1
        if line:
            self._lines[payer] = line
        return connection

    def _write_on(self) -> None:
        now = self._loop.time()
        written_bytes = 0
        while self._unwritten and written_bytes < _LONG_WRITES_BYTES:
            connection = self._unwritten.popleft()
            written_bytes += connection.outbox_bytes
            self._flush(connection, now)
        if self._unwritten:
            self._loop.call_soon(self._write_on)
        else:
            self._read_on_soon()
        self._work()
