"""What a client does beside its calls: sends what wants no answer, publishes and subscribes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar, TypeVarTuple, Unpack, overload

from nebula.destinations import destination_named
from nebula.errors import NoResponder
from nebula.headers import NO_REPLY, PERSISTENT, REJECTED_NO_CONSUMER
from nebula.rpc.client.caller import Caller
from nebula.rpc.client.calling import Asking, request_body
from nebula.rpc.client.resubscribe import options_for
from nebula.rpc.client.retry import CallRules
from nebula.rpc.client.values import LastValue, read_values
from nebula.rpc.contract.context import AnyRequest
from nebula.rpc.contract.options import require_named
from nebula.rpc.contract.resolving import destination_of, resolve
from nebula.rpc.contract.unfitting import Unfitting
from nebula.rpc.middleware.chain import Call
from nebula.rpc.wire.brokers import whole_milliseconds
from nebula.rpc.wire.envelope import JSON_TYPE, encode_free
from nebula.rpc.wire.replies import reader_of
from nebula.rpc.wire.values import Schemas, Values, avro_body, subscribed
from nebula.stomp.client.messages import SubscribeOptions
from nebula.stomp.client.subscription import Subscription

if TYPE_CHECKING:
    from nebula.avro import Schema

__all__ = ["Messaging"]

P = ParamSpec("P")
Ts = TypeVarTuple("Ts")
T = TypeVar("T")


_SEND_OPTIONS: Final = frozenset({"expires_in"})


class Messaging(Asking):
    """A part of `Client`. Args: as for `Asking`."""

    def __init__(self, caller: Caller, rules: CallRules) -> None:
        super().__init__(caller, rules)
        self._schemas = Schemas(self._ask_broker)

    async def _ask_broker(self, queue: str, verb: str, parameters: Any, /) -> Any:
        await self._caller.connected()
        if not self._caller.brand.answers_verbs:
            # The request would wait there for its whole time.
            raise NoResponder(REJECTED_NO_CONSUMER, queue)
        return await self.call_queue(queue, verb, parameters)

    # --- sending without an answer ---

    @overload
    async def send(self, function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None: ...
    @overload
    async def send(
        self, function: Callable[Concatenate[AnyRequest, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> None: ...
    # For messages alone, see `Unfitting`.
    @overload
    async def send(self, function: Callable[[Unpack[Ts]], object], /, *args: *Ts) -> None: ...
    @overload
    async def send(self, function: Unfitting, /, *args: Any, **kwargs: Any) -> None: ...
    @overload
    async def send(
        self, service: str, verb: str, /, parameters: Any = None, *, expires_in: float | None = None
    ) -> None: ...
    async def send(self, target: Any, /, *args: Any, **kwargs: Any) -> None:  # type: ignore[misc]  # mypy: of no `*Ts`
        """Put a request into a service's queue, and ask for no answer (D.50).

        When this returns the broker has it, also if nobody listens yet: it is run once a service comes,
        at least once.

        Args:
            target: as for `call`, with its arguments, or followed by verb and parameters.
            expires_in: seconds after which nobody should run it any more; by default never. For a function
                it is an option of `with_options`.

        Raises:
            Rejected: the broker refused it; it had no effect.
            CallTimeout: the broker did not confirm it in time; it may have it.
            ConnectionLost, ServerError: the connection ended first; the broker may have it.
        """
        if isinstance(target, str):
            require_named("send", target, args, kwargs, _SEND_OPTIONS)
            await self._send_named(target, *args, **kwargs)
            return
        known, contract = resolve(target, self._service, as_job=False)
        await self._send_named(known.destination, known.verb, contract.pack(args, kwargs, "send"))

    async def _send_named(
        self, service: str, verb: str, /, parameters: Any = None, *, expires_in: float | None = None
    ) -> None:
        headers = {"content-type": JSON_TYPE, PERSISTENT: "true", NO_REPLY: "true"}
        expires_in = self._start_options.get("expires_in") if expires_in is None else expires_in
        if expires_in is not None:
            headers |= self._caller.brand.expiry(whole_milliseconds(expires_in))
        body = request_body(verb, parameters)

        async def work(call: Call) -> None:
            await self._caller.deliver(call.destination, body, {**call.headers, **headers}, call.timeout)

        await self._through("send", destination_of(service), verb, self._timeout, work)

    # --- messages that are no requests ---

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
            body: octets as they are; a string as it is under a content type of text; all else as JSON.
            content_type: of the body.
            headers: more of them.

        Raises:
            ValueError: the destination has half a prefix, as `queue/orders`.
            Rejected, CallTimeout, ConnectionLost, ServerError: as for `send`.
        """
        fields = {"content-type": content_type, PERSISTENT: "true", **(headers or {})}
        await self._deliver(destination_named(destination), encode_free(content_type, body), fields)

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
        destination = destination_named(destination)
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

        It outlives its connection, as `LastingSubscription` says, unless the client does not reconnect.

        Args:
            destination: what to subscribe to; a glob where the broker knows them. `orders` is
                `/queue/orders`.
            as_: read each message as this type, from Avro or JSON: a pydantic model, `dict`, …; what comes is
                a `Received`, with the `message` and its `value`.
            **options: by name only, see `SubscribeOptions`.

        Raises:
            ValueError: the destination has half a prefix, or is a glob without any.
            Refused, ConnectionLost, ServerError: as for `StompClient.subscribe`.
        """
        destination = destination_named(destination, takes_globs=True)
        caller = self._caller
        opening: AbstractAsyncContextManager[Subscription] = (
            caller.subscriptions.subscribe(destination, options)
            if caller.options.reconnects
            else self.stomp.subscribe(destination, **options_for(caller.brand, options))
        )
        return opening if as_ is None else subscribed(opening, reader_of(as_), self._schemas)

    def value(self, destination: str, *, as_: type[T], schema: Schema | None = None) -> LastValue[T]:
        """One last value, `X/…`, read and written as a type. Nothing is asked until it is used.

        Args:
            destination: the value's own, no glob.
            as_: the type: a pydantic model, `dict`, …. Values come in JSON or Avro.
            schema: to write values in Avro with, as `send_avro` does; else they are JSON.

        Raises:
            ValueError: that is no destination of a single last value.
        """
        return LastValue(self._caller, destination, as_, self._schemas, schema=schema, timeout=self._timeout)

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
            CallTimeout, ConnectionLost, ServerError: the broker did not answer in time.
        """
        return await read_values(self._caller, pattern, as_, self._schemas, timeout=self._timeout)

    async def _deliver(self, destination: str, body: bytes, headers: Mapping[str, str]) -> None:
        await self._caller.deliver(destination, body, headers, self._timeout)
