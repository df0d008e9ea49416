"""Messages that are no calls, read as values: Avro in envelopes, or JSON."""

# A message that cannot be read must not end the loop over a subscription: one publisher with a bug would
# stop every reader. So the error is kept with the message, and raised where its value is used. Only an
# error that is not about this message (the broker could not be asked for a schema) ends the loop.
#
# Schemas are named by fingerprint and never change, so they are kept for as long as the client. The
# fingerprint of what the broker sends is computed again: a wrong schema would decode wrong values without
# an error.

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from nebula.errors import AvroError, NebulaError, NoResponder, RemoteError
from nebula.headers import BROKER_QUEUE
from nebula.rpc.errors import UnexpectedReply
from nebula.rpc.wire.envelope import media_of
from nebula.rpc.wire.replies import reading
from nebula.stomp.client import Message, Subscription

if TYPE_CHECKING:
    from nebula.avro import Schema

__all__ = ["Received", "Schemas", "Values", "avro_body", "plain_value", "received", "subscribed"]

T = TypeVar("T")

_CONTENT_TYPE: Final = "content-type"


class Received(Generic[T]):
    """A message and its value.

    Attributes:
        message: as it came: its destination and headers, `ack` and `nack`.
    """

    __slots__ = ("_error", "_value", "message")

    def __init__(self, message: Message, value: T | None, error: NebulaError | None = None) -> None:
        self.message = message
        self._value, self._error = value, error

    @property
    def value(self) -> T | None:
        """The value; None for a deletion: an empty message or an envelope with the tombstone.

        Raises:
            AvroError: the body is not readable Avro, or its schema is unknown.
            UnexpectedReply: it is not of the type that was asked for.
        """
        if self._error is not None:
            raise self._error
        return self._value

    def __repr__(self) -> str:
        return f"Received({self.message!r})"


class Schemas:
    """The schemas that messages were written with, asked of the broker where they are not known yet.

    Args:
        call: calls a verb of a queue by name, with parameters: `Client.call_queue`.
    """

    def __init__(self, call: Callable[[str, str, Any], Awaitable[Any]]) -> None:
        self._call = call
        # No more than the broker itself knows.
        self._known: dict[int, Schema] = {}

    async def get(self, fingerprint: int) -> Schema:
        """The schema of this fingerprint.

        Raises:
            AvroError: the broker does not know it, or knows no schemas.
            UnexpectedReply: the reply of the broker cannot be read.
            ConnectionLost, ServerError, CallTimeout: it could not be asked.
        """
        from nebula.avro import Schema

        schema = self._known.get(fingerprint)
        if schema is not None:
            return schema
        try:
            found = await self._call(BROKER_QUEUE, "schema.get", {"fingerprint": f"{fingerprint:016x}"})
        except (RemoteError, NoResponder) as error:
            raise AvroError(f"the schema {fingerprint:016x} is not known to the broker: {error}") from error
        with reading(f"the broker's answer about the schema {fingerprint:016x}"):
            definition = found["definition"]
        schema = Schema(definition)
        if schema.fingerprint != fingerprint:
            raise AvroError(f"the broker gave another schema than {fingerprint:016x}")
        self._known[fingerprint] = schema
        return schema


class Values(AsyncIterator[Received[T]], Generic[T]):
    """A subscription whose messages are read as a type: `async for received in values`.

    A message that cannot be read is returned like any other; its `value` raises.

    Attributes:
        subscription: for `pause` and `remove`.
    """

    def __init__(self, subscription: Subscription, read: Callable[[Any], T], schemas: Schemas) -> None:
        self.subscription = subscription
        self._read, self._schemas = read, schemas

    async def __anext__(self) -> Received[T]:
        return await received(await anext(self.subscription), self._read, self._schemas)

    async def snapshot(self) -> AsyncGenerator[Received[T]]:
        """The messages that are there at first, see `Subscription.snapshot`."""
        async for message in self.subscription.snapshot():
            yield await received(message, self._read, self._schemas)


async def received(message: Message, read: Callable[[Any], T], schemas: Schemas) -> Received[T]:
    """A message with its value, or with the error that its value is.

    Args:
        message: as it came.
        read: makes the type that was asked for of what JSON or Avro gave.
        schemas: for what is in Avro.

    Raises:
        NebulaError: a schema could not be asked for.
    """
    try:
        plain = await plain_value(message, schemas)
        return Received(message, None if plain is None else read(plain))
    except ValidationError as error:
        # Place and reason only: the value may be secret.
        first = error.errors(include_url=False, include_input=False)[0]
        place = "".join(f" at {one}" for one in first["loc"])
        why = f"a message to {message.destination} is not what was asked for{place}: {first['msg']}"
        return Received(message, None, UnexpectedReply(why))
    except (AvroError, UnexpectedReply) as error:
        return Received(message, None, error)


async def plain_value(message: Message, schemas: Schemas) -> Any:
    """What a message says as JSON or Avro has it; None for a deletion.

    Raises:
        AvroError: it is not readable Avro, or its schema is unknown.
        UnexpectedReply: it is no JSON.
        NebulaError: a schema could not be asked for.
    """
    if not message.body:
        return None
    if media_of(message.headers.get(_CONTENT_TYPE)).is_json:
        try:
            return from_json(message.body)
        except ValueError as error:
            raise UnexpectedReply(f"a message to {message.destination} is no JSON: {error}") from None
    # D.41: publishers may call Avro what they like, or nothing.
    return await _from_envelope(message.body, schemas)


async def _from_envelope(body: bytes, schemas: Schemas) -> Any:
    from nebula.avro import decode_envelope

    envelope = decode_envelope(body)
    if envelope.is_tombstone:
        return None
    fingerprint, datum = envelope.fingerprint, envelope.body
    if fingerprint is None or datum is None:
        raise AvroError("the envelope has no fingerprint or no body")
    return (await schemas.get(fingerprint)).decode(datum)


@asynccontextmanager
async def subscribed(
    opening: AbstractAsyncContextManager[Subscription], read: Callable[[Any], T], schemas: Schemas
) -> AsyncGenerator[Values[T]]:
    """Open a subscription for the block, and read what comes by it."""
    async with opening as subscription:
        yield Values(subscription, read, schemas)


def avro_body(destination: str, value: Any, schema: Schema) -> tuple[bytes, dict[str, str]]:
    """A value in its envelope, with the headers that say so; None is a tombstone.

    Raises:
        AvroError: it is not a value of `schema`.
    """
    from nebula import avro

    headers = {_CONTENT_TYPE: avro.CONTENT_TYPE}
    if value is None:
        return avro.tombstone(topic=destination), headers
    plain = value.model_dump() if isinstance(value, BaseModel) else value
    return avro.encode(plain, schema, topic=destination), headers
