"""One question to a broker, from a command that is not async itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from nebula.rpc.client import Client

T = TypeVar("T")


def ask(url: str | None, question: Callable[[Client], Awaitable[T]]) -> T:
    """Connect, await the question's answer, disconnect.

    Raises:
        NebulaError: as the question, or `Client` while it connects.
    """

    async def main() -> T:
        # Who waits at a prompt is told at once when the broker goes.
        async with Client(url, reconnect=False) as client:
            return await question(client)

    return anyio.run(main)
