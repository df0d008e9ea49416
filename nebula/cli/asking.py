"""How a command that is not async itself talks to a broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from nebula import logs
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

    return converse(main)


def converse(main: Callable[[], Awaitable[T]]) -> T:
    """Run what talks to a broker, with the log on stderr, from errors on.

    Unconfigured, it would be on stdout, among the command's JSON. What is less than an error the command says
    itself: a lost connection is what it fails with.
    """
    logs.configure(logs.Level.ERROR)
    return anyio.run(main)
