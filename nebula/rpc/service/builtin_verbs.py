"""Built-in verbs of every service: `ping`, `describe` and `stats`."""

from __future__ import annotations

import platform
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from nebula.compiled import build_name
from nebula.destinations import queue_named
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.verbs import Endpoint, Verb, VerbOptions, is_open_to
from nebula.rpc.service.declaration import ServiceDeclaration
from nebula.rpc.service.serving import Serving
from nebula.rpc.service.statistics import ProcessView
from nebula.shown import row_of
from nebula.version import __version__

__all__ = ["BuiltinVerbs", "announced_at"]


def announced_at(one: Endpoint, destinations: Sequence[str]) -> str:
    """The one of a service's queues where callers should ask for a verb.

    Raises:
        ValueError: it names another queue.
    """
    # The first queue is the service's address, where callers that know only its name send requests.
    if one.queue is None:
        return destinations[0]
    destination = queue_named(one.queue)
    if destination not in destinations:
        raise ValueError(f"verb {one.name!r}: queue {one.queue!r} is not among {tuple(destinations)}")
    return destination


class BuiltinVerbs:
    """The built-in verbs of one service.

    Args:
        declared: the service; verbs and `on` functions may be added to it later.
        serving: gives the current run.
        failing: runs the hooks of the service's health, and returns the names of those that say no.
    """

    def __init__(
        self,
        declared: ServiceDeclaration,
        serving: Callable[[], Serving],
        failing: Callable[[], Awaitable[list[str]]],
    ) -> None:
        self._declared, self._serving, self._failing = declared, serving, failing

    def verbs(self) -> list[Verb]:
        """The verbs, to be declared."""
        # Ordinary verbs, so that the same code counts, limits and describes them.
        functions = (self._ping, self._describe, self._stats)
        return [
            Verb(function, VerbOptions(name=function.__name__.removeprefix("_"))) for function in functions
        ]

    async def _ping(self) -> None:
        """Reply `success`: the service is there."""

    async def _describe(self, request: Request) -> dict[str, Any]:
        """List the verbs with description, queue, and JSON Schema of parameters and result.

        A verb that its caller may not call has `allowed`: false.
        """
        declared = self._declared
        # Of the run and not of the declaration, because the run also has the verbs that manage jobs.
        entries = sorted(self._serving().entries.values(), key=lambda one: one.name)
        verbs = [
            {
                **one.describe(),
                "queue": announced_at(one, declared.destinations),
                **({} if is_open_to(one.allow, request.principal) else {"allowed": False}),
            }
            for one in entries
        ]
        listens = [one.describe() for one in declared.subscribers]
        return {
            "service": declared.name,
            **({"version": declared.version} if declared.version else {}),
            "queues": list(declared.destinations),
            "idempotency": str(declared.replays.reach),
            "verbs": verbs,
            **({"listens": listens} if listens else {}),
        }

    async def _stats(self, *, health: bool = False) -> dict[str, Any]:
        """Count requests, errors and seconds by verb since the start, and what is waiting now.

        With `health`, also run the hooks of the service's health.
        """
        # Only on request, because statistics are asked for every few seconds, and a hook may ask a database.
        failing = await self._failing() if health else None
        serving = self._serving()
        told = serving.statistics().to_json()
        if self._declared.subscribers:
            told["listens"] = serving.messages.to_json()
        process = ProcessView(__version__, platform.python_version(), build_name(), time.time(), failing)
        return {
            "service": self._declared.name,
            "instance": serving.instance,
            "process": row_of(process),
            **told,
        }
