"""Connection and messages of the client without `await`."""

# Callbacks (`on_state`, `middleware`) run on the loop's thread, and all work of the client is done there: a
# callback that called the client would wait for itself.

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from nebula.rpc.client.breaker import Breaker
from nebula.rpc.client.client import Client as AsyncClient
from nebula.rpc.client.reconnect import ConnectionState, OnState
from nebula.rpc.client.typed_messages import Received, Values
from nebula.rpc.contract.retry import Retry
from nebula.rpc.discovery import Instance
from nebula.rpc.discovery import Presence as AsyncPresence
from nebula.rpc.middleware.chain import CallMiddleware
from nebula.rpc.wire.envelope import JSON_TYPE
from nebula.stomp.client.messages import Message, SubscribeOptions
from nebula.stomp.client.subscription import Subscription as AsyncSubscription
from nebula.stomp.client.tls import TlsOptions
from nebula.sync.calls import Calls
from nebula.sync.discovery import Presence
from nebula.sync.jobs import JobHandle
from nebula.sync.messages import LastValue, Subscription

if TYPE_CHECKING:
    from nebula.avro import Schema
    from nebula.rpc.client.cache import Cache

__all__ = ["Client"]

T = TypeVar("T")


class Client(Calls):
    """Calls verbs of services, over a connection that reconnects. See `nebula.rpc.client.client.Client`.

    A context manager: entering it connects, leaving it disconnects. It may be used from several threads.

    Args:
        url: of the broker, or of several that share their queues.
        timeout: seconds that a call waits unless it says otherwise.
        client_id: names the session that durable subscriptions belong to.
        reply_to: a queue for replies, shared with other requesters.
        tls: for `stomps://` and `wss://`: trusted CAs, and our own certificate.
        connect_timeout: seconds that one attempt to connect may take.
        wait: entering waits for a broker without limit.
        reconnect: False: every call fails once the connection has ended.
        on_state: called with each change of the connection's state, on the loop's thread: it must not call
            the client.
        retry: for all calls that have none of their own.
        breaker: stops calling services that fail again and again, for a while; by default none.
        middleware: around each call, on the client's own loop; see `CallMiddleware`.
        cache: keeps replies, for this client alone; by default each call asks.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        timeout: float = 30.0,
        client_id: str | None = None,
        reply_to: str | None = None,
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
        client = AsyncClient(
            url,
            timeout=timeout,
            client_id=client_id,
            reply_to=reply_to,
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
        super().__init__(client)

    # The thread lives from here to `__exit__`: a client that is made and never entered costs nothing.
    def __enter__(self) -> Self:
        self._loop.begin(self._client)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.end(kind, error, trace)

    @property
    def state(self) -> ConnectionState:
        """The state of the connection."""
        # Read without crossing threads: it is one attribute, and may be outdated in either thread.
        return self._client.state

    def job(self, job: str) -> JobHandle[Any]:
        """The handle of a job that was started before, by its id `<service>/<ulid>`."""
        return JobHandle(self._client.job(job), self._loop)

    def services(self, service: str | None = None, *, timeout: float | None = None) -> list[Instance]:
        """The instances of services that are running now."""
        return self._loop.do(partial(self._client.services, service, timeout=timeout))

    def watch_services(
        self, service: str | None = None, *, timeout: float | None = None
    ) -> AbstractContextManager[Presence]:
        """Follow which instances are there during a block, from its beginning."""
        return self._watching(self._client.watch_services(service, timeout=timeout))

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
        self._loop.do(partial(send, destination, body))

    def send_avro(
        self, destination: str, value: Any, schema: Schema, *, headers: Mapping[str, str] | None = None
    ) -> None:
        """Publish a value as Avro, in an envelope that names its schema."""
        self._loop.do(partial(self._client.send_avro, destination, value, schema, headers=headers))

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
        # Made on this thread, which is safe because an async block does its work only when the loop enters
        # it.
        return self._subscribed(self._client.subscribe(destination, as_=as_, **options))

    def value(self, destination: str, *, as_: type[T], schema: Schema | None = None) -> LastValue[T]:
        """One last value, `X/…`, read and written as a type."""
        return LastValue(self._client.value(destination, as_=as_, schema=schema), self._loop)

    def values(self, pattern: str, *, as_: type[T]) -> dict[str, T]:
        """The current last values of all destinations that match a glob, read as a type."""
        return self._loop.do(partial(self._client.values, pattern, as_=as_))

    @contextmanager
    def _watching(self, opening: AbstractAsyncContextManager[AsyncPresence]) -> Generator[Presence]:
        with self._loop.entered(opening) as presence:
            yield Presence(presence, self._loop)

    @contextmanager
    def _subscribed(
        self, opening: AbstractAsyncContextManager[AsyncSubscription | Values[Any]]
    ) -> Generator[Subscription[Any]]:
        # The portal enters and leaves the block in one task, which scopes need.
        with self._loop.entered(opening) as subscription:
            yield Subscription(subscription, self._loop)
