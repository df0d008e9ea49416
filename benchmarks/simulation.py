"""A discrete-event simulation of programs that pass messages on: what `benchmarks.scale` predicts with.

A program has one thread on a core of its own, and works in turns. In a turn it reads one connection, all
that is there up to a limit, works on it message by message, and passes everything on at the end. So a program
that is idle answers at once and pays a whole turn for one message; a busy one pays the same for many.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

Action = Callable[[], None]


class Clock:
    """Simulated time, and what happens when. Seconds; `now` begins at 0."""

    def __init__(self) -> None:
        self.now = 0.0
        self._agenda: list[tuple[float, int, Action]] = []
        self._order = itertools.count()

    def after(self, seconds: float, action: Action) -> None:
        """Do something after a delay. Of two things at the same time the older request is first."""
        heapq.heappush(self._agenda, (self.now + seconds, next(self._order), action))

    def run(self, until: float) -> None:
        """Go on to this time, or until nothing is left to happen."""
        while self._agenda and self._agenda[0][0] <= until:
            self.now, _, action = heapq.heappop(self._agenda)
            action()
        self.now = until


class Program:
    """One thread.

    Args:
        at_once: messages of one connection in a turn.

    Attributes:
        busy: seconds that it has worked.
    """

    def __init__(self, clock: Clock, at_once: int) -> None:
        self.busy = 0.0
        self._clock = clock
        self._at_once = at_once
        self._line: deque[Stop] = deque()
        self._is_idle = True

    def hear(self, stop: Stop) -> None:
        """There is something at a stop: it has its turn after those that were there before."""
        if not stop.is_in_line:
            stop.is_in_line = True
            self._line.append(stop)
            if self._is_idle:
                self._begin()

    def _begin(self) -> None:
        self._is_idle = not self._line
        if self._line:
            stop = self._line.popleft()
            stop.is_in_line = False
            items = stop.take(self._at_once)
            seconds = stop.turn + stop.seconds * len(items)
            self.busy += seconds
            self._clock.after(seconds, partial(self._end, stop, items))

    def _end(self, stop: Stop, items: list[float]) -> None:
        # Still at work: requests that arrive meanwhile wait in line.
        stop.pass_on(items)
        if stop.waiting:
            self.hear(stop)
        self._begin()


class Stop:
    """Where messages come to a program by one connection. A message is the time at which it began its way.

    Args:
        turn: what a turn costs here, however many messages it is for.
        seconds: work for each message.
    """

    def __init__(self, program: Program, turn: float, seconds: float) -> None:
        self.turn = turn
        self.seconds = seconds
        self.waiting: deque[float] = deque()
        self.is_in_line = False
        self.following: Sequence[Stop] = ()
        self._program = program

    def put(self, items: Sequence[float]) -> None:
        """Messages arrive."""
        if items:
            self.waiting.extend(items)
            self._program.hear(self)

    def take(self, most: int) -> list[float]:
        """The next of them, for a turn."""
        return [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]

    def pass_on(self, items: list[float]) -> None:
        """Deal them out to the stops that follow, in turn."""
        for place, stop in enumerate(self.following):
            stop.put(items[place :: len(self.following)])


class End(Stop):
    """Where a message has come to the end of its way, and in a closed loop the next one begins.

    Attributes:
        latencies: seconds of the ways that have ended; clear it to forget a warm-up.
    """

    def __init__(self, clock: Clock, program: Program, turn: float, seconds: float) -> None:
        super().__init__(program, turn, seconds)
        self.latencies: list[float] = []
        self._clock = clock

    def pass_on(self, items: list[float]) -> None:
        """Note how long they took, and send as many new ones."""
        now = self._clock.now
        self.latencies.extend(now - item for item in items)
        super().pass_on([now] * len(items))


def ring(stops: Sequence[Stop], in_flight: int) -> None:
    """Connect the stops to a ring, and send this many messages round."""
    for stop, following in zip(stops, [*stops[1:], stops[0]], strict=True):
        stop.following = [following]
    stops[1].put([0.0] * in_flight)


def arrivals(clock: Clock, stop: Stop, rate: float, dice: random.Random) -> None:
    """Messages arrive at a stop at random, at a rate per second, independent of each other (Poisson)."""

    def arrive() -> None:
        stop.put([clock.now])
        clock.after(dice.expovariate(rate), arrive)

    clock.after(dice.expovariate(rate), arrive)


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which this part of the values lies; 0 without values."""
    return sorted(values)[int(len(values) * part)] if values else 0.0
