"""Reading the state store as one reads a table: what is there now, and no further."""

from __future__ import annotations

from nebula import Client
from nebula.stomp.client import AckMode


async def read_values(client: Client, pattern: str) -> dict[str, bytes]:
    """The present values of all destinations that a glob names, by destination.

    Args:
        client: connected to a Nebula broker. Other brokers do not mark the end of a snapshot.
        pattern: a destination or a glob of a last-value store.
    """
    values = {}
    async with client.subscribe(pattern, ack=AckMode.CLIENT, eager=True) as messages:
        async for message in messages.snapshot():
            message.ack()
            values[message.destination] = message.body
    # What was deleted meanwhile came as nothing.
    return {destination: body for destination, body in values.items() if body}
