"""Publishes Avro data as fast as one connection takes them: pipelined, with a receipt now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from nebula import Client
from nebula.avro import CONTENT_TYPE, Schema, encode_envelope, make_envelope
from nebula.avro.varints import write_long
from nebula.errors import Rejected
from nebula.stomp.client import StompClient

_HEADERS = {"content-type": CONTENT_TYPE, "persistent": "true"}
# Receipts come in the order of what was sent: one stands for all before it.
_RECEIPT_EVERY = 5_000
_DRAIN_EVERY = 100
# The broker may have to write all that is before a receipt.
_PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Sent:
    """What was published.

    Attributes:
        messages: how many.
        size_bytes: of their bodies.
        seconds: from the first to the last receipt.
    """

    messages: int
    size_bytes: int
    seconds: float


async def register(broker: str, schema: Schema) -> str:
    """Tell the broker of a schema, by its verb; the result is the schema's fingerprint there."""
    async with Client(broker) as client:
        reply = await client.call("nebula.broker", "schema.register", {"definition": schema.definition})
        return str(reply["fingerprint"])


async def is_refused(broker: str, destination: str, body: bytes) -> bool:
    """Whether the broker refuses a body there, as not of the destination's type."""
    async with StompClient(broker) as client:
        try:
            await client.send(destination, body, _HEADERS, receipt=True, timeout=30)
        except Rejected:
            return True
        return False


async def publish(
    broker: str,
    destination: str,
    schema: Schema,
    data: Iterable[bytes],
    on_sent: Callable[[int], None],
) -> Sent:
    """Send each datum in an envelope, persistent; returns when the broker has told that it has them all.

    Args:
        broker: its address.
        destination: a queue.
        schema: of the data.
        data: encoded.
        on_sent: told how many the broker has by now.

    Raises:
        Rejected: the broker refused one.
        TimeoutError: it did not answer for long.
    """
    enveloped = _enveloping(schema)
    began = time.perf_counter()
    messages = size_bytes = 0
    async with StompClient(broker) as client:
        for body, is_last in _with_last(map(enveloped, data)):
            messages += 1
            size_bytes += len(body)
            if is_last or not messages % _RECEIPT_EVERY:
                await client.send(destination, body, _HEADERS, receipt=True, timeout=_PATIENCE_SECONDS)
                on_sent(messages)
            else:
                client.post(destination, body, _HEADERS)
                if not messages % _DRAIN_EVERY:
                    await client.drain()
    return Sent(messages, size_bytes, time.perf_counter() - began)


def _with_last(bodies: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Each with whether it is the last one, which has to be receipted whatever its number."""
    following = iter(bodies)
    body = next(following, None)
    while body is not None:
        next_body = next(following, None)
        yield body, next_body is None
        body = next_body


def _enveloping(schema: Schema) -> Callable[[bytes], bytes]:
    # All that stands before the datum's length is the same for each: an envelope is four additions then.
    empty = encode_envelope(make_envelope(fingerprint=schema.fingerprint, body=b""))
    head, lengths = empty.removesuffix(b"\0\0"), [write_long(size) for size in range(1024)]

    def enveloped(datum: bytes) -> bytes:
        size = len(datum)
        return b"%b%b%b\0" % (head, lengths[size] if size < 1024 else write_long(size), datum)

    return enveloped
