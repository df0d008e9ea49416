"""How many requests for one verb are handled at once; the others stand aside and hold no worker."""

from __future__ import annotations

from collections import deque

from nebula.rpc.lane import Lane
from nebula.stomp.messages import Message


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

    @property
    def waiting(self) -> int:
        """Requests that were set aside."""
        return len(self._aside)

    @property
    def is_full(self) -> bool:
        """As many wait as may."""
        return self._max_waiting is not None and len(self._aside) >= self._max_waiting

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
        if not self._aside:
            self._free += 1
            return
        lane, message, arrived = self._aside.popleft()
        self._called.add(message)
        lane.resume(message, arrived)

    def set_aside(self, lane: Lane, message: Message, arrived: float) -> None:
        """Keep a request until there is room, and give it back to its lane then."""
        self._aside.append((lane, message, arrived))
