"""The workers of one request queue: a fixed number, started as they are needed, none per request."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic

import anyio
from anyio.abc import TaskGroup

from nebula.errors import ConnectionLost
from nebula.rpc.contract.context import Request
from nebula.stomp.client.messages import Message
from nebula.waiter import Waiter, new_waiter, waiter_maker


class Worker:
    """One of the tasks that handle a lane's requests, one after the other.

    Attributes:
        lane: whose it is.
        request: what it handles, or None.
        is_lost: that came by a connection that is lost since.
        scope: what it runs in. Cancelling it ends the request that is being handled, and only that.
    """

    __slots__ = ("is_lost", "lane", "request", "scope")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.request: Request | None = None
        self.is_lost = False
        self.scope: anyio.CancelScope


Serve = Callable[[Message, float, Worker], Awaitable[None]]
Refuse = Callable[[Message, float], bool]
GiveBack = Callable[[Message, float], object]


def give_back(message: Message, _arrived: float) -> None:
    """Let others have a message. After `Listener.drain` that is no delivery which has failed."""
    # Else it comes back with the end of its connection.
    with suppress(ConnectionLost):
        message.nack()


class Lane:
    """Takes requests as they come and gives each to one of `concurrency` workers.

    Requests are begun in the order in which they came. A task and a scope for each request would cost
    a third of the rate; here a burst of requests whose handlers do not suspend is one task's work in
    one turn of the loop.

    Args:
        serve: handles one request; the second argument is when it came, on `time.monotonic`'s clock. It
            may raise a cancellation of the worker's scope, and nothing else.
        concurrency: how many requests are handled at once, at most.
        max_waiting: how many may wait for a worker; None: as many as come. Needs `refuse`.
        refuse: is given those that come when there are so many; what it returns False for waits all the
            same. Synchronous.

    Attributes:
        workers: those that were started until now.
        limiter: of the threads that its workers have things done in.
    """

    def __init__(
        self, serve: Serve, concurrency: int, *, max_waiting: int | None = None, refuse: Refuse | None = None
    ) -> None:
        self._serve = serve
        self._refuse = refuse
        self.workers: list[Worker] = []
        self.concurrency = concurrency
        self.limiter = anyio.CapacityLimiter(concurrency)
        self._most = None if max_waiting is None else concurrency + max_waiting
        self._waiting: deque[tuple[Message, float]] = deque()
        self._idle: list[Waiter[None]] = []
        self._new_waiter: Callable[[], Waiter[None]] = new_waiter
        # Set to True when a worker is wanted, to False when none will be any more.
        self._hiring: Waiter[bool] | None = None
        self._workers = 0
        # One worker is on its way: it was woken or started and has not yet looked at `_waiting`.
        self._is_waking = False
        self._is_closed = False
        self._give_back: GiveBack | None = None
        self._finished = anyio.Event()

    @property
    def waiting(self) -> int:
        """Requests that came and are not begun."""
        return len(self._waiting)

    @property
    def busy(self) -> int:
        """Requests that are being handled."""
        return self._workers - len(self._idle) - self._is_waking

    def put(self, message: Message) -> None:
        """Take a request. Synchronous, for `StompClient.listen`; after `close` it is given back."""
        arrived = monotonic()
        if self._is_closed:
            self._return(message, arrived)
            return
        if self._most is not None and self.waiting + self.busy >= self._most and self._is_full(self._most):
            assert self._refuse is not None
            if self._refuse(message, arrived):
                return
        self._waiting.append((message, arrived))
        self._wake_one()

    def resume(self, message: Message, arrived: float) -> None:
        """Take a request again that was set aside: before all that wait, as it came before them."""
        if self._is_closed:
            self._return(message, arrived)
            return
        self._waiting.appendleft((message, arrived))
        self._wake_one()

    def _is_full(self, most: int) -> bool:
        # What is lost comes again, perhaps to us, and does not wait beside itself.
        lost = sum(worker.is_lost for worker in self.workers)
        return self.waiting + self.busy - lost >= most

    def lose(self) -> None:
        """The connection is lost: what came by it and waits is forgotten, as it comes again."""
        self._waiting = deque(one for one in self._waiting if not one[0].subscription.is_closed)
        for worker in self.workers:
            # Once answered it does not come again, though its providers may be closing.
            if worker.request is not None:
                worker.is_lost = True

    def close(self, give_back: GiveBack | None = None) -> None:
        """Begin nothing more.

        Args:
            give_back: is given what waits and what still comes, each with the time of its coming; None: it
                stays unacked, and comes again when the connection has ended. Synchronous.
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
            if self.busy:
                with anyio.move_on_after(grace):
                    await self._finished.wait()
            tasks.cancel_scope.cancel()

    async def _hire(self, tasks: TaskGroup) -> None:
        """Start workers as they are wanted, until `close`.

        By a task, as `put` is called from the link's callbacks, where no task group can be used.
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
        elif self._workers < self.concurrency:
            self._is_waking = True
            self._workers += 1
            self._hiring.set(True)

    async def _work(self) -> None:
        worker = Worker(self)
        self.workers.append(worker)
        self._is_waking = False
        while True:
            # A scope ends with its cancellation, so there is one for each request that was ended by it, and
            # one for all the others.
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
                # Should this handler suspend, somebody else has to go on with the rest. If it does
                # not, that one wakes to an empty table once in a burst.
                self._wake_one()
            await self._serve(message, arrived, worker)

    async def _rest(self) -> None:
        waiter = self._new_waiter()
        self._idle.append(waiter)
        if self._is_closed and not self.busy:
            self._finished.set()
        await waiter.wait()
