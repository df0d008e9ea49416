"""BOUND: a fixed number of workers for one queue or subscription, started as they are needed.

Requests begin in the order in which they came. A task and a scope for each request would cost a third of the
rate; here a burst of requests whose handlers do not suspend is one task's work in one turn of the loop.

Only one worker is on its way at a time. Before it begins a request it wakes the next one, if more requests
wait. If its handler suspends, that worker goes on; otherwise it finds nothing to do, once in a burst.

A scope ends with its cancellation. So a worker keeps one scope for all requests, and makes a new one after
each request that was ended by it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import TypeAlias

import anyio
from anyio.abc import TaskGroup

from nebula.errors import ConnectionLost
from nebula.rpc.contract.context import Request
from nebula.rpc.middleware.providers import Provided
from nebula.stomp.client.messages import Message
from nebula.waiter import Waiter, new_waiter, waiter_maker

__all__ = ["GiveBack", "Handle", "Refuse", "Worker", "WorkerPool", "give_back"]


class Worker:
    """One of the tasks of a pool, which handle one request after the other.

    Attributes:
        pool: whose it is.
        request: what it handles, or None.
        provided: what providers made for that request, to be closed after the reply; or None.
        is_lost: the request came by a connection that is lost by now.
        scope: what it runs in. Cancelling it ends the request that is being handled, and only that.
    """

    __slots__ = ("is_lost", "pool", "provided", "request", "scope")

    def __init__(self, pool: WorkerPool) -> None:
        self.pool = pool
        self.request: Request | None = None
        self.provided: Provided | None = None
        self.is_lost = False
        self.scope: anyio.CancelScope


Handle: TypeAlias = Callable[[Message, float, Worker], Awaitable[None] | None]
Refuse: TypeAlias = Callable[[Message, float], bool]
GiveBack: TypeAlias = Callable[[Message, float], object]


def give_back(message: Message, _arrived: float) -> None:
    """Give a message to another instance. After `PushSubscription.drain` it counts as no failed delivery."""
    # Without a connection it goes back by itself.
    with suppress(ConnectionLost):
        message.nack()


# How a worker is woken. `put` runs in the link's callback: it cannot start tasks, and must not wait; nor does
# it begin a handler itself (docs/decisions/0063). It
# only marks that one worker is on its way (`_is_waking`) and wakes an idle one, or asks `_hire` for a new
# one. That worker takes the first message, and wakes the next worker before it handles it. So a chain of
# wake-ups runs through the pool, at most one of them at a time, and a burst of requests that never
# suspend is handled by one task without a single switch.
#
# Invariants:
# - `_is_waking` is true from a wake-up until that worker has looked at `_waiting`.
# - Every worker is in `_idle`, is on its way, or handles a request: `busy` follows from the three counts.
# - Nothing is taken from `_waiting` after `close`.
class WorkerPool:
    """Takes messages as they come and gives each to one of `concurrency` workers.

    Args:
        handle: handles one message; the second argument is when it came, on `time.monotonic`'s clock. What it
            returns is awaited, unless that is None. It may raise a cancellation of the worker's scope, and
            nothing else.
        concurrency: how many messages are handled at a time, at most.
        max_waiting: how many may wait for a worker; None: any number. Needs `refuse`.
        refuse: is given those beyond that; what it returns False for waits all the same. Synchronous.

    Attributes:
        workers: those that were started until now.
        limiter: of the threads that its workers use.
    """

    def __init__(
        self,
        handle: Handle,
        concurrency: int,
        *,
        max_waiting: int | None = None,
        refuse: Refuse | None = None,
    ) -> None:
        self._handle = handle
        self._refuse = refuse
        self.workers: list[Worker] = []
        self.concurrency = concurrency
        self.limiter = anyio.CapacityLimiter(concurrency)
        self._most = None if max_waiting is None else concurrency + max_waiting
        self._waiting: deque[tuple[Message, float]] = deque()
        self._idle: list[Waiter[None]] = []
        self._new_waiter: Callable[[], Waiter[None]] = new_waiter
        # Workers are started as they are wanted, and never ended before the pool is.
        # Set to True when a worker is wanted, to False when none will be any more.
        self._hiring: Waiter[bool] | None = None
        self._count = 0
        # One worker is on its way: it was woken or started and has not yet looked at `_waiting`.
        self._is_waking = False
        self._is_closed = False
        self._give_back: GiveBack | None = None
        self._finished = anyio.Event()

    @property
    def waiting(self) -> int:
        """Messages that came and are not begun."""
        return len(self._waiting)

    @property
    def busy(self) -> int:
        """Messages that are being handled."""
        return self._count - len(self._idle) - self._is_waking

    def put(self, message: Message) -> None:
        """Take a message. Synchronous, for `StompClient.listen`; after `close` it is given back."""
        arrived = monotonic()
        if self._is_closed:
            self._return(message, arrived)
            return
        if self._most is not None and self.waiting + self.busy >= self._most and self._is_full(self._most):
            assert self._refuse is not None
            if self._refuse(message, arrived):
                return
        self._waiting.append((message, arrived))
        if not self._is_waking:
            self._wake_one()

    def resume(self, message: Message, arrived: float) -> None:
        """Take a message again that was set aside: before all that wait, as it came before them."""
        if self._is_closed:
            self._return(message, arrived)
            return
        self._waiting.appendleft((message, arrived))
        self._wake_one()

    def _is_full(self, most: int) -> bool:
        # What is lost comes again, perhaps to us, and must not wait behind itself.
        # Only a full pool comes here, so the sum over its workers does not matter.
        lost = sum(worker.is_lost for worker in self.workers)
        return self.waiting + self.busy - lost >= most

    def lose(self) -> None:
        """The connection is lost: forget what came by it and waits, as it comes again."""
        self._waiting = deque(one for one in self._waiting if not one[0].subscription.is_closed)
        for worker in self.workers:
            # Without a request it was replied to and does not come again, though its providers may be
            # closing.
            if worker.request is not None:
                worker.is_lost = True

    def close(self, give_back: GiveBack | None = None) -> None:
        """Begin nothing more.

        Args:
            give_back: is given what waits and what still comes, each with the time of its coming; None: it
                stays unacknowledged, and comes again when the connection has ended. Synchronous.
        """
        self._is_closed = True
        self._give_back = give_back
        waiting, self._waiting = self._waiting, deque()
        for message, arrived in waiting:
            self._return(message, arrived)
        if self._hiring is not None:
            self._hiring.set(False)

    def _return(self, message: Message, arrived: float) -> None:
        if self._give_back is not None:
            self._give_back(message, arrived)

    async def run(self, grace: float) -> None:
        """Keep the workers until `close`; then give them `grace` seconds to finish, and cancel them."""
        self._new_waiter = waiter_maker()
        async with anyio.create_task_group() as tasks:
            await self._hire(tasks)
            # Nothing else ends the workers: they wait for messages in an endless loop.
            if self.busy:
                with anyio.move_on_after(grace):
                    await self._finished.wait()
            tasks.cancel_scope.cancel()

    async def _hire(self, tasks: TaskGroup) -> None:
        """Start workers as they are wanted, until `close`.

        In a task of its own: `put` is called from the link's callbacks, where no task group can be used.
        """
        while not self._is_closed:
            self._hiring = new_waiter()
            if self._waiting:
                self._wake_one()
            if await self._hiring.wait():
                tasks.start_soon(self._work, name="worker")

    def _wake_one(self) -> None:
        if self._is_waking or self._hiring is None:
            return
        if self._idle:
            self._is_waking = True
            self._idle.pop().set(None)
        elif self._count < self.concurrency:
            self._is_waking = True
            self._count += 1
            self._hiring.set(True)

    async def _work(self) -> None:
        worker = Worker(self)
        self.workers.append(worker)
        self._is_waking = False
        while True:
            # docs/decisions/0017: a scope for each worker and not for each request, which would rarely need
            # it.
            with anyio.CancelScope() as worker.scope:
                await self._work_in(worker)

    async def _work_in(self, worker: Worker) -> None:
        scope = worker.scope
        while not scope.cancel_called:
            worker.is_lost = False
            if not self._waiting:
                await self._rest()
                self._is_waking = False
                continue
            message, arrived = self._waiting.popleft()
            if self._waiting:
                self._wake_one()
            work = self._handle(message, arrived, worker)
            if work is not None:
                await work

    async def _rest(self) -> None:
        waiter = self._new_waiter()
        self._idle.append(waiter)
        if self._is_closed and not self.busy:
            self._finished.set()
        await waiter.wait()
