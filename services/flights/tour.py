"""The demo's client: what a caller of the flights service writes, and what it sees.

NEBULA_BROKER=stomp://127.0.0.1:61613 python -m services.flights.tour
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from nebula import JobState, JobStatus
from nebula.sync import Client, JobHandle
from services.flights.app import CarrierDelay, airline, delays

# The second job is cancelled when it is so far.
_HALF_WAY = 0.4


def main() -> int:
    """Call the quick verb, run one job to its end, and cancel another one; returns the exit status."""
    console = Console(highlight=False)
    with Client() as client:
        _ask(console, client)
        _run_job(console, client)
        return _cancel_job(console, client)


def _ask(console: Console, client: Client) -> None:
    console.rule("a quick verb")
    client.call("flights", "ping")
    began = time.perf_counter()
    name = client.call(airline, "UA")
    console.print(f'client.call(airline, "UA") → [bold]{name}[/] in {_milliseconds(began)}')


def _run_job(console: Console, client: Client) -> None:
    console.rule("a Spark job over 336,776 flights, started by a message")
    began = time.perf_counter()
    job = client.start(delays)
    console.print(f"client.start(delays) → success after {_milliseconds(began)}: [bold]{job.id}[/]")
    for _ in _drawn(console, job):
        pass
    rows = job.result()
    console.print(_table(rows))
    console.print(f"{sum(row.flights for row in rows):,} flights of {len(rows)} carriers")


def _cancel_job(console: Console, client: Client) -> int:
    console.rule("another job, cancelled half-way")
    job = client.start("flights", "busiest_hours", progress_every=0.1)
    console.print(f'client.start("flights", "busiest_hours") → [bold]{job.id}[/]')
    is_told = False
    for status in _drawn(console, job):
        if not is_told and (status.progress or 0.0) >= _HALF_WAY:
            is_told = True
            job.cancel()
    if status.state != JobState.CANCELLED:
        console.print(f"it should have been cancelled, and is {status.state}", style="red")
        return 1
    console.print(f"client.job({job.id!r}) is [bold]{status.state}[/]")
    return 0


def _drawn(console: Console, job: JobHandle) -> Iterator[JobStatus]:
    """Watch a job, and draw how far it is."""
    with Progress(
        TextColumn("{task.fields[state]:<10}"),
        BarColumn(bar_width=40),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[note]}[/]"),
        console=console,
    ) as bar:
        task = bar.add_task("", total=1.0, state="", note="")
        for status in job.watch():
            bar.update(task, completed=status.progress or 0.0, state=status.state, note=status.note)
            yield status


def _table(rows: list[CarrierDelay]) -> Table:
    table = Table("carrier", box=None, header_style="bold")
    for column in ("flights", "departure", "arrival"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.name, f"{row.flights:,}", _minutes(row.mean_departure_delay), _minutes(row.mean_arrival_delay)
        )
    table.caption = "mean delays in minutes"
    return table


def _minutes(delay: float | None) -> str:
    return "" if delay is None else f"{delay:.1f}"


def _milliseconds(began: float) -> str:
    return f"{(time.perf_counter() - began) * 1000:.1f} ms"


if __name__ == "__main__":
    sys.exit(main())
