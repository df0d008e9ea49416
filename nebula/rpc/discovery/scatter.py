"""Scatter: one request to all instances of a service, and the reply of each."""

# For how long is an instance waited for? Not simply until the deadline: with one dead instance each
# `call_all` would take all of its time. And not simply until it leaves: an instance that stops leaves the
# list first, and then finishes what it has begun. So:
#
# 1. An instance that replies, or whose queue refuses the request, is done.
# 2. When presence says that it has left, its queue is looked at (`_see_it_die`): a SEND with
#    `require-consumers` is accepted while the instance still reads there, and refused once it is gone. The
#    body is "boo", which every service skips (C.4).
# 3. On brokers without such verdicts, and for instances that hang, the deadline decides.

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import anyio
from anyio.abc import TaskGroup

from nebula import headers as names
from nebula.errors import (
    CallTimeout,
    CircuitOpen,
    ConnectionLost,
    NoResponder,
    Rejected,
    RemoteError,
    ServerError,
)
from nebula.rpc.discovery.instances import Instance
from nebula.rpc.discovery.presence import Presence, watching
from nebula.rpc.errors import UnexpectedReply, VerbError
from nebula.rpc.wire.envelope import BOO, TEXT_TYPE
from nebula.stomp.client import StompClient

__all__ = ["InstanceReply", "Scatter", "ScatterResult"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# An instance that has left may still reply to what it has begun. Seconds between looks at whether it lives.
_LOOK_EVERY: Final = 0.1


class Ask(Protocol[T_co]):
    """Asks one instance, on its queue, and waits for its reply for some seconds."""

    async def __call__(self, queue: str, /, *, timeout: float) -> T_co: ...


@dataclass(frozen=True, slots=True)
class InstanceReply(Generic[T]):
    """The reply of one instance.

    Attributes:
        instance: that replied.
        seconds: how long it took.
        error: it replied `error` (`RemoteError`, or the `VerbError` that was declared for its code), or with
            something of another type (`UnexpectedReply`); None: it replied with a value.
    """

    instance: Instance
    seconds: float
    _value: T | None = None
    error: RemoteError | VerbError | UnexpectedReply | None = None

    @property
    def value(self) -> T:
        """The verb's value.

        Raises:
            RemoteError, VerbError, UnexpectedReply: `error`, if there is one.
        """
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]  # without an error it is what was asked for


@dataclass(frozen=True, slots=True)
class ScatterResult(Generic[T]):
    """The replies of all instances, once the call has ended.

    Attributes:
        answers: in the order in which they came.
        missing: the instances that were there and did not reply.
    """

    answers: list[InstanceReply[T]] = field(default_factory=list)
    missing: list[Instance] = field(default_factory=list)

    @property
    def values(self) -> dict[str, T]:
        """The values of the instances that replied with one, by their names."""
        return {one.instance.name: one.value for one in self.answers if one.error is None}


