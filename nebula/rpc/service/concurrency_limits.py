"""BOUND: concurrency limits of verbs. Requests beyond them are set aside and hold no worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from nebula.rpc.contract.verbs import Endpoint
from nebula.rpc.service.worker_pool import WorkerPool
from nebula.stomp.client.messages import Message

__all__ = ["MAX_SET_ASIDE", "ConcurrencyLimit", "ConcurrencyLimits"]

# Prefetch counts them as delivered. The consumer asks the broker for this many more (`max_set_aside`), so
# that requests for other verbs still come.
MAX_SET_ASIDE: Final = 256
"""Requests that all limits of a service set aside together.

They are not acknowledged: with more of them the broker would send no other requests.
"""


# Why set aside and not wait: a request that waited in its worker would hold it, and one slow verb could
# hold all workers of the queue. So it leaves its worker, and comes back to the *front* of its pool when
# there is room (`WorkerPool.resume`), since it came before all that wait there.
#
# Its place is reserved from the moment it is called back (`_called`): otherwise a request that comes
# later could take the place first, and under steady load the one that was set aside would never run.
class ConcurrencyLimit:
    """Admits a number of requests of one verb at a time, and sets the next ones aside in their order.

    A request that is called back keeps its place on the way to a worker: a later request cannot take it.

    Args:
        concurrency: how many are admitted at a time.
        max_waiting: with how many set aside it `is_full`; None: never.
    """

    def __init__(self, concurrency: int, max_waiting: int | None) -> None:
        self._free = concurrency
        self._max_waiting = max_waiting
        self._aside: deque[tuple[WorkerPool, Message, float]] = deque()
        # On their way back to a worker, with a place each.
        self._called: set[Message] = set()
        # Admitted, but their connection is lost: they come again, and must not wait behind themselves.
        self._lost_inside = 0
        self._concurrency = concurrency

    @property
    def waiting(self) -> int:
        """Requests that are set aside."""
        return len(self._aside)

    @property
    def is_full(self) -> bool:
        """No more requests may wait."""
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
        """A request is done: call the next one back."""
        # Which one has left, one of the lost or a later one, is not known here. The count only lets more
        # wait for a while, and is 0 once as many have left as were lost.
        self._lost_inside = max(0, self._lost_inside - 1)
        if not self._aside:
            self._free += 1
            return
        pool, message, arrived = self._aside.popleft()
        self._called.add(message)
        pool.resume(message, arrived)

    def set_aside(self, pool: WorkerPool, message: Message, arrived: float) -> None:
        """Keep a request until there is room; then its pool gets it back."""
        self._aside.append((pool, message, arrived))

    def forget(self, message: Message) -> None:
        """A request will not be handled: its place is free, if it was called back."""
        if message in self._called:
            self._called.discard(message)
            self.leave()

    def lose(self) -> None:
        """The connection is lost: forget what came by it and is not admitted. It comes again."""
        self._aside = deque(one for one in self._aside if not one[1].subscription.is_closed)
        for message in [one for one in self._called if one.subscription.is_closed]:
            self.forget(message)
        self._lost_inside = self._concurrency - self._free

    def empty(self) -> None:
        """Give what is set aside back to its pools, which are closed."""
        aside, self._aside = self._aside, deque()
        for pool, message, arrived in aside:
            pool.resume(message, arrived)


class ConcurrencyLimits:
    """The concurrency limits of a service's verbs.

    Args:
        verbs: those of limited concurrency get a limit each.
        max_waiting: see `ConcurrencyLimit`.

    Attributes:
        max_set_aside: requests that may be set aside in all.
    """

    def __init__(self, verbs: Iterable[Endpoint], max_waiting: int | None) -> None:
        self._limits = {
            one.name: ConcurrencyLimit(one.concurrency, max_waiting)
            for one in verbs
            if one.concurrency is not None
        }
        self.max_set_aside = MAX_SET_ASIDE + (max_waiting or 0) if self._limits else 0

    def __len__(self) -> int:
        return len(self._limits)

    @property
    def waiting(self) -> int:
        """Requests that are set aside."""
        return sum(limit.waiting for limit in self._limits.values())

    def of(self, verb: str) -> ConcurrencyLimit | None:
        """The limit of a verb, or None."""
        return self._limits.get(verb)

    def is_full(self, limit: ConcurrencyLimit) -> bool:
        """Whether the next request beyond this limit is one too many."""
        return limit.is_full or self.waiting >= self.max_set_aside

    def forget(self, message: Message) -> None:
        """A message turned out to be no request: no limit keeps a place for it."""
        for limit in self._limits.values():
            limit.forget(message)

    def empty(self) -> None:
        """Give what is set aside back to its pools, which are closed."""
        for limit in self._limits.values():
            limit.empty()

    def lose(self) -> None:
        """The connection is lost, see `ConcurrencyLimit.lose`."""
        for limit in self._limits.values():
            limit.lose()
