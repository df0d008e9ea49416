"""A live table of the floor, with the progress of a slow reader."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from services.venue.invariants import Accepted, Reading
from services.venue.reader import Reader
from services.venue.topics import Topic

_REFRESH_SECONDS = 0.25
_ROWS = 12


class Dashboard:
    """Shows what two readers of the same topic have seen.

    Args:
        quick: acks at once.
        slow: takes its time over each message.
        accepted: what was published.
    """

    def __init__(self, quick: Reader, slow: Reader, accepted: Accepted) -> None:
        self._quick = quick
        self._slow = slow
        self._accepted = accepted

    async def show(self, console: Console) -> None:
        """Draw until cancelled; on a terminal again and again, elsewhere once, at the end."""
        with Live(console=console, auto_refresh=False, get_renderable=self.render) as live:
            try:
                while True:
                    live.refresh()
                    await anyio.sleep(_REFRESH_SECONDS)
            finally:
                live.refresh()

    def render(self) -> Group:
        """The machines with the most turnover, and the two readers' counts."""
        readings = sorted(self._quick.readings.values(), key=lambda one: one.turnover, reverse=True)
        return Group(_floor(readings), self._counts())

    def _counts(self) -> Text:
        published = self._accepted.counts[Topic.METERS]
        return Text.assemble(
            (f"{published:,}", "bold"),
            " readings published; ",
            (f"{self._quick.received:,}", "bold"),
            " received here, ",
            (f"{self._slow.received:,}", "bold"),
            " by the slow reader next to it",
        )


def _floor(readings: Sequence[Reading]) -> Table:
    table = Table(box=None, header_style="bold")
    table.add_column("machine")
    for column in ("turnover", "wins", "in less out", "since RAM clear"):
        table.add_column(column, justify="right")
    for one in readings[:_ROWS]:
        cleared = "" if one.reset_at is None else f"{(one.updated_at - one.reset_at) / 1000:.0f} s"
        table.add_row(one.gmid, _dollars(one.turnover), _dollars(one.wins), _dollars(-one.net), cleared)
    if len(readings) > _ROWS:
        total = sum(one.turnover for one in readings)
        table.add_row(f"all {len(readings)}", _dollars(total), style="dim")
    return table


def _dollars(cents: int) -> str:
    return f"{cents / 100:,.2f}"
