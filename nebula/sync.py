"""The client without `await`, for scripts and notebooks.

The same calls with the same contracts as `nebula.rpc.client.Client`: read them there. Each waits until it
is done. The loop that does the work runs on a thread of its own.
"""

from __future__ import annotations

import copy
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager
from functools import partial
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    overload,
)

from anyio.from_thread import BlockingPortal, start_blocking_portal

from nebula.errors import LocalProtocolError
from nebula.rpc.breaker import Breaker
from nebula.rpc.chain import CallMiddleware
from nebula.rpc.client import Client as AsyncClient
from nebula.rpc.context import AnyRequest
from nebula.rpc.discovery import Instance, ScatterResult
from nebula.rpc.envelope import JSON_TYPE
from nebula.rpc.jobs.context import Job
from nebula.rpc.jobs.handle import JobHandle as AsyncJobHandle
from nebula.rpc.jobs.states import JobStatus
from nebula.rpc.last_values import LastValue as AsyncLastValue
from nebula.rpc.reconnecting import ConnectionState, OnState
from nebula.rpc.retrying import CallOptions, Retry
from nebula.rpc.start_options import StartOptions
from nebula.rpc.streams.reading import Stream
from nebula.rpc.values import Received, Values
from nebula.stomp.client_tls import TlsOptions
from nebula.stomp.messages import Message, SubscribeOptions
from nebula.stomp.subscription import Subscription as AsyncSubscription

if TYPE_CHECKING:
    from nebula.avro import Schema
    from nebula.rpc.cache import Cache

__all__ = ["Client", "JobHandle", "LastValue", "Subscription"]

P = ParamSpec("P")
T = TypeVar("T")


class _Do(Protocol):
    """Runs something on the client's loop and waits for it."""

    def __call__(self, work: Callable[[], Awaitable[T]], /) -> T: ...


class JobHandle:
    """One job of one service, seen from afar. See `nebula.rpc.jobs.handle.JobHandle`.

    Attributes:
        id: `<service>/<ulid>`.
    """

    def __init__(self, job: AsyncJobHandle, do: _Do) -> None:
        self.id = job.id
        self._job = job
        self._do = do

    def status(self) -> JobStatus:
        """How the job is now."""
        return self._do(self._job.status)

    def watch(self) -> Iterator[JobStatus]:
        """The job's status now, and each newer one as it comes, the last being its end."""
        statuses = self._job.watch()
        try:
            while (status := self._do(partial(_next_of, statuses))) is not None:
                yield status
        finally:
            self._do(partial(_close, statuses))

    def wait(self) -> JobStatus:
        """The job's last status, once it has ended."""
        return self._do(self._job.wait)

    @overload
    def result(self) -> Any: ...
    @overload
    def result(self, as_: type[T]) -> T: ...
    def result(self, as_: Any = None) -> Any:
        """What the job returned, once it has ended; as a type if one is given."""
        return self._do(partial(self._job.result, as_))

    def cancel(self) -> JobStatus:
        """End the job. Returns at once."""
        return self._do(self._job.cancel)

    def log(self, limit: int = 100) -> list[str]:
        """The last lines of the job's log, the oldest first."""
        return self._do(partial(self._job.log, limit))

    def __repr__(self) -> str:
        return f"JobHandle({self.id!r})"


async def _next_of(things: AsyncIterator[T]) -> T | None:
    return await anext(things, None)


async def _made(make: Callable[[], T]) -> T:
    return make()


async def _close(things: AsyncIterator[Any]) -> None:
    # A generator, which may hold a subscription until it is closed.
    if isinstance(things, AsyncGenerator):
        await things.aclose()


class Subscription(Iterator[T], Generic[T]):
    """What comes by a subscription: `for message in subscription`. See `nebula.stomp.client.Subscription`.

    Its items are messages, or `Received` where a type was asked for. Ack them here: their own `ack` is for
    the loop's thread.
    """

    def __init__(self, subscription: AsyncSubscription | Values[Any], do: _Do) -> None:
        self._items: Any = subscription
        self._raw = subscription.subscription if isinstance(subscription, Values) else subscription
        self._do = do

    def __next__(self) -> T:
        item: T | None = self._do(partial(_next_of, self._items))
        if item is None:
            raise StopIteration
        return item

    def snapshot(self) -> Iterator[T]:
        """What is there at first, where it is eager."""
        items = self._items.snapshot()
        try:
            while (item := self._do(partial(_next_of, items))) is not None:
                yield item
        finally:
            self._do(partial(_close, items))

    def ack(self, item: Message | Received[Any]) -> None:
        """Tell the broker that it is consumed."""
        self._do(partial(_soon, _message_of(item).ack))

    def nack(self, item: Message | Received[Any], **headers: str) -> None:
        """Tell the broker that it is not consumed."""
        self._do(partial(_soon, partial(_message_of(item).nack, **headers)))

    def pause(self, *, timeout: float | None = None) -> None:
        """Close a durable one, and wait until the broker has it so."""
        self._do(partial(self._raw.pause, timeout=timeout))

    def remove(self, *, timeout: float | None = None) -> None:
        """Close a durable one for good."""
        self._do(partial(self._raw.remove, timeout=timeout))