class Scatter(Generic[T]):
    """A request to all instances of a service: `client.call_all(…)`.

    Awaited, it gives a `ScatterResult` once it waits for no more instances. As an async context manager it
    gives the replies as they come; leaving it early forgets the others:

        async with client.call_all("prices", "reload") as answers:
            async for answer in answers:
                print(answer.instance.name, answer.value)
        print(answers.missing)

    It asks the instances that are running when it begins; without any there is no reply. It waits for an
    instance until that has replied or died, or the time is over: then the instance is `missing`, as it is if
    its queue is full or its circuit open. Any other failure ends the whole call.

    Args:
        connected: gives a connection within some seconds.
        service: its name.
        ask: asks one instance.
        seconds: that all of it may take.

    Attributes:
        missing: the instances that will not reply, as far as is known; complete after the last reply.
    """

    def __init__(
        self,
        connected: Callable[[float], Awaitable[StompClient]],
        service: str,
        ask: Ask[T],
        seconds: float,
    ) -> None:
        self._connected, self._service, self._ask, self._seconds = connected, service, ask, seconds
        self._waiting: dict[str, _Waiting] = {}
        self._answers: deque[InstanceReply[T]] = deque()
        self._moved = anyio.Event()
        self._failure: Exception | None = None
        self._block: AbstractAsyncContextManager[None] | None = None
        self.missing: list[Instance] = []

    async def __aenter__(self) -> Self:
        self._block = self._asking()
        await self._block.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._block is not None
        return await self._block.__aexit__(kind, error, trace)

    def __aiter__(self) -> AsyncIterator[InstanceReply[T]]:
        return self

    async def __anext__(self) -> InstanceReply[T]:
        while not self._answers:
            if self._failure is not None:
                raise self._failure
            if self._block is None:
                raise RuntimeError(
                    "no instance was asked: `async with client.call_all(…) as answers:`, or await it"
                )
            if not self._waiting:
                raise StopAsyncIteration
            self._moved = anyio.Event()
            await self._moved.wait()
        return self._answers.popleft()

    def __await__(self) -> Generator[Any, Any, ScatterResult[T]]:
        return self._all().__await__()

    async def _all(self) -> ScatterResult[T]:
        async with self:
            answers = [answer async for answer in self]
        return ScatterResult(answers, self.missing)

    @asynccontextmanager
    async def _asking(self) -> AsyncGenerator[None]:
        failure: Exception | None = None
        ends = anyio.current_time() + self._seconds
        stomp = await self._connected(self._seconds)
        left = max(0.0, ends - anyio.current_time())
        # Where instances have to be asked, half of the time is left for the question itself.
        async with watching(stomp, self._service, left / 2) as presence:
            async with anyio.create_task_group() as tasks:
                for instance in presence.instances:
                    self._begin(instance, ends, tasks)
                tasks.start_soon(self._watch, stomp, presence, tasks, name="who is there")
                try:
                    yield
                # Not through the task group: it would come out wrapped.
                except Exception as error:
                    failure = error
                tasks.cancel_scope.cancel()
            if failure is not None:
                raise failure

    def _begin(self, instance: Instance, ends: float, tasks: TaskGroup) -> None:
        if instance.queue is None:
            self.missing.append(instance)
            return
        waiting = self._waiting[instance.destination] = _Waiting(instance, instance.queue)
        tasks.start_soon(self._ask_one, waiting, ends, name=f"asking {instance.name}")

    async def _ask_one(self, waiting: _Waiting, ends: float) -> None:
        instance = waiting.instance
        with waiting.scope:
            began = anyio.current_time()
            try:
                value = await self._ask(waiting.queue, timeout=max(ends - began, 0.001))
                self._answers.append(InstanceReply(instance, anyio.current_time() - began, value))
                waiting.has_replied = True
            except (RemoteError, VerbError, UnexpectedReply) as error:
                self._answers.append(InstanceReply(instance, anyio.current_time() - began, None, error))
                waiting.has_replied = True
            except (CallTimeout, CircuitOpen, NoResponder):
                pass
            except Exception as error:  # for the reader, unwrapped: the group would wrap it
                if not (isinstance(error, Rejected) and error.verdict == names.REJECTED_FULL):
                    self._failure = error
        if not waiting.has_replied:
            self.missing.append(instance)
        del self._waiting[instance.destination]
        self._moved.set()

    async def _watch(self, stomp: StompClient, presence: Presence, tasks: TaskGroup) -> None:
        """End the waiting for instances that left without a reply."""
        with suppress(ConnectionLost, ServerError):  # the calls in flight raise it
            async for change in presence.changes():
                waiting = self._waiting.get(change.instance.destination)
                if change.is_gone and waiting is not None:
                    tasks.start_soon(self._see_it_die, stomp, waiting, name="a leaving instance")

    async def _see_it_die(self, stomp: StompClient, waiting: _Waiting) -> None:
        """Wait until an instance that left has replied, or lost its queue and with it all it has begun."""
        # Only where the broker says whether a consumer is there.
        while stomp.is_nebula and self._waiting.get(waiting.instance.destination) is waiting:
            # It asks the broker, and nothing of the instance, which has to finish what it has begun.
            headers = {"content-type": TEXT_TYPE, names.REQUIRE_CONSUMERS: "true"}
            try:
                await stomp.send(waiting.queue, BOO, headers, receipt=True)
            except Rejected as error:
                if error.verdict == names.REJECTED_NO_CONSUMER:
                    waiting.scope.cancel()
                    return
            except (ConnectionLost, ServerError):
                return  # the caller gets it
            await anyio.sleep(_LOOK_EVERY)


class _Waiting:
    """An instance that is waited for."""

    __slots__ = ("has_replied", "instance", "queue", "scope")

    def __init__(self, instance: Instance, queue: str) -> None:
        self.instance = instance
        self.queue = queue
        self.scope = anyio.CancelScope()
        self.has_replied = False
