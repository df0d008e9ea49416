"""Cancellation of running requests: at their deadline, or when their caller withdraws them.

No task, scope or timer belongs to a request. Each worker knows the request that it handles; one task sweeps
over the workers at the earliest deadline, and what it cancels is a worker's scope. With like timeouts, only
the first of many requests moves the next sweep.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import Final

import anyio

from nebula.rpc.contract.context import Ending, Request
from nebula.rpc.service.worker_pool import WorkerPool
from nebula.rpc.wire.cancel import Cancel
from nebula.waiter import Waiter, new_waiter

__all__ = ["Cancellation"]

# A handler may run this much longer than its deadline, so that one sweep ends all whose time ends together.
_GRAIN: Final = 0.005


# One sweep instead of a scope with a deadline for each request: all would pay for the scope, and nearly
# all end long before their deadline. So the timer moves only when an earlier deadline comes.
class Cancellation:
    """Ends handlers whose callers no longer wait.

    Attributes:
        next_sweep: when the sweeping task looks next. Call `sweep_earlier` before a request with an earlier
            deadline begins.
    """

    def __init__(self) -> None:
        self.next_sweep = math.inf
        self._pools: tuple[WorkerPool, ...] = ()
        self._earlier: Waiter[None] | None = None

    def watch(self, pools: Iterable[WorkerPool]) -> None:
        """Say where requests are handled, before the first one."""
        self._pools = tuple(pools)

    def sweep_earlier(self, deadline: float) -> None:
        """Have the next sweep at this deadline."""
        self.next_sweep = deadline
        if self._earlier is not None:
            self._earlier.set(None)

    def _requests(self) -> Iterator[Request]:
        # One for each worker, at most: an index by request would cost each of them.
        for pool in self._pools:
            for worker in pool.workers:
                if worker.request is not None:
                    yield worker.request

    def cancel(self, one: Cancel, principal: str | None) -> bool:
        """End the request that a cancel names; False if it is not here.

        Args:
            one: reply destination and id have to be the request's.
            principal: who cancels, and has to be whose request it is; None where the broker does not say.
        """
        for request in self._requests():
            # The reply id alone is no proof: another caller could guess it. Destination and, where the
            # broker vouches, principal have to match as well.
            if (
                request.reply_id == one.reply_id
                and request.reply_to == one.reply_to
                and (principal is None or principal == request.principal)
            ):
                request.end(Ending.CANCELLED)
                return True
        return False

    async def run(self) -> None:
        """End requests at their deadlines, until cancelled."""
        while True:
            self._earlier = new_waiter()
            with anyio.move_on_after(max(self.next_sweep - monotonic(), 0) + _GRAIN):
                await self._earlier.wait()
                # The request of the earliest deadline may be done by then. That sweep for nothing is cheaper
                # than a wake-up for each request that comes when no other one is handled.
                continue
            self._sweep(monotonic())

    def _sweep(self, now: float) -> None:
        self.next_sweep = math.inf
        for request in self._requests():
            # A request that was ended may still run for a while.
            if request.deadline is None or request.ending is not None:
                continue
            if request.deadline <= now:
                request.end(Ending.EXPIRED)
            else:
                self.next_sweep = min(self.next_sweep, request.deadline)
