"""Calls to a broker from commands that are not async."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import anyio

from nebula import logs
from nebula.errors import RemoteError
from nebula.rpc.client.client import Client

T = TypeVar("T")


def ask(url: str | None, question: Callable[[Client], Awaitable[T]]) -> T:
    """Connect, await the question's answer, disconnect.

    Raises:
        NebulaError: as the question, or `Client` while it connects.
    """

    async def main() -> T:
        # A user who waits at a prompt sees at once that the broker has gone.
        # Reconnecting is left to the user, or to the script that reads status 3.
        async with Client(url, reconnect=False) as client:
            return await question(client)

    return converse(main)


@contextmanager
def asking_for_jobs(service: str) -> Iterator[None]:
    """Around a question about jobs: a service that declares none has no verbs for them.

    Raises:
        RemoteError: replaces `unknown-verb` with a message about the command.
    """
    try:
        yield
    # Only after a failure: asking for the verbs first would cost each command a request.
    except RemoteError as error:
        if error.code != "unknown-verb":
            raise
        raise RemoteError(error.code, f"{service} has no jobs: it declares none, with @app.job") from error


def converse(main: Callable[[], Awaitable[T]]) -> T:
    """Run what talks to a broker, with the log on stderr, from errors on.

    Unconfigured, it would be on stdout, among the command's JSON. What is less than an error the command says
    itself: a lost connection is what it fails with.
    """
    logs.configure(logs.Level.ERROR)
    # On asyncio's own loop: importing uvloop takes longer than it saves for a single request. Programs that
    # stay use it (`nebula.cli.programs`).
    return anyio.run(main)
