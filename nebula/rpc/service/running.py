"""The requests that are being handled, and the end of those that nobody waits for any more."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import Final

import anyio

from nebula.rpc.contract.context import Ending, Request
from nebula.rpc.service.workers import Lane
from nebula.rpc.wire.cancel import Cancel
from nebula.waiter import Waiter, new_waiter

# A handler may run that much longer than its deadline, so that those whose time ends together end in one
# sweep.
_GRAIN: Final = 0.005


class Running:
    """Ends handlers whose callers wait no longer: at their deadline, or when they are cancelled.

    No task, scope or timer belongs to a request: each worker knows the one that it handles, one task sweeps
    over the workers, and what it cancels is a worker's scope.

    Attributes:
        next_sweep: when the sweeping task looks next. Who begins a request with an earlier deadline calls
            `sweep_earlier`; with like timeouts that is the first one only.
    """

    def __init__(self) -> None:
        self.next_sweep = math.inf
        self._lanes: tuple[Lane, ...] = ()
        self._earlier: Waiter[None] | None = None

    def watch(self, lanes: Iterable[Lane]) -> None:
        """Say where requests are handled; before the first one."""
        self._lanes = tuple(lanes)

    def sweep_earlier(self, deadline: float) -> None:
        """Look at this deadline already."""
        self.next_sweep = deadline
        if self._earlier is not None:
            self._earlier.set(None)

    def _requests(self) -> Iterator[Request]:
        # As many as there are workers, at most: an index would cost each request.
        for lane in self._lanes:
            for worker in lane.workers:
                if worker.request is not None:
                    yield worker.request

    def cancel(self, one: Cancel, principal: str | None) -> bool:
        """End the request that a cancel names; False if it is not here.

        Args:
            one: reply destination and id have to be the request's.
            principal: who cancels, and has to be whose request it is; None where the broker does not say.
        """
        for request in self._requests():
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
                # Whose deadline it was may be done by now. Looking then nevertheless is cheaper than to be
                # woken by each request that comes when no other one is handled.
                continue
            self._sweep(monotonic())

    def _sweep(self, now: float) -> None:
        self.next_sweep = math.inf
        for request in self._requests():
            # One that was ended already may take a while to end.
            if request.deadline is None or request.ending is not None:
                continue
            if request.deadline <= now:
                request.end(Ending.EXPIRED)
            else:
                self.next_sweep = min(self.next_sweep, request.deadline)