class LastValue(Iterable[T | None], Generic[T]):
    """A last value, as a value of a type. See `nebula.rpc.last_values.LastValue`.

    Attributes:
        destination: the value's own.
    """

    def __init__(self, value: AsyncLastValue[T], do: _Do) -> None:
        self.destination = value.destination
        self._value = value
        self._do = do

    def get(self) -> T | None:
        """The present value, None where there is none."""
        return self._do(self._value.get)

    def put(self, value: T, *, ephemeral: bool = False) -> None:
        """Set it; returns when the broker has it."""
        self._do(partial(self._value.put, value, ephemeral=ephemeral))

    def delete(self) -> None:
        """Delete it, whether there is one or not."""
        self._do(self._value.delete)

    def __iter__(self) -> Generator[T | None]:
        """The present value at once, and then whatever it becomes; None where there is none."""
        # On the loop: its subscription belongs there.
        changes = self._do(partial(_made, partial(aiter, self._value)))
        try:
            while True:
                yield self._do(changes.__anext__)
        finally:
            self._do(changes.aclose)


async def _soon(call: Callable[[], None]) -> None:
    call()


def _message_of(item: Message | Received[Any]) -> Message:
    return item.message if isinstance(item, Received) else item


class Client:
    """Calls verbs of services, over a connection that comes back. See `nebula.rpc.client.Client`.

    A context manager: entering it connects, leaving it disconnects. It may be used from several threads.

    Args:
        url: of the broker, or of several that share their queues.
        timeout: seconds that a call waits unless it says otherwise.
        client_id: names the session that durable subscriptions belong to.
        tls: for `stomps://` and `wss://`: whom to trust, and our own certificate.
        connect_timeout: seconds that one attempt to connect may take.
        wait: entering waits for a broker for as long as it takes.
        reconnect: by default. Else every later call fails, too, when the connection has ended.
        on_state: told each change of the connection's state, on the loop's thread: it must not call the
            client.
        retry: of all calls that do not say otherwise.
        breaker: leaves services alone for a while that fail again and again; by default none.
        middleware: around each call, on the client's own loop; see `nebula.rpc.chain.CallMiddleware`.
        cache: answers that are kept, for this client alone; by default each call asks.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        timeout: float = 30.0,
        client_id: str | None = None,
        tls: TlsOptions | None = None,
        connect_timeout: float = 10.0,
        wait: bool = False,
        reconnect: bool = True,
        on_state: OnState | None = None,
        retry: Retry | None = None,
        breaker: Breaker | None = None,
        cache: Cache | None = None,
        middleware: Sequence[CallMiddleware] = (),
    ) -> None:
        self._client = AsyncClient(
            url,
            timeout=timeout,
            client_id=client_id,
            tls=tls,
            connect_timeout=connect_timeout,
            wait=wait,
            reconnect=reconnect,
            on_state=on_state,
            retry=retry,
            breaker=breaker,
            cache=cache,
            middleware=middleware,
        )
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None

    def __enter__(self) -> Self:
        # If connecting fails, the thread has to end too.
        with self._stack:
            self._portal = self._stack.enter_context(start_blocking_portal())
            self._stack.enter_context(self._portal.wrap_async_context_manager(self._client))
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @property
    def state(self) -> ConnectionState:
        """How the connection is now."""
        return self._client.state

    def with_options(self, *, timeout: float | None = None, **options: Unpack[CallOptions]) -> Self:
        """The same client with other options for its calls."""
        return self._view(self._client.with_options(timeout=timeout, **options))

    def service(self, name: str) -> Self:
        """The same client, whose calls by function go to the service `name`."""
        return self._view(self._client.service(name))

    @overload
    def call(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        result: type[T],
        timeout: float | None = None,
        **options: Unpack[CallOptions],
    ) -> T: ...
    @overload
    def call(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        result: Any = ...,
        timeout: float | None = None,
        **options: Unpack[CallOptions],
    ) -> Any: ...
    @overload
    def call(
        self,
        function: Callable[Concatenate[AnyRequest, P], Awaitable[T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T: ...
    @overload
    def call(
        self, function: Callable[Concatenate[AnyRequest, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    @overload
    def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    def call(self, target: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Ask a service and wait for its answer: by name, or by function with its arguments."""
        return self._do(partial(self._client.call, target, *args, **kwargs))

    @overload
    def stream(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        result: type[T],
        timeout: float | None = None,
        credit: int = ...,
    ) -> Generator[T]: ...
    @overload
    def stream(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        result: Any = ...,
        timeout: float | None = None,
        credit: int = ...,
    ) -> Generator[Any]: ...
    @overload
    def stream(
        self,
        function: Callable[Concatenate[AnyRequest, P], AsyncIterable[T] | Iterable[T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Generator[T]: ...
    @overload
    def stream(
        self, function: Callable[P, AsyncIterable[T] | Iterable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Generator[T]: ...
    def stream(self, target: Any, /, *args: Any, **kwargs: Any) -> Generator[Any]:
        """What a verb yields, as it comes: `for item in client.stream(…)`. Leaving the loop ends it."""
        return self._streamed(partial(self._client.stream, target, *args, **kwargs))

    def _streamed(self, make: Callable[[], Stream[Any]]) -> Generator[Any]:
        # On the loop: that is where its deadline is looked for, and where it belongs.
        stream = self._do(partial(_made, make))
        try:
            # By batches: each crossing of threads costs as much as a hundred items.
            while batch := self._do(stream.next_batch):
                yield from batch
        finally:
            self._do(stream.aclose)

    @overload
    def send(
        self, service: str, verb: str, /, parameters: Any = None, *, expires_in: float | None = None
    ) -> None: ...
    @overload
    def send(
        self, function: Callable[Concatenate[AnyRequest, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> None: ...
    @overload
    def send(self, function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None: ...
    def send(self, target: Any, /, *args: Any, **kwargs: Any) -> None:
        """Put a request into a service's queue, and ask for no answer."""
        self._do(partial(self._client.send, target, *args, **kwargs))

    def publish(
        self,
        destination: str,
        body: Any,
        *,
        content_type: str = JSON_TYPE,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a message that is no request, and wait until the broker has it."""
        send = partial(self._client.publish, content_type=content_type, headers=headers)
        self._do(partial(send, destination, body))

    def send_avro(
        self, destination: str, value: Any, schema: Schema, *, headers: Mapping[str, str] | None = None
    ) -> None:
        """Publish a value as Avro, in an envelope that names its schema."""
        self._do(partial(self._client.send_avro, destination, value, schema, headers=headers))

    @overload
    def subscribe(
        self, destination: str, **options: Unpack[SubscribeOptions]
    ) -> AbstractContextManager[Subscription[Message]]: ...
    @overload
    def subscribe(
        self, destination: str, *, as_: type[T], **options: Unpack[SubscribeOptions]
    ) -> AbstractContextManager[Subscription[Received[T]]]: ...
    def subscribe(self, destination: str, *, as_: Any = None, **options: Unpack[SubscribeOptions]) -> Any:
        """Subscribe for the block: `for message in subscription`; read as a type if one is given."""
        return self._subscribed(self._client.subscribe(destination, as_=as_, **options))

    def value(self, destination: str, *, as_: type[T], schema: Schema | None = None) -> LastValue[T]:
        """One last value, `X/…`, read and written as a type."""
        return LastValue(self._client.value(destination, as_=as_, schema=schema), self._do)

    @contextmanager
    def _subscribed(
        self, opening: AbstractAsyncContextManager[AsyncSubscription | Values[Any]]
    ) -> Generator[Subscription[Any]]:
        with self._live().wrap_async_context_manager(opening) as subscription:
            yield Subscription(subscription, self._do)

    @overload
    def start(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        timeout: float | None = None,
        **options: Unpack[StartOptions],
    ) -> JobHandle: ...
    @overload
    def start(
        self, function: Callable[Concatenate[Job, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle: ...
    @overload
    def start(self, function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle: ...
    def start(self, target: Any, /, *args: Any, **kwargs: Any) -> JobHandle:
        """Have a service begin a job; returns once it is accepted."""
        return self._handle(self._do(partial(self._client.start, target, *args, **kwargs)))

    def services(self, service: str | None = None, *, timeout: float | None = None) -> list[Instance]:
        """The instances of services that are there now."""
        return self._do(partial(self._client.services, service, timeout=timeout))

    def call_all(
        self, service: str, verb: str, /, parameters: Any = None, **options: Any
    ) -> ScatterResult[Any]:
        """Ask every instance of a service that is there; returns when nobody is waited for any longer.

        Options are `result` and `timeout`.
        """
        return self._do(partial(self._client.call_all, service, verb, parameters, **options))

    def job(self, job: str) -> JobHandle:
        """The handle of a job that was started before, by its id `<service>/<ulid>`."""
        return self._handle(self._client.job(job))

    def _handle(self, job: AsyncJobHandle) -> JobHandle:
        return JobHandle(job, self._do)

    def _view(self, client: AsyncClient) -> Self:
        view = copy.copy(self)
        view._client = client
        return view

    def _do(self, work: Callable[[], Awaitable[T]]) -> T:
        return self._live().call(work)

    def _live(self) -> BlockingPortal:
        if self._portal is None:
            raise LocalProtocolError("the client is not connected: enter it with `with`")
        return self._portal
