"""A rate limit for expensive work that strangers can ask for, fair to each network address.

The work is a passcode's hash: 64 MiB and a core each. Requests wait in one line per address, and the lines
take turns, so that an address which asks without end waits behind itself.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from nebula.errors import SettingsError


class TooManyWaiting(Exception):
    """Too many wait for a turn already, most of them from the same address."""


class RateLimiter:
    """A limit of turns per second, evenly spaced, and of turns at the same time.

    Addresses take turns. Where too many wait, the last one of the address with most of them is refused.

    Args:
        per_second: how many turns there are.
        at_once: how many may run at the same time.
        longest_wait: seconds; the lines together are as long as the turns of this time.

    Raises:
        SettingsError: `per_second` is no rate.
    """

    def __init__(self, per_second: float, *, at_once: int, longest_wait: float) -> None:
        if per_second <= 0:
            raise SettingsError(f"verifications_per_second {per_second:g} is not above 0")
        self._interval = 1.0 / per_second
        self._room = max(1, round(per_second * longest_wait))
        self._at_once = at_once
        # When the next turn may begin. Turns are spaced evenly, which leaves the cores free in between.
        self._next = 0.0
        # By place, in the order of their turns; no line is empty.
        self._lines: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def take(self, place: str = "") -> AsyncGenerator[None]:
        """Wait for a turn, and hold it during the block. A waiter that is cancelled leaves its line.

        Raises:
            TooManyWaiting: too many wait.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._make_room(place)
        self._lines.setdefault(place, deque()).append(turn)
        self._call()
        try:
            await turn
        # BaseException includes CancelledError. Three cases: the waiter was cancelled, and leaves its line;
        # it was cancelled just after it got the turn, and gives it back; or it was refused by
        # `TooManyWaiting`, and has nothing to give back.
        except BaseException:
            if turn.cancelled():
                self._leave(place, turn)
            elif turn.exception() is None:
                self._end()  # it was given a moment before
            raise
        try:
            yield
        finally:
            self._end()

    def _end(self) -> None:
        self._at_once += 1
        self._call()

    def _make_room(self, place: str) -> None:
        if sum(map(len, self._lines.values())) < self._room:
            return
        longest = max(self._lines, key=lambda each: len(self._lines[each]))
        # One more of the same place, or of one that has as many, has the worse claim.
        # Refusing the new waiter keeps an address from pushing out waiters of an equal one.
        if len(self._lines[longest]) <= len(self._lines.get(place, ())) + 1:
            raise TooManyWaiting
        # The last of a line has waited least.
        last = self._lines[longest][-1]
        # Removed before the exception is set: its waiter runs later and must not be found in the line.
        self._leave(longest, last)
        last.set_exception(TooManyWaiting())

    def _leave(self, place: str, turn: asyncio.Future[None]) -> None:
        line = self._lines.get(place)
        if line is not None and turn in line:
            line.remove(turn)
            if not line:
                del self._lines[place]

    def _call(self) -> None:
        """Schedule the next turn for the earliest time that the rate allows."""
        # One timer at most, and only while there is both a waiter and a free slot.
        if self._lines and self._at_once and self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(self._next, self._give)

    def _give(self) -> None:
        self._timer = None
        # The waiters may have been cancelled between the timer and now.
        if not (self._lines and self._at_once):
            return
        place, line = self._lines.popitem(last=False)
        turn = line.popleft()
        if line:
            self._lines[place] = line  # behind the other places
        # From now on and not from the last turn: what was not used up is not saved for a burst.
        self._next = asyncio.get_running_loop().time() + self._interval
        # A waiter that was cancelled at this moment has no turn; the next one has it.
        if not turn.done():
            self._at_once -= 1
            turn.set_result(None)
        self._call()
