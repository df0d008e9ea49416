"""`nebula stats`: statistics of verbs and handlers, of one instance or of all together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group, RenderableType

from nebula.cli.instances import looks
from nebula.cli.layout import Words
from nebula.cli.live import screen
from nebula.cli.render import Output
from nebula.cli.tables import Column, columns, table
from nebula.cli.terminal import text
from nebula.errors import NebulaError
from nebula.rpc.errors import UnexpectedReply
from nebula.rpc.service.statistics import HandlerStatistics, VerbStatistics, merged, without_buckets

if TYPE_CHECKING:
    from nebula.rpc.client.client import Client

_VERBS: Final = (
    Column("verb", "verb"),
    *columns(VerbStatistics, "requests", "errors", "mean_seconds", "p50_seconds", "p99_seconds"),
    *columns(VerbStatistics, "longest_seconds"),
)
_LISTENS: Final = (
    *columns(HandlerStatistics, "destination", "handler", "messages"),
    *columns(VerbStatistics, "errors"),
    *columns(HandlerStatistics, "unreadable", "given_up", "waiting"),
    *columns(VerbStatistics, "p50_seconds", "p99_seconds"),
)
_INSTANCE: Final = Column("instance", "instance")


async def show_stats(
    client: Client, output: Output, service: str, seconds: float, every: float | None, *, by_instance: bool
) -> bool:
    """Show what the verbs of a service did; whether any instance told it, the last time.

    Args:
        client: connected.
        output: of the command.
        service: its name.
        seconds: that the instances may take.
        every: seconds between two looks; None: one is enough.
        by_instance: people see each instance apart; JSON has both anyway.
    """

    def draw(shown: Mapping[str, Any]) -> RenderableType:
        return draw_stats(shown, by_instance=by_instance)

    is_told = False
    with screen(output, draw, is_live=every is not None) as show:
        async for shown in looks(lambda: _look(client, service, seconds), every, _whole(service, {}, {}, ())):
            show(shown)
            is_told = bool(shown["by_instance"])
    return is_told


async def _look(client: Client, service: str, seconds: float) -> dict[str, Any]:
    found = await client.call_all(service, "stats", timeout=seconds)
    told: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for one in found.answers:
        try:
            # Checked one by one, so that an instance of another version does not hide the others.
            told[one.instance.name] = _checked(service, one.value)
        except NebulaError as error:
            failed[one.instance.name] = str(error)
    if not found.answers and not found.missing:
        # An instance that does not register is asked by the service's queue: any of them replies.
        told = {"": _checked(service, await client.call(service, "stats", timeout=seconds))}
    return _whole(service, told, failed, (one.name for one in found.missing))


def _checked(service: str, reply: Any) -> dict[str, Any]:
    """One instance's answer with everything in it that is shown. Raises UnexpectedReply if it is none."""
    try:
        known = merged([reply])
    except UnexpectedReply as error:
        raise UnexpectedReply(f"{service}: {error}") from error
    del known["instances"]
    # Fields that only a newer service knows stay in the JSON.
    return {**reply, **known}


def _whole(
    service: str, told: Mapping[str, Any], failed: Mapping[str, str], missing: Iterable[str]
) -> dict[str, Any]:
    return {
        "service": service,
        # Merged from buckets, because quantiles cannot be merged.
        **without_buckets(merged(told.values())),
        "by_instance": {name: without_buckets(told[name]) for name in sorted(told)},
        "failed": dict(sorted(failed.items())),
        "missing": sorted(missing),
    }


def draw_stats(shown: Mapping[str, Any], *, by_instance: bool) -> RenderableType:
    """A table of the verbs, and one of what is listened to if there is anything."""
    replies = shown["by_instance"] if by_instance else {"": shown}
    verbs = [
        {"instance": name, "verb": verb, **told}
        for name, reply in replies.items()
        for verb, told in reply["verbs"].items()
    ]
    listens = [
        {"instance": name, **told} for name, reply in replies.items() for told in reply.get("listens", ())
    ]
    first = (_INSTANCE,) if by_instance else ()
    parts: list[RenderableType] = [
        Words(text(_title(shown), "italic", keep="")),
        table((*first, *_VERBS), verbs),
    ]
    return Group(*parts, text(""), table((*first, *_LISTENS), listens)) if listens else Group(*parts)


def _title(shown: Mapping[str, Any]) -> str:
    count = shown["instances"]
    parts = [f"{shown['service']}: {count} instance{'' if count == 1 else 's'}"]
    if shown["missing"]:
        parts.append(f"no answer: {', '.join(shown['missing'])}")
    parts += [f"{name}: {why}" for name, why in shown["failed"].items()]
    return "; ".join(parts)
