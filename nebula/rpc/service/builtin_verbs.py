"""Built-in verbs of every service: `ping`, `describe` and `stats`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nebula.destinations import queue_named
from nebula.rpc.contract.verbs import Endpoint, Verb, VerbOptions
from nebula.rpc.idempotency.replays import Replays
from nebula.rpc.service.serving import Serving
from nebula.rpc.service.subscribers import Subscriber

__all__ = ["BuiltinVerbs", "announced_at"]


def announced_at(one: Endpoint, destinations: Sequence[str]) -> str:
    """The one of a service's queues where callers should ask for a verb.

    Raises:
        ValueError: it names another queue.
    """
    if one.queue is None:
        return destinations[0]
    destination = queue_named(one.queue)
    if destination not in destinations:
        raise ValueError(f"verb {one.name!r}: queue {one.queue!r} is not among {tuple(destinations)}")
    return destination


class BuiltinVerbs:
    """The built-in verbs of one service.

    Args:
        name: of the service.
        version: of the service.
        destinations: its queues.
        replays: its idempotency keys.
        subscribers: its `on` functions; they may be added to later.
        serving: gives the current run.
    """

    def __init__(
        self,
        name: str,
        version: str,
        destinations: Sequence[str],
        replays: Replays,
        subscribers: Sequence[Subscriber],
        serving: Callable[[], Serving],
    ) -> None:
        self._name, self._version, self._destinations = name, version, destinations
        self._replays, self._subscribers, self._serving = replays, subscribers, serving

    def verbs(self) -> list[Verb]:
        """The verbs, to be declared."""
        functions = (self._ping, self._describe, self._stats)
        return [
            Verb(function, VerbOptions(name=function.__name__.removeprefix("_"))) for function in functions
        ]

    async def _ping(self) -> None:
        """Answer `success`: the service is there."""

    async def _describe(self) -> dict[str, Any]:
        """List the verbs with description, queue, and JSON Schema of parameters and result."""
        entries = sorted(self._serving().entries.values(), key=lambda one: one.name)
        verbs = [{**one.describe(), "queue": announced_at(one, self._destinations)} for one in entries]
        return {
            "service": self._name,
            **({"version": self._version} if self._version else {}),
            "queues": list(self._destinations),
            "idempotency": str(self._replays.reach),
            "verbs": verbs,
            **({"listens": [one.describe() for one in self._subscribers]} if self._subscribers else {}),
        }

    async def _stats(self) -> dict[str, Any]:
        """Count requests, errors and seconds by verb since the start, and what is waiting now."""
        serving = self._serving()
        told = serving.statistics().to_json()
        if self._subscribers:
            told["listens"] = serving.messages.to_json()
        return {"service": self._name, "instance": serving.instance, **told}
