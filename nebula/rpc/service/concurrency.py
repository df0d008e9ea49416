"""How many requests for one verb are handled at once; the others stand aside and hold no worker."""

from __future__ import annotations

from collections import deque
from typing import Final

from nebula.rpc.service.workers import Lane
from nebula.stomp.client.messages import Message

MOST_ASIDE: Final = 256
"""Requests that all the gates of a service set aside. They are not acked: with more of them the broker would
send no others."""


class Gate:
    """Lets so many requests of a verb in, and sets the next ones aside in the order of their coming.

    Args:
        concurrency: how many are in at once.
        max_waiting: with how many aside it `is_full`; None: never.
    """

    def __init__(self, concurrency: int, max_waiting: int | None) -> None:
        self._free = concurrency
        self._max_waiting = max_waiting
        self._aside: deque[tuple[Lane, Message, float]] = deque()
        # On their way back to a worker. Each has its place already, so that no later request takes it.
        self._called: set[Message] = set()
        # Inside for nobody: their connection is lost, and they come again.
        self._lost_inside = 0
        self._concurrency = concurrency

    @property
    def waiting(self) -> int:
        """Requests that were set aside."""
        return len(self._aside)

    @property
    def is_full(self) -> bool:
        """As many wait as may."""
        most = self._max_waiting
        return most is not None and len(self._aside) >= most + self._lost_inside

    def enter(self, message: Message) -> bool:
        """Whether a request may be handled now; then `leave` follows."""
        if message in self._called:
            self._called.discard(message)
            return True
        if not self._free:
            return False
        self._free -= 1
        return True

    def leave(self) -> None:
        """One is done: call the next one."""
        self._lost_inside = max(0, self._lost_inside - 1)
        if not self._aside:
            self._free += 1
            return
        lane, message, arrived = self._aside.popleft()
        self._called.add(message)
        lane.resume(message, arrived)

    def set_aside(self, lane: Lane, message: Message, arrived: float) -> None:
        """Keep a request until there is room, and give it back to its lane then."""
        self._aside.append((lane, message, arrived))

    def lose(self) -> None:
        """The connection is lost: what came by it and is not inside is forgotten, as it comes again."""
        self._aside = deque(one for one in self._aside if not one[1].subscription.is_closed)
        for message in [one for one in self._called if one.subscription.is_closed]:
            self._called.discard(message)
            self.leave()
        self._lost_inside = self._concurrency - self._free

    def empty(self) -> None:
        """Give what was set aside back to its lanes: they are closed."""
        aside, self._aside = self._aside, deque()
        for lane, message, arrived in aside:
            lane.resume(message, arrived)
