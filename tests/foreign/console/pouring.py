"""Many messages, quicker than a client that waits for each receipt sends them."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import anyio

from nebula import Client


def pour(address: str, messages: Iterable[tuple[str, bytes]], *, per_second: float | None = None) -> None:
    """Send messages to their destinations, all at once or at a steady rate, and wait for the last one.

    Args:
        address: of the broker, with a login.
        messages: destination and body of each.
    """
    # On another thread: Playwright runs a loop on this one.
    with ThreadPoolExecutor(1) as other:
        other.submit(anyio.run, _pour, address, list(messages), per_second).result()


async def _pour(address: str, messages: list[tuple[str, bytes]], per_second: float | None) -> None:
    # Each piece is sent at its time, however late the one before it was.
    size = 50
    async with Client(address) as client:
        begin = anyio.current_time()
        for place in range(0, len(messages), size):
            if per_second is not None:
                await anyio.sleep_until(begin + place / per_second)
            for destination, body in messages[place : place + size]:
                await client.stomp.send(destination, body, {"content-type": "application/json"})
        destination, body = messages[-1]
        # What one connection sends is taken in its order: this receipt stands for all.
        await client.stomp.send(f"{destination}.end", b"{}", receipt=True)
