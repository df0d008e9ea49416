"""`nebula describe`: a service's contract, shown once, or again as its instances change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group, RenderableType

from nebula.cli.instances import differences
from nebula.cli.layout import Words
from nebula.cli.live import screen
from nebula.cli.render import Output
from nebula.cli.signatures import call_line, curl_line, parameters_of, signature_of
from nebula.cli.tables import Column, table
from nebula.cli.terminal import json_text, text
from nebula.errors import CallTimeout, NoResponder, Refused, RemoteError
from nebula.nearest import did_you_mean
from nebula.rpc.contract.verbs import is_reserved
from nebula.rpc.wire.json_types import DEPRECATED_BECAUSE
from nebula.rpc.wire.replies import reading

if TYPE_CHECKING:
    from nebula.rpc.client.client import Client
    from nebula.rpc.discovery import Instance, Presence

_PARAMETERS: Final = (
    Column("parameter", "name"),
    Column("type", "type"),
    Column("default", "default"),
    Column("", "note"),
)
_ERRORS: Final = (Column("error", "code"), Column("", "description"))
_LISTENS: Final = (
    Column("listens to", "destination"),
    Column("by", "handler"),
    Column("description", "description"),
)

_INDENT: Final = 4

# Where the documentation has a broker's HTTP listener: a client cannot know.
_HTTP: Final = "http://127.0.0.1:61680"


@dataclass(frozen=True, slots=True)
class Described:
    """The options of `nebula describe`.

    Attributes:
        service: its name.
        verb: the only one that is described; None: all of them.
        has_own: on a terminal, also the verbs that every service has.
        instance: the one that is asked; None: whichever comes first.
        seconds: that an answer may take.
        output: of the command.
    """

    service: str
    verb: str | None
    instance: str | None
    seconds: float
    output: Output
    has_own: bool = False

    async def show(self, client: Client) -> None:
        """Show it once."""
        answer, note = await self._ask(client), ""
        # Only for people: programs compare `schemas` of `nebula services`.
        if self.output.is_for_people and self.instance is None:
            try:
                note = differences(await client.services(self.service, timeout=self.seconds))
            # The caller may lack the right to see instances.
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
                    # During a change of versions there may be no instance for a moment.
                    except (CallTimeout, NoResponder):
                        answer = None
                    show(self._view(answer, "" if self.instance else differences(instances)))

    async def _ask(self, client: Client) -> Any:
        target = self.service if self.instance is None else f"{self.service}.{self.instance}"
        return await client.call(target, "describe", timeout=self.seconds)

    def _draw(self, shown: tuple[Any, str]) -> RenderableType:
        with reading(f"what {self.service} answers to describe"):
            return draw(shown, verb=self.verb, has_own=self.has_own)

    def _view(self, answer: Any, note: str) -> Any:
        """What is shown: programs get the reply alone, or its part about the verb."""
        if self.output.is_for_people:
            return answer, note
        # Without the note: programs find `differs` in `nebula services`.
        if self.verb is None or answer is None:
            return answer
        with reading(f"what {self.service} answers to describe"):
            return verb_named(answer, self.verb)


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
        # This stream never ends, so there is no StopAsyncIteration to handle.
        await anext(changes)


def draw(shown: tuple[Any, str], *, verb: str | None, has_own: bool) -> RenderableType:
    """The verbs of a service and what it listens to, or one verb in full; then the note, if any.

    Args:
        shown: the answer to `describe`, or None; and the note.
        verb: the only one; None: all.
        has_own: with the verbs that every service has.

    Raises:
        RemoteError: there is no such verb.
    """
    answer, note = shown
    if answer is None:
        return text("no reply")
    parts = list(_all(answer, has_own=has_own) if verb is None else _one(answer, verb_named(answer, verb)))
    return Group(*parts, Words(text(note))) if note else Group(*parts)


def verb_named(answer: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The description of one verb.

    Raises:
        RemoteError: it has none of that name; the text has the nearest one.
    """
    verbs: dict[str, Mapping[str, Any]] = {str(one["verb"]): one for one in answer["verbs"]}
    if name not in verbs:
        near = did_you_mean(name, verbs)
        raise RemoteError("unknown-verb", f"{answer['service']} has no verb {name!r}{near}")
    return verbs[name]


def _all(answer: Mapping[str, Any], *, has_own: bool) -> Iterator[RenderableType]:
    verbs = [verb for verb in answer["verbs"] if has_own or not is_reserved(str(verb["verb"]))]
    for verb in verbs:
        yield _head(verb)
        for line in _about(verb):
            yield Words(text(line, keep=""), _INDENT)
    if not verbs:
        yield text("no verbs")
    if hidden := len(answer["verbs"]) - len(verbs):
        yield text("")
        yield text(f"and {hidden} that every such service has: --all", "dim")
    if listens := [{**one, "description": _first_line(one)} for one in answer.get("listens", ())]:
        yield text("")
        yield table(_LISTENS, listens)


def _head(verb: Mapping[str, Any]) -> Words:
    """The signature, and what a caller has to know before all else."""
    marks = [name for name in ("job", "stream", "idempotent", "deprecated") if verb.get(name)]
    if verb.get("allowed") is False:
        marks.append("not allowed")
    return Words(text(signature_of(verb), "bold") + text("".join(f"  [{mark}]" for mark in marks), "cyan"))


def _about(verb: Mapping[str, Any]) -> Iterator[str]:
    if verb.get("deprecated"):
        yield f"deprecated: {verb.get(DEPRECATED_BECAUSE)}"
    elif line := _first_line(verb):
        yield line
    if errors := [str(one["code"]) for one in verb.get("errors", ())]:
        yield f"errors: {', '.join(errors)}"


def _one(answer: Mapping[str, Any], verb: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield _head(verb)
    if verb.get("deprecated"):
        yield Words(text(f"deprecated: {verb.get(DEPRECATED_BECAUSE)}"))
    if described := str(verb["description"]).strip():
        yield Words(text(f"\n{described}"))
    if parameters := parameters_of(verb):
        rows = [
            {"name": one.name, "type": one.type, "default": one.default, "note": one.note}
            for one in parameters
        ]
        yield text("")
        yield table(_PARAMETERS, rows)
    if errors := verb.get("errors", ()):
        yield text("")
        yield table(_ERRORS, errors)
    schemas = {part: verb[part] for part in ("parameters", "result", "item") if part in verb}
    yield text("\nschema", "bold")
    yield json_text(schemas)
    service = str(answer["service"])
    yield text("\ncall it", "bold")
    # `Words` breaks no word, so that the line can be copied, see docs/decisions/0050.
    yield Words(text(call_line(service, verb), keep=""))
    yield text("\nover HTTP, if the broker runs with --http 61680 --http-calls", "bold")
    yield Words(text(curl_line(service, verb, _HTTP), keep=""))


def _first_line(described: Mapping[str, Any]) -> str:
    return next(iter(described["description"].splitlines()), "")
