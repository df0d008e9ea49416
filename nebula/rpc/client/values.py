"""Typed access to one last value: reading, following and setting it."""

# Following one value is conflated by a trick of flow control, not by a buffer: the subscription acks each
# message when the next one is asked for (`client-individual`). While one is un-acked the broker holds back
# what comes after it, and replaces it by newer values. So a slow loop skips intermediate values, and
# neither side keeps more than one.
#
# After a reconnect an eager subscription sends the present value again. It is compared with the body that
# was given last (`_known`), so that the loop sees a change only where there is one.

from __future__ import annotations

import math
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import anyio

from nebula.destinations import destination_named
from nebula.errors import CallTimeout, ConnectionLost, ServerError
from nebula.headers import EPHEMERAL, PERSISTENT
from nebula.rpc.client.calls import Calls
from nebula.rpc.client.connection import Connection
from nebula.rpc.client.retry import CallRules, ClientClosed, persist
from nebula.rpc.client.typed_messages import Schemas, avro_body, received
from nebula.rpc.wire.brokers import is_last_value, no_last_values
from nebula.rpc.wire.envelope import JSON_TYPE
from nebula.rpc.wire.json_types import Adapter
from nebula.stomp.client import AckMode, Message, StompClient, Subscription

if TYPE_CHECKING:
    from nebula.avro import Schema

__all__ = ["LastValue", "ValueChanges", "read_values"]

T = TypeVar("T")

_GLOB: Final = frozenset("*?[")

# Reading a value twice does no harm.
_READS_ONLY: Final = CallRules(is_idempotent=True)


class LastValue(Generic[T]):
    """A destination that keeps its last message, as a value of a type: `client.value("X/…", as_=Model)`.

        meter = client.value("X/EGM.7.Meter", as_=Meter)
        await meter.put(Meter(cents=100))
        print(await meter.get())
        async for now in meter:
            print("gone" if now is None else now.cents)

    Only brokers with last values support this, such as Nebula's.

    Args:
        calls: of the client.
        destination: the value's own, no glob.
        as_: the type.
        schemas: for values that come in Avro.
        schema: to write values in Avro with; else they are JSON.
        timeout: seconds that each call may take; None: as the client says.

    Attributes:
        destination: the value's own.

    Raises:
        ValueError: it is not the destination of a single last value.
    """

    def __init__(
        self,
        calls: Calls,
        destination: str,
        as_: Any,
        schemas: Schemas,
        *,
        schema: Schema | None = None,
        timeout: float | None = None,
    ) -> None:
        if not is_last_value(destination_named(destination)):
            raise ValueError(f"{destination!r} keeps no last value: write X/NAME")
        if _GLOB & set(destination):
            raise ValueError(
                f"{destination!r} stands for several values: use client.subscribe(…, eager=True)"
            )
        self.destination = destination
        self._calls = calls
        self._adapter = Adapter(as_)
        self._schemas = schemas
        self._schema = schema
        self._timeout = timeout

    async def get(self) -> T | None:
        """The current value, or None.

        Raises:
            UnexpectedReply, AvroError: it is not of the type.
            Refused: the broker does not allow reading it, or keeps no last values.
            CallTimeout, ConnectionLost, ServerError: the broker did not reply in time.
        """
        seconds = self._calls.seconds(self._timeout)
        message = await persist(self._look, _READS_ONLY, seconds)
        return None if message is None else await self._read(message)

    async def put(self, value: T, *, ephemeral: bool = False) -> None:
        """Set it; returns when the broker has it, and every later read finds it.

        Args:
            value: of the type.
            ephemeral: it is deleted when this client's connection ends, however that happens.

        Raises:
            AvroError: it does not match the schema.
            Rejected, CallTimeout, ConnectionLost, ServerError: as for `Client.publish`.
            Refused: the broker keeps no last values.
        """
        if self._schema is None:
            body, headers = self._adapter.write(value), {"content-type": JSON_TYPE}
        else:
            body, headers = avro_body(self.destination, value, self._schema)
        await self._send(body, headers | ({EPHEMERAL: "true"} if ephemeral else {PERSISTENT: "true"}))

    async def delete(self) -> None:
        """Delete it, whether there is one or not. Raises as `put`."""
        await self._send(b"", {PERSISTENT: "true"})

    def __aiter__(self) -> ValueChanges[T]:
        """The present value at once, and then whatever it becomes; None: no value.

        What changes while the loop's body runs is conflated: the next round has the newest. After a lost
        connection it goes on with the next one; the present value is given again if it is another one. The
        loop raises as `get` does, and `ConnectionLost` when the client is left. Leaving it by `break` ends
        the subscription; `aclosing(aiter(value))` makes sure.
        """
        return ValueChanges(self)

    async def _send(self, body: bytes, headers: dict[str, str]) -> None:
        connection, seconds = self._calls.connection, self._calls.seconds(self._timeout)
        _require_last_values(await connection.connected(seconds), connection, self.destination)
        await self._calls.deliver(self.destination, body, headers, self._timeout)

    async def _look(self, seconds: float) -> Message | None:
        present = await _look(self._calls.connection, self.destination, seconds)
        return next(iter(present.values()), None)

    async def _read(self, message: Message) -> T | None:
        read: Callable[[Any], T] = self._adapter.read
        return (await received(message, read, self._schemas)).value


