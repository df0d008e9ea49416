"""How a command that is not async itself talks to a broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import anyio

from nebula import logs
from nebula.cli.exits import NobodyThere
from nebula.destinations import QUEUE
from nebula.errors import NebulaError, NoResponder, RemoteError
from nebula.nearest import nearest
from nebula.rpc.client import Client

T = TypeVar("T")

# The command has failed already: who knows better is waited for no longer than a person notices.
_SERVICES_SECONDS: Final = 0.5


def ask(url: str | None, question: Callable[[Client], Awaitable[T]]) -> T:
    """Connect, await the question's answer, disconnect.

    Raises:
        NobodyThere: nobody listens where was asked.
        NebulaError: as the question, or `Client` while it connects.
    """

    async def main() -> T:
        # Who waits at a prompt is told at once when the broker goes.
        async with Client(url, reconnect=False) as client:
            try:
                return await question(client)
            except NoResponder as error:
                raise NobodyThere(error, await _nearest_service(client, error.destination)) from error

    return converse(main)


@contextmanager
def asking_for_jobs(service: str) -> Iterator[None]:
    """Around a question about jobs: a service that declares none has no verbs for them.

    Raises:
        RemoteError: in place of `unknown-verb`, the same in the words of who asked.
    """
    try:
        yield
    except RemoteError as error:
        if error.code != "unknown-verb":
            raise
        raise RemoteError(error.code, f"{service} has no jobs: it declares none, with @app.job") from error


async def _nearest_service(client: Client, destination: str) -> str | None:
    """The service that a misspelt one's queue may mean, if it may be looked for."""
    try:
        instances = await client.services(timeout=_SERVICES_SECONDS)
    except NebulaError:
        return None
    return nearest(destination.removeprefix(QUEUE), {one.service for one in instances})


def converse(main: Callable[[], Awaitable[T]]) -> T:
    """Run what talks to a broker, with the log on stderr, from errors on.

    Unconfigured, it would be on stdout, among the command's JSON. What is less than an error the command says
    itself: a lost connection is what it fails with.
    """
    logs.configure(logs.Level.ERROR)
    return anyio.run(main)
