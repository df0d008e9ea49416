"""Shell completion of services, verbs, queues, jobs and sessions from the running broker.

The broker is asked as by any command, with the user's rights and for at most one second. If it does not
answer, there are no completions and no message, because the user is typing a command line.
"""

from __future__ import annotations

import io
import logging
import os
import re
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr
from typing import Any, Final, TypeAlias

import anyio

from nebula.cli.contexts import find_broker
from nebula.cli.replies import Connections, Jobs, Page, checked
from nebula.destinations import QUEUE
from nebula.environment import CommandEnvironment
from nebula.globs import escape_glob
from nebula.headers import BROKER_QUEUE, RESERVED_PREFIXES
from nebula.rpc.client.client import Client
from nebula.rpc.contract.verbs import is_reserved

__all__ = ["complete_jobs", "complete_queues", "complete_services", "complete_sessions", "complete_verbs"]

_SERVICE: Final = BROKER_QUEUE.removeprefix(QUEUE)

_SECONDS: Final = 1.0

# For operations that cannot be cancelled, such as a name server that does not answer.
_LONGEST_SECONDS: Final = 2.0

_MOST_NAMES: Final = 200
# Each service costs a request within the same second.
_MOST_SERVICES: Final = 5
_MOST_JOBS: Final = 50

# A shell inserts a completion as it is: `$(…)` would be run, and : and = end a word in bash.
_HARMLESS: Final = re.compile(r"[\w./@%+,][\w./@%+,-]*")
# The service refuses other prefixes.
_ULID_PREFIX: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{0,25}")

_Find: TypeAlias = Callable[[Client, Callable[[Iterable[str]], None]], Awaitable[None]]


def complete_services(parameters: dict[str, Any], incomplete: str) -> list[str]:
    """Running services, and the broker's own."""

    async def find(client: Client, add: Callable[[Iterable[str]], None]) -> None:
        # The broker's own service is not among the registered ones.
        add([_SERVICE])
        # Added separately: if the broker does not reply in time, the first name is still offered.
        add(one.service for one in await client.services(timeout=_SECONDS))

    return _completed(parameters, incomplete, find)


def complete_verbs(parameters: dict[str, Any], incomplete: str) -> list[str]:
    """The verbs of the preceding service; built-in ones only after their first character."""
    service = str(parameters.get("service") or "")

    async def find(client: Client, add: Callable[[Iterable[str]], None]) -> None:
        described = await client.call(service, "describe", timeout=_SECONDS)
        verbs = [str(one["verb"]) for one in described["verbs"]]
        add(verb for verb in verbs if incomplete or not is_reserved(verb))

    return _completed(parameters, incomplete, find) if service else []


def complete_queues(parameters: dict[str, Any], incomplete: str) -> list[str]:
    """Queues, by their bare names unless the word begins with a slash."""
    prefix = "" if incomplete.startswith("/") else QUEUE
    begun = prefix + incomplete
    wanted = {
        "pattern": f"{escape_glob(begun)}**",
        "limit": _MOST_NAMES,
        "internal": begun.startswith(RESERVED_PREFIXES),
    }

    async def find(client: Client, add: Callable[[Iterable[str]], None]) -> None:
        page = await _listed(client, Page, "queues.list", wanted)
        add(str(row.get("queue")).removeprefix(prefix) for row in page["rows"])

    return _completed(parameters, incomplete, find)


def complete_sessions(parameters: dict[str, Any], incomplete: str) -> list[str]:
    """Connected sessions."""
    wanted = {"pattern": f"{escape_glob(incomplete)}**", "limit": _MOST_NAMES}

    async def find(client: Client, add: Callable[[Iterable[str]], None]) -> None:
        page = await _listed(client, Connections, "connections.list", wanted)
        add(row["session"] for row in page["rows"])

    return _completed(parameters, incomplete, find)


def complete_jobs(parameters: dict[str, Any], incomplete: str) -> list[str]:
    """The latest jobs of the services that match."""
    service, slash, ulid = incomplete.rpartition("/")

    async def find(client: Client, add: Callable[[Iterable[str]], None]) -> None:
        instances = await client.services(timeout=_SECONDS)
        found = {one.service for one in instances if "job.list" in one.verbs}
        named = [one for one in sorted(found) if one == service or (not slash and one.startswith(incomplete))]
        wanted = {"limit": _MOST_JOBS} | ({"prefix": ulid} if slash and _ULID_PREFIX.fullmatch(ulid) else {})
        for one in named[:_MOST_SERVICES]:
            answer = await client.call(one, "job.list", wanted, timeout=_SECONDS)
            add(str(row["job"]) for row in checked(Jobs, answer, one, "job.list")["jobs"])

    return _completed(parameters, incomplete, find)


async def _listed(client: Client, form: Any, verb: str, wanted: dict[str, Any]) -> Any:
    return checked(form, await client.call(_SERVICE, verb, wanted, timeout=_SECONDS), _SERVICE, verb)


def _completed(parameters: dict[str, Any], incomplete: str, find: _Find) -> list[str]:
    """Matching names that were found in time. Never raises."""
    # A shell waits for this at each Tab, and shows whatever is written to the terminal. So the time is
    # bounded, nothing is said, and names that came in time count although others are missing.
    # A set that `find` fills, so that names that came before a timeout count.
    found: set[str] = set()
    try:
        with _quietly():
            anyio.run(_ask, find_broker(parameters.get("broker")), find, found.update)
    except (Exception, KeyboardInterrupt):  # noqa: S110 - any failure means no completions
        pass
    return sorted(name for name in found if name.startswith(incomplete) and _HARMLESS.fullmatch(name))


async def _ask(url: str | None, find: _Find, add: Callable[[Iterable[str]], None]) -> None:
    with anyio.move_on_after(_SECONDS):
        # The limit of one second includes connecting.
        async with Client(url, reconnect=False) as client:
            await find(client, add)


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence stderr in the block, and end a process that only completes words after a time limit."""
    if CommandEnvironment.read().completes:
        # A name lookup that hangs blocks a thread that cannot be cancelled, and Python waits for it at exit.
        # With status 0 and no output the shell offers nothing.
        end = threading.Timer(_LONGEST_SECONDS, os._exit, (0,))
        end.daemon = True
        end.start()
    # A client would log a lost connection into the line that the user is typing.
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)
