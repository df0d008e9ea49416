"""A broker at work, drawn over every few seconds: what `nebula top` shows."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio
from rich.console import Group

from nebula.cli.answers import Connections, Principals, Queues, Status, checked
from nebula.cli.live import screen
from nebula.cli.operators import SERVICE
from nebula.cli.render import Output
from nebula.cli.tables import Column, duration, number, octets, percent, table
from nebula.cli.terminal import text
from nebula.errors import RemoteError

if TYPE_CHECKING:
    from nebula.rpc.client import Client

_QUEUES: Final = (
    Column("queue", "queue"),
    Column("depth", "depth", number),
    Column("un-ACKed", "unacked", number),
    Column("on disk", "paged_out", number),
    Column("consumers", "consumers", number),
    Column("in/s", "in_per_second", number),
    Column("out/s", "out_per_second", number),
    Column("oldest", "oldest_seconds", duration),
    Column("memory", "stored_bytes", octets),
)
_CONNECTIONS: Final = (
    Column("session", "session"),
    Column("principal", "principal"),
    Column("peer", "link.peer"),
    Column("un-ACKed", "unacked", number),
    Column("outbox", "outbox_bytes", octets),
    Column("read/s", "read_per_second", octets),
    Column("written/s", "written_per_second", octets),
    Column("frames/s", "frames_per_second", number),
)
_SLOWEST_ANSWER: Final = 30.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What the broker told at a moment.

    Attributes:
        at: seconds of any clock that does not jump.
        principals: those that use most of their shares; empty if the broker does not report them.
    """

    at: float
    status: Mapping[str, Any]
    queues: list[dict[str, Any]]
    connections: list[dict[str, Any]]
    principals: list[dict[str, Any]]


async def watch(client: Client, output: Output, interval: float, limit: int, *, once: bool) -> None:
    """Show looks at a broker, an interval apart, until q is pressed or the task is cancelled.

    Args:
        limit: rows of each table.
        once: end after the first.

    Raises:
        NebulaError: there is no answer, or it is an error.
    """
    with_keys = output.is_for_people and sys.stdin.isatty()
    with _keys_at_once() if with_keys else contextlib.nullcontext():
        async with anyio.create_task_group() as tasks:
            if with_keys:
                tasks.start_soon(_leave_at_q, tasks.cancel_scope)
            with screen(output, draw) as show:
                async for before, after in _pairs(client, interval, limit):
                    show(view(before, after))
                    if once:
                        break
            tasks.cancel_scope.cancel()


def view(before: Sample, after: Sample) -> dict[str, Any]:
    """What is shown of two looks: the later one, with what happened in between by the second."""
    seconds = max(after.at - before.at, 1e-9)

    def rate(now: float, then: float | None) -> float | None:
        # What begins anew with a lower count has no rate yet.
        return None if then is None or now < then else (now - then) / seconds

    queues = {row["queue"]: row for row in before.queues}
    links = {row["session"]: row["link"] for row in before.connections}
    fields = ("received", "sent_frames", "read_bytes", "written_bytes")
    return {
        "rates": {field: rate(after.status[field], before.status[field]) for field in fields},
        "status": after.status,
        "queues": [row | _queue_rates(row, queues.get(row["queue"]), rate) for row in after.queues],
        "connections": [
            row | _link_rates(row["link"], links.get(row["session"]), rate) for row in after.connections
        ],
        "principals": after.principals,
    }


def _queue_rates(now: Mapping[str, Any], then: Mapping[str, Any] | None, rate: Any) -> dict[str, Any]:
    if then is None:
        return {"in_per_second": None, "out_per_second": None}
    # What came and is not there has gone.
    gone_now, gone_then = now["taken"] - now["depth"], then["taken"] - then["depth"]
    return {
        "in_per_second": rate(now["taken"], then["taken"]),
        "out_per_second": rate(gone_now, gone_then),
    }


def _link_rates(now: Mapping[str, Any], then: Mapping[str, Any] | None, rate: Any) -> dict[str, Any]:
    fields = {"read": "read_bytes", "written": "written_bytes", "frames": "sent_frames"}
    return {
        f"{name}_per_second": None if then is None else rate(now[field], then[field])
        for name, field in fields.items()
    }


