"""The caller's side: requests out, answers in."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from nebula.headers import NO_REPLY, PERSISTENT
from nebula.rpc.brokers import whole_milliseconds
from nebula.rpc.caller import Caller
from nebula.rpc.context import Request
from nebula.rpc.envelope import JSON_TYPE, dump_json, encode, encode_free
from nebula.rpc.jobs.context import Job
from nebula.rpc.jobs.handle import JobHandle
from nebula.rpc.replies import read_value, reader_of
from nebula.rpc.resolving import destination_of, resolve
from nebula.rpc.start_options import StartOptions
from nebula.rpc.starting import start_job
from nebula.rpc.values import Schemas, Values, avro_body, subscribed
from nebula.rpc.verbs import Target
from nebula.stomp.client import StompClient
from nebula.stomp.client_tls import TlsOptions
from nebula.stomp.link import Link
from nebula.stomp.messages import SubscribeOptions
from nebula.stomp.subscription import Subscription

if TYPE_CHECKING:
    from nebula.avro import Schema

P = ParamSpec("P")
T = TypeVar("T")


class Client:
    """Calls verbs of services, over one connection.

    An async context manager: entering it connects and opens the inbox, leaving it disconnects. Any number
    of tasks may call at once. When the connection ends, every call in flight and every later one fails;
    there is no reconnecting here. A broker that gives no inbox is `Refused` at entering.

    A request is a function (`client.call(quote, "ABC", qty=2)`: checked and typed by its signature, sent to
    the service that declared it) or names (`client.call("prices", "quote", {"symbol": "ABC"})`).

    Args:
        url: of the broker, see `StompClient`.
        timeout: seconds that a call waits unless it, or an anyio scope around it, says otherwise; and the
            opening of the inbox, at most.
        client_id: names the session that durable subscriptions belong to, see `StompClient`.
        reply_to: a queue that answers shall come to, shared with other requesters; each takes its own.
            By default the client has an inbox of its own, which is faster.
        tls: for `stomps://` and `wss://`, see `TlsOptions`; None is what the environment says.
        link: opens what carries the octets, instead of a connection to the address.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        timeout: float = 30.0,
        client_id: str | None = None,
        reply_to: str | None = None,
        tls: TlsOptions | None = None,
        link: Callable[[], Awaitable[Link]] | None = None,
    ) -> None:
        stomp = StompClient(url, client_id=client_id, tls=tls, link=link)
        self._caller = Caller(stomp, None if reply_to is None else destination_of(reply_to), timeout)
        self._schemas = Schemas(self.call_queue)
        self._timeout: float | None = None
        self._service: str | None = None

    # --- life ---

    async def __aenter__(self) -> Self:
        await self._caller.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._caller.close(kind, error, trace)

    @property
    def stomp(self) -> StompClient:
        """The connection, for subscriptions and messages that are no calls."""
        return self._caller.stomp

    # --- views ---

    def with_options(self, *, timeout: float) -> Self:
        """The same client with another `timeout` in seconds, above all for calls by function."""
        # Connection and inbox are shared: a view costs nothing to make and nothing to forget.
        view = copy.copy(self)
        view._timeout = timeout
        return view

    def service(self, name: str) -> Self:
        """The same client, whose calls by function go to the service `name`.

        For functions with the bare `@verb` mark, which do not know their service.
        """
        view = copy.copy(self)
        view._service = name
        return view

    # --- calling ---

    @overload
    async def call(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        result: type[T],
        timeout: float | None = None,
    ) -> T: ...
    @overload
    async def call(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        result: Any = ...,
        timeout: float | None = None,
    ) -> Any: ...
    @overload
    async def call(
        self, function: Callable[Concatenate[Request, P], Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    @overload
    async def call(
        self, function: Callable[Concatenate[Request, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    @overload
    async def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def call(self, target: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Ask a service and wait for its answer.

        The request may have been handled although no answer came (`CallTimeout`, `ConnectionLost`), and a
        service may run it again if it died before it answered: calls have to bear that, or carry a key of
        their own. A cancelled call is forgotten here; what the service does goes on.

        Args:
            target: a function that a service declared, followed by its arguments; or the name of a service
                (or a destination), followed by:
            verb: its name.
            parameters: an object for keywords, a list for positions, a scalar for the single one; whatever
                pydantic can write as JSON.
            result: the type to read the answer as; by default JSON's.
            timeout: seconds; else those of `with_options`, of the anyio scopes around, or the client's.

        Returns:
            The verb's value, None for `success` with nothing to report.

        Raises:
            RemoteError: the service answered `error`.
            NoResponder: nobody listens there; nothing was stored.
            Rejected: the broker refused the request; it had no effect.
            CallTimeout: no answer in time.
            UnexpectedReply: the answer's value is not of the type asked for.
            ConnectionLost, ServerError: the connection ended first.
            TypeError: the arguments do not fit the function, or nobody knows its service.
        """
        if isinstance(target, str):
            return await self._call_named(target, *args, **kwargs)
        known, contract = resolve(target, self._service, as_job=False)
        body = _request_body(known.verb, contract.pack(args, kwargs))
        return read_value(await self._caller.ask(known.destination, body, self._timeout), contract.load)

    async def _call_named(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        result: Any = Any,
        timeout: float | None = None,
    ) -> Any:
        seconds = self._timeout if timeout is None else timeout
        answer = await self._caller.ask(destination_of(service), _request_body(verb, parameters), seconds)
        return read_value(answer, None if result is Any else reader_of(result))

    async def call_queue(
        self, queue: str, verb: str, parameters: Any = None, *, timeout: float | None = None
    ) -> Any:
        """`call` by name, to whoever listens on a queue: an instance's own, for one."""
        return await self._call_named(queue, verb, parameters, timeout=timeout)

    # --- jobs ---

    @overload
    async def start(
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
    async def start(
        self, function: Callable[Concatenate[Job, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle: ...
    @overload
    async def start(self, function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle: ...
    async def start(self, target: Any, /, *args: Any, **kwargs: Any) -> JobHandle:
        """Have a service begin a job. Returns once the job is accepted, long before it is done.

        The request is stored: if the service is away, the job begins when it comes. If no answer comes in
        time a handle is returned all the same, as the id is ours; its `status` tells whether the service
        knows the job by then.

        Args:
            target: a function that a service declared with `job`, followed by its arguments; or the name of
                a service, followed by verb and parameters, see `call`.
            timeout: seconds to wait for the early answer; it does not limit the job.
            **options: of the job, by name only: see `StartOptions`.

        Raises:
            RemoteError: the service refused: `bad-parameters`, `busy`, …; there is no job.
            Rejected: the broker refused; there is no job.
            UnexpectedReply: the verb is not a job.
            ConnectionLost, ServerError: the connection ended first; there may be a job.
        """
        if isinstance(target, str):
            return await self._start_named(target, *args, **kwargs)
        known, contract = resolve(target, self._service, as_job=True)
        return await self._start(known, contract.pack(args, kwargs), None, {})

    async def _start_named(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        timeout: float | None = None,
        **options: Unpack[StartOptions],
    ) -> JobHandle:
        target = Target(service.removeprefix("/queue/"), destination_of(service), verb)
        return await self._start(target, parameters, timeout, options)

    async def _start(
        self, target: Target, parameters: Any, timeout: float | None, options: StartOptions
    ) -> JobHandle:
        body = _request_body(target.verb, parameters)
        caller = self._caller
        return await start_job(
            self,
            caller.inbox,
            target,
            body,
            options,
            timeout=caller.seconds(self._timeout if timeout is None else timeout),
            wants_verdict=caller.stomp.is_nebula,
        )

    def job(self, job: str) -> JobHandle:
        """The handle of a job that was started before, here or elsewhere, by its id `<service>/<ulid>`.

        Raises:
            ValueError: that is no job's id.
        """
        return JobHandle(self, job)

    # --- sending without an answer ---

    @overload
    async def send(
        self, service: str, verb: str, /, parameters: Any = None, *, expires_in: float | None = None
    ) -> None: ...
    @overload
    async def send(
        self, function: Callable[Concatenate[Request, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> None: ...
    @overload
    async def send(self, function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None: ...
    async def send(self, target: Any, /, *args: Any, **kwargs: Any) -> None:
        """Put a request into a service's queue, and ask for no answer (D.50).

        When this returns the broker has it, also if nobody listens yet: it is run once a service comes,
        at least once.

        Args:
            target: as for `call`, with its arguments, or followed by verb and parameters.
            expires_in: seconds after which nobody should run it any more; by default never.

        Raises:
            Rejected: the broker refused it; it had no effect.
            CallTimeout: the broker did not confirm it in time; it may have it.
            ConnectionLost, ServerError: the connection ended first; the broker may have it.
        """
        if isinstance(target, str):
            await self._send_named(target, *args, **kwargs)
            return
        known, contract = resolve(target, self._service, as_job=False)
        await self._send_named(known.destination, known.verb, contract.pack(args, kwargs))

    async def _send_named(
        self, service: str, verb: str, /, parameters: Any = None, *, expires_in: float | None = None
    ) -> None:
        headers = {"content-type": JSON_TYPE, PERSISTENT: "true", NO_REPLY: "true"}
        if expires_in is not None:
            headers |= self._caller.inbox.brand.expiry(whole_milliseconds(expires_in))
        await self._deliver(destination_of(service), _request_body(verb, parameters), headers)

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
            destination: a topic or queue.
            body: octets as they are; a string as it is under a content type of text; all else as JSON.
            content_type: of the body.
            headers: more of them.

        Raises:
            Rejected, CallTimeout, ConnectionLost, ServerError: as for `send`.
        """
        fields = {"content-type": content_type, PERSISTENT: "true", **(headers or {})}
        await self._deliver(destination, encode_free(content_type, body), fields)

    async def send_avro(
        self, destination: str, value: Any, schema: Schema, *, headers: Mapping[str, str] | None = None
    ) -> None:
        """Publish a value as Avro, in an envelope that names its schema.

        Args:
            destination: above all a last-value one.
            value: a pydantic model or what Avro makes of the schema; None deletes, by a tombstone. An
                `AvroError` says that it is not of the schema, and then nothing was sent.
            schema: what it is written with. Readers ask the broker for it: see its verb `schema.register`.
            headers: more of them.

        Raises:
            Rejected, CallTimeout, ConnectionLost, ServerError: as for `send`.
        """
        body, own = avro_body(destination, value, schema)
        await self._deliver(destination, body, own | {PERSISTENT: "true", **(headers or {})})

    # --- receiving ---

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

        Args:
            destination: what to subscribe to; a glob where the broker knows them.
            as_: read each message as this type, from Avro or JSON: a pydantic model, `dict`, …; what comes is
                a `Received`, with the `message` and its `value`.
            **options: by name only, see `SubscribeOptions`.

        Raises:
            Refused, ConnectionLost, ServerError: as for `StompClient.subscribe`.
        """
        opening = self.stomp.subscribe(destination, **options)
        return opening if as_ is None else subscribed(opening, reader_of(as_), self._schemas)

    async def _deliver(self, destination: str, body: bytes, headers: Mapping[str, str]) -> None:
        await self._caller.deliver(destination, body, headers, self._timeout)


def _request_body(verb: str, parameters: Any) -> bytes:
    return encode(JSON_TYPE, verb, None if parameters is None else dump_json(parameters))
