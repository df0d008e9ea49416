"""Those who ask the venue's service: several requesters, one reply queue.

Each takes its own answers from `/queue/venue-out` and leaves the others' to their owners, which only works
because each message is acked by itself.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import anyio

from nebula import Client, RemoteError
from services.venue.app import meters

_REPLY_QUEUE = "venue-out"
_TIMEOUT_SECONDS = 10.0


async def ask_at_once(url: str, gmids: Sequence[str], *, guests: int) -> list[str]:
    """Have several guests ask for the meters of all machines, all at the same time.

    Args:
        url: of the broker.
        gmids: machines that have published a reading.
        guests: how many.

    Returns:
        A sentence for each answer that went to the wrong guest.
    """
    breaches: list[str] = []

    async def ask(name: str) -> None:
        async with Client(url, reply_to=_REPLY_QUEUE, timeout=_TIMEOUT_SECONDS) as client:
            # Each in an order of its own, so that answers for different guests lie side by side.
            for gmid in random.sample(gmids, len(gmids)):
                answer = await client.call(meters, gmid)
                if answer.gmid != gmid:
                    breaches.append(f"{name} asked for {gmid} and got {answer.gmid}")

    async with anyio.create_task_group() as tasks:
        for number in range(guests):
            tasks.start_soon(ask, f"guest {number + 1}")
    return breaches


async def error_code(guest: Client, verb: str, parameters: Any) -> str:
    """Ask what cannot be answered; returns the code of the error, or `success`."""
    try:
        await guest.call("venue", verb, parameters)
    except RemoteError as error:
        return error.code
    return "success"