async def _pairs(client: Client, interval: float, limit: int) -> AsyncIterator[tuple[Sample, Sample]]:
    """Two looks at a time, an interval apart, for ever."""
    before = await _look(client, limit)
    while True:
        await anyio.sleep(interval)
        after = await _look(client, limit)
        yield before, after
        before = after


async def _look(client: Client, limit: int) -> Sample:
    asking = client.with_options(timeout=_SLOWEST_ANSWER)

    async def ask(form: Any, verb: str, parameters: Any = None) -> Any:
        return checked(form, await asking.call(SERVICE, verb, parameters), SERVICE, verb)

    status = await ask(Status, "broker.status")
    queues = await ask(Queues, "queues.list", {"order": "depth", "limit": limit})
    connections = await ask(Connections, "connections.list", {"order": "traffic", "limit": limit})
    principals = await _principals(ask, limit)
    return Sample(time.monotonic(), status, queues["rows"], connections["rows"], principals)


async def _principals(ask: Callable[..., Awaitable[Any]], limit: int) -> list[dict[str, Any]]:
    try:
        answer = await ask(Principals, "principals.list", {"order": "used", "limit": limit})
    except RemoteError as error:
        # An older broker has no such verb, and a caller may have rights for the others only.
        if error.code not in ("unknown-verb", "not-allowed"):
            raise
        return []
    rows: list[dict[str, Any]] = answer["rows"]
    return rows


def draw(shown: Mapping[str, Any]) -> Group:
    """A view as people read it."""
    return Group(
        text("\n".join(_summary(shown))),
        text(""),
        table(_QUEUES, shown["queues"]),
        text(""),
        table(_CONNECTIONS, shown["connections"]),
    )


def _summary(shown: Mapping[str, Any]) -> Iterator[str]:
    status, rates = shown["status"], shown["rates"]
    state = "ready" if status["not_ready"] is None else f"not ready: {status['not_ready']}"
    yield f"nebula {status['version']}, {state}, up {duration(status['uptime_seconds'])}"
    yield (
        f"messages in {number(rates['received'] or 0)}/s, frames out {number(rates['sent_frames'] or 0)}/s;"
        f" read {octets(rates['read_bytes'] or 0)}/s, written {octets(rates['written_bytes'] or 0)}/s"
    )
    yield (
        f"{number(status['connections'])} connections, {number(status['held_back'])} held back,"
        f" {number(status['delayed'])} delayed, {number(status['dead_letters'])} dead;"
        f" memory {octets(status['memory_bytes'])} of {octets(status['max_memory_bytes'])}"
    )
    if shares := _shares(status.get("pools", {}), shown["principals"]):
        yield shares
    kinds = ", ".join(f"{number(each['destinations'])} {kind}" for kind, each in status["kinds"].items())
    dropped = ", ".join(f"{number(count)} {why}" for why, count in status["dropped"].items())
    yield f"destinations: {kinds}; dropped: {dropped or 'nothing'}"
    store = status["store"]
    if store is not None and store["commits"]:
        mean = duration(store["seconds"] / store["commits"])
        yield f"store: {number(store['commits'])} commits of {number(store['rows'])} rows, {mean} each"


def _shares(pools: Mapping[str, Any], principals: Sequence[Mapping[str, Any]]) -> str:
    """The resource and the principal that are closest to their limits."""
    parts = []
    fractions = {name: pool["used"] / pool["limit"] for name, pool in pools.items() if pool["limit"] > 0}
    if fractions:
        fullest = max(fractions, key=lambda name: fractions[name])
        parts.append(f"fullest is {fullest}, {percent(fractions[fullest])} used")
    if principals:
        first = principals[0]
        parts.append(f"{first['principal']} uses {percent(first['used_fraction'])} of its share")
    return f"shares: {'; '.join(parts)}" if parts else ""


async def _leave_at_q(scope: anyio.CancelScope) -> None:
    while True:
        await anyio.wait_readable(sys.stdin)
        if os.read(sys.stdin.fileno(), 1) in (b"q", b"Q", b""):
            scope.cancel()
            return


@contextlib.contextmanager
def _keys_at_once() -> Iterator[None]:
    """Have a terminal hand over keys without Enter, and not show them."""
    import termios
    import tty

    former = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, former)
