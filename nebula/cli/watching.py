"""`nebula top`: a broker's state and rates, drawn over every few seconds."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio
from rich.console import Group, RenderableType

from nebula.broker.operations.views import ConnectionRow, QueueRow
from nebula.cli.columns import PRINCIPALS
from nebula.cli.layout import Fitted, Words
from nebula.cli.live import Table, screen
from nebula.cli.operators import SERVICE
from nebula.cli.render import Output
from nebula.cli.replies import Connections, Principals, Queues, Status, checked
from nebula.cli.tables import Column, age, byte_size, columns, duration, number, percent, table
from nebula.cli.terminal import text
from nebula.errors import RemoteError

if TYPE_CHECKING:
    from nebula.rpc.client.client import Client

_QUEUES: Final = (
    *columns(QueueRow, "queue", "depth", "unacked", "consumers"),
    Column("in/s", "in_per_second", number),
    Column("out/s", "out_per_second", number),
    Column("oldest", "oldest_seconds", age),
)
_CONNECTIONS: Final = (
    *columns(ConnectionRow, "session", "principal", "link.peer", "unacked", "outbox_bytes"),
    Column("read/s", "read_per_second", byte_size),
    Column("written/s", "written_per_second", byte_size),
)
# Six seconds at the default interval, enough to read a table.
_ALTERNATING_LOOKS: Final = 3
# Long, because a slow reply of a busy broker must not end the screen.
_SLOWEST_REPLY: Final = 30.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What the broker told at a moment.

    Attributes:
        at: seconds of any clock that does not jump.
        principals: those that use most of their shares; empty if the broker does not report them.
        hidden_queues: the number of internal queues left out.
    """

    at: float
    status: Mapping[str, Any]
    queues: list[dict[str, Any]]
    connections: list[dict[str, Any]]
    principals: list[dict[str, Any]]
    hidden_queues: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of `nebula top`.

    Attributes:
        interval: seconds between two refreshes.
        limit: rows of each table.
        first: the first table; None for the queues.
        has_internal: also queues of Nebula's own.
        has_full_ids: do not abbreviate ids.
    """

    interval: float
    limit: int
    first: Table | None = None
    has_internal: bool = False
    has_full_ids: bool = False


async def watch(client: Client, output: Output, wanted: Wanted, *, once: bool) -> None:
    """Show the state of a broker until q is pressed or the task is cancelled.

    The screen has one table at a time, selected by keys or, without a keyboard, in turn.

    Args:
        client: connected.
        output: of the command.
        wanted: what is shown.
        once: end after the first refresh.

    Raises:
        NebulaError: no answer, or an error.
    """
    # stdin too: `nebula top < file` has no keys. Windows has no terminals of this kind.
    with_keys = output.is_for_people and sys.stdin.isatty() and not once and sys.platform != "win32"
    switch = TableSwitch(wanted.first or Table.QUEUES, by_keys=with_keys)

    def draw_now(shown: Mapping[str, Any]) -> RenderableType:
        if not once:
            return Fitted(*draw(shown, [switch.table], wanted), text(switch.help, keep=""))
        # With --once the output scrolls, so there is room for both tables.
        tables = [Table.QUEUES, Table.CONNECTIONS] if wanted.first is None else [wanted.first]
        return Group(*draw(shown, tables, wanted))

    # Outermost, so that the terminal's settings are restored last.
    with _keys_at_once() if with_keys else contextlib.nullcontext():
        async with anyio.create_task_group() as tasks:
            with screen(output, draw_now, is_live=not once) as show:
                if with_keys:
                    tasks.start_soon(_obey_keys, tasks.cancel_scope, switch, show)
                async for before, after in _pairs(client, wanted):
                    switch.shown = view(before, after)
                    show(switch.shown)
                    switch.note_look()
                    if once:
                        break
            # Ends the task that waits for keys.
            tasks.cancel_scope.cancel()


class TableSwitch:
    """The table on the screen.

    Args:
        first: the first one.
        by_keys: a keyboard is available.

    Attributes:
        shown: the latest state, drawn again when a key is pressed.
    """

    def __init__(self, first: Table, *, by_keys: bool) -> None:
        self.table = first
        self.shown: Mapping[str, Any] | None = None
        self._by_keys, self._looks = by_keys, 0

    @property
    def help(self) -> str:
        """The last line of the screen."""
        tables = list(Table)
        names = [f"[{one}]" if one is self.table else str(one) for one in tables]
        if not self._by_keys:
            return "  ".join(names)
        keys = "  ".join(f"{number} {name}" for number, name in enumerate(names, 1))
        return f"{keys}  Tab next  q quit"

    def note_look(self) -> None:
        """Count a refresh: without a keyboard, select the next table after a few."""
        self._looks += 1
        if not self._by_keys and self._looks % _ALTERNATING_LOOKS == 0:
            self.go_on()

    def go_on(self) -> None:
        """Select the next table."""
        tables = list(Table)
        self.table = tables[(tables.index(self.table) + 1) % len(tables)]

    def obey(self, key: bytes) -> bool:
        """Handle a key; whether it has a meaning."""
        number = key[0] - ord("1") if key else -1
        if key in (b"\t", b" "):
            self.go_on()
        elif 0 <= number < len(Table):
            self.table = list(Table)[number]
        else:
            return False
        return True


def view(before: Sample, after: Sample) -> dict[str, Any]:
    """What is shown of two looks: the later one, with what happened in between by the second."""
    # A clock of low resolution may not move between two looks.
    seconds = max(after.at - before.at, 1e-9)

    def rate(now: float, then: float | None) -> float | None:
        # A broker that was restarted counts from 0: there is no rate yet.
        return None if then is None or now < then else (now - then) / seconds

    # By name, because rows of a list by rank change places.
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
        "hidden_queues": after.hidden_queues,
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


async def _pairs(client: Client, wanted: Wanted) -> AsyncIterator[tuple[Sample, Sample]]:
    """Two looks at a time, an interval apart, for ever."""
    # The first output comes after one interval, because a rate needs two looks.
    before = await _look(client, wanted)
    while True:
        await anyio.sleep(wanted.interval)
        after = await _look(client, wanted)
        yield before, after
        before = after


async def _look(client: Client, wanted: Wanted) -> Sample:
    limit = wanted.limit
    asking = client.with_options(timeout=_SLOWEST_REPLY)

    async def ask(form: Any, verb: str, parameters: Any = None) -> Any:
        return checked(form, await asking.call(SERVICE, verb, parameters), SERVICE, verb)

    # One after the other, so that a slow broker has one request of this screen at a time.
    status = await ask(Status, "broker.status")
    queues = await ask(
        Queues, "queues.list", {"order": "depth", "limit": limit, "internal": wanted.has_internal}
    )
    connections = await ask(Connections, "connections.list", {"order": "traffic", "limit": limit})
    principals = await _principals(ask, limit)
    hidden = queues.get("hidden", 0)
    return Sample(time.monotonic(), status, queues["rows"], connections["rows"], principals, hidden)


_COLUMNS: Final = {
    Table.QUEUES: _QUEUES,
    Table.CONNECTIONS: _CONNECTIONS,
    Table.PRINCIPALS: PRINCIPALS,
}


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


def draw(shown: Mapping[str, Any], tables: Sequence[Table], wanted: Wanted) -> Iterator[RenderableType]:
    """A view as people read it: the broker in a few lines, and tables."""
    yield Words(text("\n".join(_summary(shown))))
    for one in tables:
        yield text("")
        yield table(_COLUMNS[one], shown[one], has_full_ids=wanted.has_full_ids)
        if one is Table.QUEUES and (hidden := shown["hidden_queues"]):
            yield text(f"internal queues hidden: {hidden:,}; --all shows them", "dim")


def _summary(shown: Mapping[str, Any]) -> Iterator[str]:
    status, rates = shown["status"], shown["rates"]
    # In the words of /readyz.
    state = "ready" if status["not_ready"] is None else f"not ready: {status['not_ready']}"
    yield f"nebula {status['version']}, {state}, up {duration(status['uptime_seconds'])}"
    yield (
        f"messages in {number(rates['received'] or 0)}/s, frames out {number(rates['sent_frames'] or 0)}/s;"
        f" read {byte_size(rates['read_bytes'] or 0)}/s, written {byte_size(rates['written_bytes'] or 0)}/s"
    )
    yield (
        f"{number(status['connections'])} connections, {number(status['held_back'])} held back,"
        f" {number(status['delayed'])} delayed, {number(status['dead_letters'])} dead;"
        f" memory {byte_size(status['memory_bytes'])} of {byte_size(status['max_memory_bytes'])}"
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
        # By the fraction used, because bytes and connections cannot be compared.
        fullest = max(fractions, key=lambda name: fractions[name])
        parts.append(f"fullest is {fullest}, {percent(fractions[fullest])} used")
    if principals:
        first = principals[0]
        parts.append(f"{first['principal']} uses {percent(first['used_fraction'])} of its share")
    return f"shares: {'; '.join(parts)}" if parts else ""


async def _obey_keys(
    scope: anyio.CancelScope, switch: TableSwitch, show: Callable[[Mapping[str, Any]], None]
) -> None:
    while True:
        # Not with a reading thread, which cannot be cancelled.
        await anyio.wait_readable(sys.stdin)
        # Not by Python's buffer, which would hide further keys. Empty: the terminal is gone.
        key = os.read(sys.stdin.fileno(), 1)
        if key in (b"q", b"Q", b""):
            scope.cancel()
            return
        if switch.obey(key) and switch.shown is not None:
            show(switch.shown)


@contextlib.contextmanager
def _keys_at_once() -> Iterator[None]:
    """Have a terminal hand over keys without Enter, and not show them."""
    import termios
    import tty

    former = termios.tcgetattr(sys.stdin)
    # cbreak, not raw: Ctrl-C must still be a signal.
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        # TCSADRAIN: after the output was written.
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, former)
