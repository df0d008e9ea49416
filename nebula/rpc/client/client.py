"""The client: one class for everything that is called, started, streamed, sent and received.

`Client` holds what differs by view (timeout, service, options). Methods that take a function or names have
their types and contracts in `signatures`. The work is done by parts that all views of a client share:

    calls         one call: deadline, retries, breaker, cache, middleware; over `connection` and its `inbox`
    start_job     starting jobs
    open_stream   opening streams
    messages      messages without a reply, subscriptions, last values
    presence      instances of services, and calls to all of them
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    ParamSpec,
    Self,
    TypeVar,
    TypeVarTuple,
    Unpack,
    overload,
)
from uuid import uuid4

from nebula.destinations import queue_named
from nebula.rpc.client.breaker import Breaker
from nebula.rpc.client.cache import Cache
from nebula.rpc.client.cache_partition import cache_partition_of
from nebula.rpc.client.calls import Calls
from nebula.rpc.client.client_options import ClientOptions
from nebula.rpc.client.connection import Connection
from nebula.rpc.client.messages import Messages
from nebula.rpc.client.open_stream import new_stream
from nebula.rpc.client.presence import call_instances, present_instances, watch_instances
from nebula.rpc.client.reconnect import ConnectionState, OnState, urls_of
from nebula.rpc.client.retry import PLAIN, CallRules
from nebula.rpc.client.signatures import TypedClient
from nebula.rpc.client.start_job import start_job
from nebula.rpc.client.typed_messages import Values
from nebula.rpc.client.values import LastValue
from nebula.rpc.contract.call_options import (
    OPTIONS,
    CallOptions,
    Options,
    require_kinds,
    require_named,
    require_options,
    start_part,
)
from nebula.rpc.contract.retry import Retry
from nebula.rpc.contract.start_options import StartOptions
from nebula.rpc.contract.typed_calls import resolve
from nebula.rpc.contract.verbs import Target
from nebula.rpc.discovery.instances import Instance
from nebula.rpc.discovery.presence import Presence
from nebula.rpc.discovery.scatter import Scatter
from nebula.rpc.jobs.handle import JobHandle
from nebula.rpc.middleware.chain import CallMiddleware
from nebula.rpc.streams.reading import DEFAULT_CREDIT, Stream
from nebula.rpc.wire.envelope import JSON_TYPE, request_body
from nebula.rpc.wire.replies import reader_of
from nebula.stomp.client import StompClient
from nebula.stomp.client.link import Link
from nebula.stomp.client.messages import SubscribeOptions
from nebula.stomp.client.subscription import Subscription
from nebula.stomp.client.tls import TlsOptions

if TYPE_CHECKING:
    from nebula.avro import Schema

__all__ = ["Client"]

P = ParamSpec("P")
Ts = TypeVarTuple("Ts")
T = TypeVar("T")

# Options of each method, in calls by name.
_CALL: Final = frozenset({"timeout", "result", *CallOptions.__annotations__})
_CALL_ALL: Final = frozenset({"timeout", "result"})
_START: Final = frozenset({"timeout", *StartOptions.__annotations__})
_STREAM: Final = frozenset({"timeout", "result", "credit"})
_SEND: Final = frozenset({"expires_in"})


class Client(TypedClient):
    """Calls verbs of services, over a connection that reconnects.

    An async context manager: entering it connects and opens the inbox, leaving it disconnects. Any number of
    tasks may call at once. A client can be entered only once.

    When the connection ends the client connects again, without limit, to the addresses in turn and with
    delays that grow to 5 s. Calls in flight fail with `ConnectionLost` (`ServerError` if the broker gave a
    reason), except those that may run twice: the verb is declared `idempotent`, or they have an
    `idempotency_key`. Those are sent again over the next connection, up to three times. Calls made meanwhile
    wait for a connection, within their timeouts. Subscriptions are made again.

    A request is a function (`client.call(quote, "ABC", qty=2)`: checked and typed by its signature, sent to
    the service that declared it) or names (`client.call("prices", "quote", {"symbol": "ABC"})`).

    Args:
        url: the broker's address, see `StompClient`; or those of several brokers that share their queues,
            tried in this order.
        timeout: seconds that a call waits, unless the call or an anyio scope around it sets another limit;
            also the limit for opening the inbox.
        client_id: names the session that durable subscriptions belong to, see `StompClient`.
        reply_to: a queue for replies that is shared with other requesters; each takes its own replies. By
            default the client has an inbox of its own, which is faster.
        tls: for `stomps://` and `wss://`, see `TlsOptions`; None reads the environment.
        connect_timeout: seconds that one attempt to connect may take.
        wait: entering waits for a broker without limit, unless you put an anyio scope around it. By default
            it tries each address once, and then raises.
        reconnect: False: every call fails once the connection has ended.
        on_state: called with each change of `state`, synchronously. It must not wait; what it raises is
            logged.
        retry: as `with_options(retry=…)`, for all calls.
        breaker: stops calling services that fail again and again, for a while; by default none.
        cache: keeps replies, see `Cache`; by default each call asks.
        middleware: around each call, the first one outermost, see `CallMiddleware`.
        link: opens the byte stream, instead of a connection to the address.

    Raises:
        SettingsError: an address cannot be used, or the TLS options.
        OutsideBroker: when entered: the address is not that of the block's broker, see `TestClient`.
        ConnectFailed: when entered: no broker listens there, or it refuses the client.
        Refused: when entered: the broker refuses the inbox.
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
        link: Callable[[], Awaitable[Link]] | None = None,
    ) -> None:
        def make(url: str | None, session: str | None) -> StompClient:
            return StompClient(url, client_id=session, connect_timeout=connect_timeout, tls=tls, link=link)

        urls = urls_of(url)
        partition = ""
        if cache is not None:
            # Over a link nothing tells which broker and principal there are: a partition for this client.
            partition = cache_partition_of(urls, tls) if link is None else uuid4().hex
        options = ClientOptions(
            timeout=timeout,
            reply_to=None if reply_to is None else queue_named(reply_to),
            client_id=client_id,
            reconnects=reconnect,
            waits=wait,
            on_state=on_state,
            breaker=breaker,
            cache=cache,
            cache_partition=partition,
            middleware=tuple(middleware),
        )
        self._rules = PLAIN if retry is None else CallRules(retry)
        self._timeout: float | None = None
        self._service: str | None = None
        self._start_options: StartOptions = {}
        # Shared by all views.
        self._calls = Calls(Connection(make, urls, options))
        self._messages = Messages(self._calls, self._rules)

    # --- the connection ---

    async def __aenter__(self) -> Self:
        await self._calls.connection.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._calls.connection.close(error)

    @property
    def state(self) -> ConnectionState:
        """The state of the connection."""
        return self._calls.connection.state

    @property
    def stomp(self) -> StompClient:
        """The current connection, for frames of STOMP that the client has no method for; while there is no
        connection, the previous one. What you open on it ends with it.

        Raises:
            LocalProtocolError: the client was not entered.
        """
        return self._calls.connection.stomp

    # --- views ---

    # docs/decisions/0046: the arguments of a typed call are those of the function, so options have a place of
    # their own.
    def with_options(self, *, timeout: float | None = None, **options: Unpack[Options]) -> Self:
        """The same client with other options for its calls, mainly for calls by function:

            await client.with_options(timeout=5).call(quote, "ABC")
            await client.with_options(priority=9, dedupe="delays 3").start(delays, month=3)

        A view shares the connection of its client, and costs nothing to make.

        Args:
            timeout: seconds that a call waits; None leaves it as it is.
            **options: of calls, see `CallOptions`, and of jobs, see `StartOptions`; those left out stay as
                they are. An `idempotency_key` is for one call, and `dedupe` for one job: a service refuses
                the same key with other parameters, and returns the same job for the same `dedupe`.

        Raises:
            TypeError: an option is unknown, or of the wrong type.
            ValueError: `cache` is a number of seconds, and the client has no cache.
        """
        require_options("client.with_options(…)", options.keys(), OPTIONS)
        require_kinds("client.with_options(…)", {"timeout": timeout, **options})
        view = copy.copy(self)
        if timeout is not None:
            view._timeout = timeout
        of_starts = start_part(options)
        of_calls: Any = {name: value for name, value in options.items() if name not in of_starts}
        if of_calls:
            view._rules = self._calls.rules(self._rules, of_calls)
        view._start_options = {**self._start_options, **of_starts}
        return view

    def service(self, name: str) -> Self:
        """The same client, whose calls by function go to the service `name`.

        For functions with the bare `@verb` mark, which do not know their service.
        """
        view = copy.copy(self)
        view._service = name
        return view

    # --- calls; the methods that one calls are typed and documented in `TypedClient` ---

    async def _called(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(target, str):
            require_named("call", target, args, kwargs, _CALL)
            return await self._call_named(target, *args, **kwargs)
        known, contract = resolve(target, self._service)
        body = request_body(known.verb, contract.pack(args, kwargs), contract.avro)
        rules, promises = self._rules, known.options
        if promises.idempotent or promises.errors:
            rules = rules.promised(promises.errors, is_idempotent=promises.idempotent)
        return await self._calls.ask(known.verb, known.destination, body, self._timeout, rules, contract.load)

    # Not async itself: that saves a coroutine for each call.
    def _call_named(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        result: Any = Any,
        timeout: float | None = None,
        **options: Unpack[CallOptions],
    ) -> Awaitable[Any]:
        destination, body = queue_named(service), request_body(verb, parameters)
        seconds = self._timeout if timeout is None else timeout
        rules = self._calls.rules(self._rules, options) if options else self._rules
        read = None if result is Any else reader_of(result)
        return self._calls.ask(verb, destination, body, seconds, rules, read)

    async def call_queue(
        self, queue: str, verb: str, parameters: Any = None, *, timeout: float | None = None
    ) -> Any:
        """`call` by name, to the service that reads a queue, such as an instance's own.

        For the verbs of jobs and of the broker, which may all run twice: it is sent again when the connection
        is lost.
        """
        seconds = self._timeout if timeout is None else timeout
        rules, body = replace(self._rules, is_idempotent=True), request_body(verb, parameters)
        return await self._calls.ask(verb, queue_named(queue), body, seconds, rules, None)

    def _called_all(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Scatter[Any]:
        if isinstance(target, str):
            require_named("call_all", target, args, kwargs, _CALL_ALL)
            return self._call_all_named(target, *args, **kwargs)
        known, contract = resolve(target, self._service)
        body = request_body(known.verb, contract.pack(args, kwargs, "call_all"), contract.avro)
        rules = self._rules.promised(known.options.errors, is_idempotent=known.options.idempotent)
        return call_instances(
            self._calls, known.service, known.verb, body,
            timeout=self._timeout, rules=rules, read=contract.load,
        )  # fmt: skip

    def _call_all_named(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        result: Any = Any,
        timeout: float | None = None,
    ) -> Scatter[Any]:
        seconds = self._timeout if timeout is None else timeout
        read = None if result is Any else reader_of(result)
        body = request_body(verb, parameters)
        return call_instances(self._calls, service, verb, body, timeout=seconds, rules=self._rules, read=read)

    # --- streams ---

    def _streamed(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Stream[Any]:
        if isinstance(target, str):
            require_named("stream", target, args, kwargs, _STREAM)
            return self._stream_named(target, *args, **kwargs)
        known, contract = resolve(target, self._service)
        body = request_body(known.verb, contract.pack(args, kwargs, "stream"))
        return new_stream(
            self._calls, known.verb, known.destination, body,
            timeout=self._timeout, credit=DEFAULT_CREDIT, read=contract.load,
            errors=(*self._rules.errors, *known.options.errors),
        )  # fmt: skip

    def _stream_named(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        result: Any = Any,
        timeout: float | None = None,
        credit: int = DEFAULT_CREDIT,
    ) -> Stream[Any]:
        return new_stream(
            self._calls, verb, queue_named(service), request_body(verb, parameters),
            timeout=self._timeout if timeout is None else timeout, credit=credit,
            read=None if result is Any else reader_of(list[result]), errors=self._rules.errors,
        )  # fmt: skip

    # --- jobs ---

    async def _started(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JobHandle[Any]:
        if isinstance(target, str):
            require_named("start", target, args, kwargs, _START)
            return await self._start_named(target, *args, **kwargs)
        known, contract = resolve(target, self._service, as_job=True)
        parameters = contract.pack(args, kwargs, "start")
        started = await start_job(self._calls, known, parameters, self._timeout, self._start_options)
        return JobHandle(self, started.job, via=started.via, read=contract.load)

    async def _start_named(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        timeout: float | None = None,
        **options: Unpack[StartOptions],
    ) -> JobHandle[Any]:
        target = Target(service.removeprefix("/queue/"), queue_named(service), verb)
        seconds = self._timeout if timeout is None else timeout
        return await self._start(target, parameters, seconds, {**self._start_options, **options})

    async def start_on(
        self, queue: str, service: str, verb: str, parameters: Any, options: StartOptions
    ) -> JobHandle[Any]:
        """`start` by name, at a queue where a service or one of its instances listens.

        For verbs of jobs, such as `job.rerun`. Args and Raises as for `start`.
        """
        return await self._start(Target(service, queue, verb), parameters, self._timeout, options)

    async def _start(
        self, target: Target, parameters: Any, timeout: float | None, options: StartOptions
    ) -> JobHandle[Any]:
        started = await start_job(self._calls, target, parameters, timeout, options)
        return JobHandle(self, started.job, via=started.via)

    def job(self, job: str) -> JobHandle[Any]:
        """The handle of a job that was started before, here or elsewhere, by its id `<service>/<ulid>`.

        Raises:
            ValueError: that is no job's id.
        """
        return JobHandle(self, job)

    # --- messages ---

    async def _sent(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if isinstance(target, str):
            require_named("send", target, args, kwargs, _SEND)
            await self._send_named(target, *args, **kwargs)
            return
        known, contract = resolve(target, self._service)
        await self._send_named(known.destination, known.verb, contract.pack(args, kwargs, "send"))

    async def _send_named(
        self, service: str, verb: str, /, parameters: Any = None, *, expires_in: float | None = None
    ) -> None:
        expires_in = self._start_options.get("expires_in") if expires_in is None else expires_in
        await self._messages.send(queue_named(service), verb, parameters, self._timeout, expires_in)

    async def publish(
        self,
        destination: str,
        body: Any,
        *,
        content_type: str = JSON_TYPE,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a message that is no request, and wait until the broker has it.

        Args:
            destination: a topic, queue or last value: `/topic/news`, `/queue/orders`, `X/EGM.7.state`;
                `orders` alone is `/queue/orders`, as wherever a destination is named.
            body: bytes are sent unchanged, and so is a string if the content type is text; all else is sent
                as JSON.
            content_type: of the body.
            headers: additional ones.

        Raises:
            ValueError: the prefix of the destination is incomplete, as in `queue/orders`.
            Rejected, CallTimeout, ConnectionLost, ServerError: as for `send`.
        """
        await self._messages.publish(destination, body, content_type, headers, self._timeout)

    async def send_avro(
        self, destination: str, value: Any, schema: Schema, *, headers: Mapping[str, str] | None = None
    ) -> None:
        """Publish a value as Avro, in an envelope that names its schema.

        Args:
            destination: usually a last value.
            value: a pydantic model, or what the schema describes; None deletes, by a tombstone.
            schema: used to write the value. Readers get it from the broker, see its verb `schema.register`.
            headers: additional ones.

        Raises:
            AvroError: the value does not match the schema; nothing was sent.
            Rejected, CallTimeout, ConnectionLost, ServerError: as for `send`.
        """
        await self._messages.send_avro(destination, value, schema, headers, self._timeout)

    @overload
    def subscribe(
        self, destination: str, **options: Unpack[SubscribeOptions]
    ) -> AbstractAsyncContextManager[Subscription]: ...
    @overload
    def subscribe(
        self, destination: str, *, as_: type[T], **options: Unpack[SubscribeOptions]
    ) -> AbstractAsyncContextManager[Values[T]]: ...
    def subscribe(self, destination: str, *, as_: Any = None, **options: Unpack[SubscribeOptions]) -> Any:
        """Subscribe for the block: `async for message in subscription`, see `StompClient.subscribe`.

        The subscription outlives its connection, see `LastingSubscription`, unless the client does not
        reconnect.

        Args:
            destination: what to subscribe to; it may be a glob if the broker supports them. `orders` is
                `/queue/orders`.
            as_: read each message as this type, from Avro or JSON: a pydantic model, `dict`, …; each item is
                a `Received`, with the `message` and its `value`.
            **options: by name only, see `SubscribeOptions`.

        Raises:
            ValueError: the prefix of the destination is incomplete, or missing from a glob.
            Refused, ConnectionLost, ServerError: as for `StompClient.subscribe`.
        """
        return self._messages.subscribe(destination, as_, options)

    def value(self, destination: str, *, as_: type[T], schema: Schema | None = None) -> LastValue[T]:
        """One last value, `X/…`, read and written as a type. Nothing is sent until you use it.

        Args:
            destination: the value's own, no glob.
            as_: the type: a pydantic model, `dict`, …. Values come in JSON or Avro.
            schema: to write values in Avro with, as `send_avro` does; by default they are JSON.

        Raises:
            ValueError: it is not the destination of a single last value.
        """
        return self._messages.value(destination, as_, schema, self._timeout)

    async def values(self, pattern: str, *, as_: type[T]) -> dict[str, T]:
        """The current last values of all destinations that match a glob, read as a type.

            prices = await client.values("X/price.*", as_=Price)
            print(prices["X/price.hat"].cents)

        Values are read during the call, but not all at the same moment. To follow changes as well, use
        `subscribe(pattern, as_=…, eager=True)`.

        Args:
            pattern: the destinations, `X/…`.
            as_: the type: a pydantic model, `dict`, …. Values come in JSON or Avro.

        Returns:
            the values by destination, without deleted ones.

        Raises:
            ValueError: the pattern does not name last values.
            UnexpectedReply, AvroError: one of them is not of the type.
            Refused: reading them is not allowed, or the broker keeps no last values.
            CallTimeout, ConnectionLost, ServerError: the broker did not reply in time.
        """
        return await self._messages.values(pattern, as_, self._timeout)

    # --- instances of services ---

    async def services(self, service: str | None = None, *, timeout: float | None = None) -> list[Instance]:
        """The instances that are running now, sorted by service and name.

        Brokers without last values do not know them: there, all instances are asked, and those that reply
        within a second are returned.

        Args:
            service: return its instances only; None: those of all services that this client may call.
            timeout: seconds, at most.

        Raises:
            Refused: the broker does not show them to this client.
            ConnectionLost, ServerError: the connection ended, or there was none in time.
        """
        return await present_instances(self._calls, service, self._timeout if timeout is None else timeout)

    def watch_services(
        self, service: str | None = None, *, timeout: float | None = None
    ) -> AbstractAsyncContextManager[Presence]:
        """Follow which instances are running during a block, from its beginning:

            async with client.watch_services("prices") as presence:
                print(presence.instances)
                async for change in presence.changes():
                    print(change.instance.name, "has gone" if change.is_gone else "is there")

        It ends with its connection: `changes` then raises, and `instances` no longer changes.

        Args:
            service: return its instances only; None: those of all services that this client may call.
            timeout: seconds until the first list of instances is known.

        Raises:
            Refused, ConnectionLost, ServerError: as for `services`.
        """
        return watch_instances(self._calls, service, self._timeout if timeout is None else timeout)