class ValueChanges(AsyncIterator[T | None], Generic[T]):
    """What a last value is and becomes, see `LastValue.__aiter__`. For one task at a time.

    Args:
        value: which.
    """

    def __init__(self, value: LastValue[T]) -> None:
        self._value = value
        self._connection = value._calls.connection
        self._thread = threading.get_ident()
        self._subscription: Subscription | None = None
        # What was given and is being worked on. Un-acked, it holds back what comes after it.
        self._given: Message | None = None
        # The body that was given last, empty for none; None: nothing was yet.
        self._known: bytes | None = None
        self._is_over = False

    async def __anext__(self) -> T | None:
        if self._is_over:
            raise StopAsyncIteration
        message = await self._next()
        return None if message is None else await self._value._read(message)

    async def _next(self) -> Message | None:
        while True:
            try:
                self._ack()
                if self._subscription is not None:
                    message: Message | None = await anext(self._subscription)
                    break
                message = await self._open()
                if _body_of(message) != self._known:
                    break
                self._given = message  # the same as before the loss
            except (ConnectionLost, ServerError) as error:
                is_end = isinstance(error, ClientClosed) or not self._connection.options.reconnects
                if is_end or self._known is None:
                    raise
                self._subscription = self._given = None
        self._given, self._known = message, _body_of(message)
        return message

    async def _open(self) -> Message | None:
        """Subscribe with the connection of now, or the next one: the present value."""
        value, connection = self._value, self._connection
        stomp = _require_last_values(await connection.connected(math.inf), connection, value.destination)
        if connection.options.reconnects and stomp.connection.ended.is_set():
            # Else it would have waited for the next one.
            raise ClientClosed("the client was left")
        subscription = Subscription(stomp.connection)
        await subscription.open(
            value.destination,
            {
                "eager": True,
                "ack": AckMode.CLIENT_INDIVIDUAL,
                "timeout": value._calls.seconds(value._timeout),
            },
        )
        self._subscription = subscription
        return await _present(subscription)

    def _ack(self) -> None:
        given, self._given = self._given, None
        if given is not None:
            given.ack()

    async def aclose(self) -> None:
        """Look no further. Idempotent."""
        self._close()

    def _close(self) -> None:
        self._is_over = True
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with suppress(ConnectionLost):
                subscription.close()

    def __del__(self) -> None:
        # A loop that is left drops it, there and then. The collector may come by on any thread, where it
        # must not write: one message that is not acked is all that stays, until the connection ends.
        if threading.get_ident() == self._thread:
            self._close()


async def read_values(
    calls: Calls, pattern: str, as_: Any, schemas: Schemas, *, timeout: float | None = None
) -> dict[str, Any]:
    """What `Client.values` returns, by destination. Args and Raises as there."""
    pattern = destination_named(pattern, takes_globs=True)
    if not is_last_value(pattern):
        raise ValueError(f"{pattern!r} keeps no last values: write X/NAME, where `*` stands for anything")
    adapter: Adapter = Adapter(as_)
    messages = await persist(partial(_look, calls.connection, pattern), _READS_ONLY, calls.seconds(timeout))
    found = {each: (await received(one, adapter.read, schemas)).value for each, one in messages.items()}
    # A tombstone in an envelope is no value either.
    return {destination: value for destination, value in found.items() if value is not None}


async def _look(connection: Connection, pattern: str, seconds: float) -> dict[str, Message]:
    """The present values of a destination or a glob, by destination."""
    try:
        with anyio.fail_after(seconds):
            stomp = _require_last_values(await connection.connected(seconds), connection, pattern)
            async with (
                stomp.subscribe(pattern, eager=True) as subscription,
                aclosing(subscription.snapshot()) as messages,
            ):
                found = {message.destination: message async for message in messages}
            # What was deleted meanwhile came as nothing.
            return {destination: message for destination, message in found.items() if message.body}
    except TimeoutError as error:
        raise CallTimeout(f"the broker did not send the values of {pattern} in time") from error


def _require_last_values(stomp: StompClient, connection: Connection, destination: str) -> StompClient:
    if not connection.brand.has_last_values:
        raise no_last_values(destination, stomp.server)
    return stomp


async def _present(subscription: Subscription) -> Message | None:
    """The value that there was when a subscription began, or None."""
    async with aclosing(subscription.snapshot()) as messages:
        return await anext(messages, None)


def _body_of(message: Message | None) -> bytes:
    return b"" if message is None else message.body
