"""The intruder: has a certificate that the broker trusts, and tries what it may not."""

from __future__ import annotations

from nebula.errors import Rejected
from nebula.headers import ACCEPTED
from nebula.stomp.client import StompClient
from services.venue.bodies import AVRO

# Says that it is an envelope of two items, and ends after the first.
BROKEN_BODY = b"\x04\x02\x02\x41"


async def publish(client: StompClient, destination: str, body: bytes) -> str:
    """Try it; returns the broker's verdict."""
    try:
        await client.send(destination, body, AVRO, receipt=True)
    except Rejected as rejected:
        return rejected.verdict
    return ACCEPTED
