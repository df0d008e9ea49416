"""What a service says that it takes: shown once, or again as its instances change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group, RenderableType

from nebula.cli.instances import differences
from nebula.cli.live import screen
from nebula.cli.render import Output
from nebula.cli.tables import Column, table
from nebula.cli.terminal import text
from nebula.errors import CallTimeout, NoResponder, Refused
from nebula.rpc.replies import reading

if TYPE_CHECKING:
    from nebula.rpc.client import Client
    from nebula.rpc.discovery import Instance, Presence

_VERBS: Final = (
    Column("verb", "verb"),
    Column("parameters", "parameters"),
    Column("description", "description"),
)
_LISTENS: Final = (
    Column("listens to", "destination"),
    Column("by", "handler"),
    Column("description", "description"),
)


@dataclass(frozen=True, slots=True)
class Described:
    """What is described to whom.

    Attributes:
        service: its name.
        instance: the one that is asked; None: whichever comes first.
        seconds: that an answer may take.
        output: of the command.
    """

    service: str
    instance: str | None
    seconds: float
    output: Output

    async def show(self, client: Client) -> None:
        """Show it once."""
        answer, note = await self._ask(client), ""
        if self.output.is_for_people and self.instance is None:
            try:
                note = differences(await client.services(self.service, timeout=self.seconds))
            except Refused:  # it may be called all the same
                note = ""
        with screen(self.output, self._draw, is_live=False) as show:
            show(self._view(answer, note))

    async def watch(self, client: Client) -> None:
        """Show it again whenever it may have changed, for ever."""
        with screen(self.output, self._draw) as show:
            async with client.watch_services(self.service, timeout=self.seconds) as presence:
                async for instances in _whenever_others_are_there(presence):
                    try:
                        answer = await self._ask(client)
                    except (CallTimeout, NoResponder):
                        answer = None
                    show(self._view(answer, "" if self.instance else differences(instances)))

    async def _ask(self, client: Client) -> Any:
        target = self.service if self.instance is None else f"{self.service}.{self.instance}"
        return await client.call(target, "describe", timeout=self.seconds)

    def _draw(self, shown: tuple[Any, str]) -> RenderableType:
        with reading(f"what {self.service} answers to describe"):
            return draw(shown)

    def _view(self, answer: Any, note: str) -> Any:
        """What is shown: programs get the answer alone."""
        return (answer, note) if self.output.is_for_people else answer


async def _whenever_others_are_there(presence: Presence) -> AsyncIterator[list[Instance]]:
    """Those that are there, at once and whenever they are not the same as before."""
    known: set[tuple[str, str]] | None = None
    changes = presence.changes()
    while True:
        instances = presence.instances
        # Their load changes all the time, and says nothing of what they are.
        if (now := {(one.name, one.schemas) for one in instances}) != known:
            known = now
            yield instances
        await anext(changes)


def draw(shown: tuple[Any, str]) -> RenderableType:
    """A line for each verb, and for each destination that the service listens to; then the note, if any."""
    answer, note = shown
    if answer is None:
        return text("nobody answers")
    verbs = [summary(verb) for verb in answer["verbs"]]
    listens = [{**one, "description": _first_line(one)} for one in answer.get("listens", ())]
    parts: list[RenderableType] = [table(_VERBS, verbs) if verbs else text("no verbs")]
    if listens:
        parts += [text(""), table(_LISTENS, listens)]
    return Group(*parts, text(note)) if note else Group(*parts)


def summary(verb: Mapping[str, Any]) -> dict[str, str]:
    """A verb as a line: `symbol, qty=1` and the first line of its description.

    A deprecated verb says so in place of its description; deprecated parameters are left out.
    """
    from nebula.rpc.adapting import DEPRECATED_BECAUSE
    from nebula.rpc.signature import PARAMETER_NAME

    schema = verb["parameters"]
    words = [
        name if name in schema.get("required", ()) else f"{name}={field.get('default')}"
        for name, field in schema.get("properties", {}).items()
        if not field.get("deprecated")
    ]
    # One model or list, taken whole, has no parts to be named here.
    if whole := schema.get(PARAMETER_NAME):
        words = [f"{whole}: {schema.get('title') or str(schema.get('$ref', '')).rpartition('/')[2] or '…'}"]
    first_line = _first_line(verb)
    if verb.get("deprecated"):
        first_line = f"deprecated: {verb.get(DEPRECATED_BECAUSE)}"
    return {"verb": verb["verb"], "parameters": ", ".join(words), "description": first_line}


def _first_line(described: Mapping[str, Any]) -> str:
    return next(iter(described["description"].splitlines()), "")
