"""`nebula services` and `nebula ping`: instances, shown once or drawn over as they change."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
from rich.console import Group, RenderableType

from nebula.cli.live import screen
from nebula.cli.render import Output
from nebula.cli.tables import Column, columns, duration, latency, number, table
from nebula.cli.terminal import text
from nebula.errors import CallTimeout, NoResponder
from nebula.rpc.discovery import Instance
from nebula.visible import visible

if TYPE_CHECKING:
    from nebula.rpc.client.client import Client

T = TypeVar("T")


# Instances send the time of their start once, as a last value, so the age is computed here.
def _up(started_at: float) -> str:
    # By its clock and ours, which may not agree.
    return duration(max(0.0, time.time() - started_at))


_INSTANCES: Final = (
    *columns(Instance, "service", "name", "version"),
    Column("contracts", "contracts"),
    Column("verbs", "verbs", lambda verbs: number(len(verbs))),
    *columns(Instance, "busy", "waiting"),
    Column("up", "started_at", _up),
)
# Marks the contract of an instance that differs from another instance of its service.
_MARK: Final = " *"
_PINGS: Final = (Column("instance", "instance"), Column("answer", "answer"))


async def show_services(
    client: Client, output: Output, service: str | None, seconds: float, *, is_live: bool
) -> None:
    """Show who is there; live: again with each change, without end."""

    def draw(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
        none = f"no instance of {service} is there" if service else "no services are there"
        return _drawn(rows) if rows else text(none)

    with screen(output, draw, is_live=is_live) as show:
        # Also for a single look: the broker sends the list at the subscription.
        async with client.watch_services(service, timeout=seconds) as presence:

            def show_now() -> None:
                show(_marked(presence.instances))

            show_now()
            if not is_live:
                return
            async with anyio.create_task_group() as tasks:
                if output.is_for_people:
                    # Only on a screen, where ages advance; off it each line is a change.
                    tasks.start_soon(_each_second, show_now)
                async for _ in presence.changes():
                    show_now()


def _marked(instances: Sequence[Instance]) -> list[dict[str, Any]]:
    """Rows, each with whether another instance of its service has a different contract."""
    return [
        {
            **asdict(one),
            # All pairs, because both sides of a difference are marked; a service has few instances.
            "differs": any(one.service == other.service and one.is_unlike(other) for other in instances),
        }
        for one in instances
    ]


def _drawn(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    shown = [{**row, "contracts": f"{row['schemas']}{_MARK if row['differs'] else ''}"} for row in rows]
    names = sorted({row["service"] for row in rows if row["differs"]})
    if not names:
        return table(_INSTANCES, shown)
    which = ", ".join(map(visible, names))
    what = f"instances of {which} have different contracts: a call may reach any of them"
    return Group(table(_INSTANCES, shown), text(f"{_MARK.strip()} {what}"))


async def _each_second(do: Callable[[], None]) -> None:
    # How long they have been up is a change, too.
    while True:
        await anyio.sleep(1)
        do()


def differences(instances: Iterable[Instance]) -> str:
    """A warning if the contracts of instances differ; empty if they are alike."""
    alike: dict[str, list[str]] = {}
    for one in instances:
        alike.setdefault(one.schemas, []).append(visible(one.name))
    if len(alike) < 2:
        return ""
    groups = "; ".join(", ".join(names) for names in alike.values())
    return f"its instances are not alike: {groups}. --instance NAME shows one"


async def show_ping(
    client: Client, output: Output, service: str, seconds: float, every: float | None
) -> bool:
    """Show who answers and how fast; whether all did, the last time.

    Args:
        every: seconds between two looks; None: one is enough.
    """
    has_all = False
    none: list[dict[str, Any]] = []
    with screen(output, draw_pings, is_live=every is not None) as show:
        async for rows in looks(lambda: _ping(client, service, seconds), every, none):
            show(rows)
            # From the last look: with --watch, operators wait until all instances reply.
            has_all = all(row["seconds"] is not None for row in rows)
    return has_all


async def _ping(client: Client, service: str, seconds: float) -> list[dict[str, Any]]:
    found = await client.call_all(service, "ping", timeout=seconds)
    rows = [{"instance": one.instance.name, "seconds": one.seconds} for one in found.answers]
    # A known instance that does not reply gets a row too: operators look for it.
    rows += [{"instance": one.name, "seconds": None} for one in found.missing]
    if rows:
        return sorted(rows, key=lambda row: str(row["instance"]))
    # A service that does not register is called by its queue, and timed here instead of in `call_all`.
    began = time.monotonic()
    await client.call(service, "ping", timeout=seconds)
    return [{"instance": None, "seconds": time.monotonic() - began}]


def draw_pings(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Who answered, and after how long."""
    if not rows:
        return text("no instance replies")
    shown = [
        {**row, "answer": "none" if row["seconds"] is None else f"after {latency(row['seconds'])}"}
        for row in rows
    ]
    return table(_PINGS, shown)


async def looks(look: Callable[[], Awaitable[T]], every: float | None, none: T) -> AsyncIterator[T]:
    """One look, or one after the other for ever.

    Args:
        look: asks.
        every: seconds between two looks; None: one is enough.
        none: what is shown while no instance replies, if this is not the only look.

    Raises:
        NoResponder, CallTimeout: no instance replies to the only look.
    """
    while True:
        try:
            yield await look()
        # With --watch a service may come back; otherwise the error is all there is to show.
        except (NoResponder, CallTimeout):
            if every is None:
                raise
            yield none
        if every is None:
            return
        # After the reply instead of at fixed times, so that requests to a slow service do not overlap.
        await anyio.sleep(every)
