"""`python -m benchmarks`: measure, show the ratios, write them down."""

from __future__ import annotations

import os
import platform
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from benchmarks import performance, report, scale
from benchmarks.peers import Broker
from benchmarks.processes import Unavailable, file_system
from benchmarks.profile import Program, top_lines
from benchmarks.row import Contestant, Row
from benchmarks.rows import BROKERS, ROWS, chosen
from benchmarks.stream import Measurement
from nebula.compiled import is_compiled

RESULTS = Path(__file__).with_name("results.md")
# ActiveMQ's compiler needs this much warming up before it runs at full speed.
_WARM_UP_SECONDS = 30.0
# Processes that other programs keep running, on average over a minute.
_BUSY_LOAD = 0.5
_IN_MEMORY = {"tmpfs", "ramfs"}

# Off a terminal rich takes 80 columns, and the widest table would be cut.
console = Console(width=None if sys.stdout.isatty() else 120)


def main(
    rows: Annotated[
        str, typer.Option(help="Only these rows, with commas between: " + ", ".join(r.name for r in ROWS))
    ] = "",
    rounds: Annotated[
        int, typer.Option(min=1, help="Rounds; each asks every contestant once. Medians are shown.")
    ] = 5,
    seconds: Annotated[
        float, typer.Option(min=0.2, help="How long each contestant is measured in a round.")
    ] = 2.0,
    quick: Annotated[
        bool, typer.Option(help="Three minutes: one short round, without the others; writes nothing.")
    ] = False,
    add: Annotated[
        bool, typer.Option(help="With --rows: put them into the page of results, which keeps the others.")
    ] = False,
    profile: Annotated[
        str, typer.Option(metavar="ROW", help="Show the broker's ten busiest lines in this row, and stop.")
    ] = "",
    of: Annotated[
        Program, typer.Option(help="With --profile, whose lines; service and caller are in the rpc rows.")
    ] = Program.BROKER,
) -> None:
    """Measure Nebula, compiled and interpreted, RabbitMQ, ActiveMQ Classic, NATS micro and FastStream.

    The others come from Debian's packages and are installed if they are missing (as root). Everything runs on
    loopback, on ports and in folders of its own, and is ended again. A whole run takes more than an hour and
    writes benchmarks/results.md, the pages on speed and their plots. With --rows nothing is written but with
    --add, which puts these rows into the page and keeps the others. Noisy machine? More --rounds.

    `make bench OPTIONS=...` runs this where the compiled build is, and compiles it before. In a checkout that
    is not compiled the interpreted build is measured, and nothing is written.
    """
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # leave through the context managers, as on Ctrl-C
    try:
        picked = chosen(name.strip() for name in rows.split(",") if name.strip())
        picked = of_this_build(picked, is_compiled=is_compiled())
        if profile:
            _show_profile(chosen([profile])[0], of)
        elif quick:
            _run(_ours_only(picked), rounds=1, seconds=min(seconds, 1.0), output=None)
        else:
            output = RESULTS if is_compiled() and (add or not rows) else None
            _run(picked, rounds=rounds, seconds=seconds, output=output, is_whole=not rows)
    except (ValueError, Unavailable) as problem:
        console.print(f"[red]{problem}", highlight=False)
        raise typer.Exit(1) from problem


def _show_profile(row: Row, program: Program) -> None:
    for place, part in top_lines(row, program):
        console.print(f"{part:6.1%}  {place}", highlight=False)


def of_this_build(rows: Sequence[Row], *, is_compiled: bool) -> list[Row]:
    """The rows as they are; or, where the interpreted build runs, without it as a contestant of its own."""
    if is_compiled:
        return list(rows)
    console.print(
        "[yellow]the interpreted build is measured, and nothing is written; make bench measures both"
    )
    return [
        replace(
            row, contestants=[c for c in row.contestants if not c.broker.startswith("nebula interpreted")]
        )
        for row in rows
    ]


def _ours_only(rows: Sequence[Row]) -> list[Row]:
    return [replace(row, contestants=[c for c in row.contestants if c.is_ours], aim=None) for row in rows]


def _run(
    rows: Sequence[Row], *, rounds: int, seconds: float, output: Path | None, is_whole: bool = False
) -> None:
    started = time.monotonic()
    if output is not None and not is_whole:
        report.check_machine(output.read_text())
    if file_system() in _IN_MEMORY:
        console.print("[red]the temporary folder is in memory, so nothing is on disk: set TMPDIR")
    # Before our own programs run.
    is_busy = os.getloadavg()[0] > _BUSY_LOAD
    if is_busy:
        console.print(
            f"[red]other programs run, so these figures are provisional: load {os.getloadavg()[0]:.1f}"
        )
    with _brokers(rows) as brokers:
        taken = _measure(rows, brokers, rounds=rounds, seconds=seconds)
        ran = {name: _version(broker) for name, broker in brokers.items()}
        run = report.Run(time.strftime("%Y-%m-%d"), rounds, seconds, ran, _libraries(), is_busy=is_busy)
    for row in [row for row in rows if report.lines(row, taken)]:
        console.print(report.table(row, taken), "")
    if output is not None:
        if is_whole:
            page = report.markdown(rows, taken, run)
        else:
            page = report.with_rows(output.read_text(), rows, taken, run, ROWS)
        output.write_text(page)
        console.print(f"written to {output.name}")
        scale.main(["--write"])
        performance.main(["--write"])
    console.print(f"{(time.monotonic() - started) / 60:.1f} minutes")
    missed = sum(
        len(taken[row.name, contestant.name]) < min(rounds, row.max_rounds or rounds)
        for row in rows
        for contestant in row.contestants
        if contestant.broker in brokers
    )
    if missed:
        console.print(f"[red]{missed} measurements failed, see above")
        raise typer.Exit(1)


@contextmanager
def _brokers(rows: Sequence[Row]) -> Iterator[dict[str, Broker]]:
    needed = {contestant.broker for row in rows for contestant in row.contestants}
    with ExitStack() as stack:
        running = {}
        for name in [name for name in BROKERS if name in needed]:
            try:
                with console.status(f"starting {name}"):
                    running[name] = stack.enter_context(BROKERS[name]())
            except Unavailable as problem:
                # Without one of the others the rest is worth having; without ours it is not.
                if name.startswith("nebula"):
                    raise
                console.print(f"[red]without {name}: {problem}", highlight=False)
            else:
                console.print(f"{_version(running[name])} runs", highlight=False)
        if not all(name.startswith("nebula") for name in running):
            console.print(report.PEERS_ORIGIN, highlight=False)
        yield running


def _measure(
    rows: Sequence[Row], brokers: Mapping[str, Broker], *, rounds: int, seconds: float
) -> dict[tuple[str, str], list[Measurement]]:
    taken: dict[tuple[str, str], list[Measurement]] = defaultdict(list)
    plan = planned(rows, brokers, rounds)
    with Progress(console=console) as progress:
        for name in [name for name in brokers if name.startswith("activemq")]:
            _warm_up(rows, name, brokers[name], progress)
        task = progress.add_task("measuring", total=len(plan))
        for row, contestant in plan:
            progress.update(task, description=f"{row.name}: {contestant.name}")
            taken[row.name, contestant.name] += _one(row, contestant, brokers[contestant.broker], seconds)
            progress.advance(task)
    return taken


def planned(rows: Sequence[Row], brokers: Container[str], rounds: int) -> list[tuple[Row, Contestant]]:
    """Who is measured, in order: row by row within a round, so that what is compared is close in time."""
    return [
        (row, contestant)
        for number in range(rounds)
        for row in rows
        if row.max_rounds is None or number < row.max_rounds
        for contestant in row.contestants
        if contestant.broker in brokers
    ]


def _one(row: Row, contestant: Contestant, broker: Broker, seconds: float) -> list[Measurement]:
    try:
        return [contestant.measure(broker, seconds)]
    except (OSError, Unavailable) as error:
        console.print(f"[red]{row.name}: {contestant.name}: {error}", highlight=False)
        return []


def _warm_up(rows: Sequence[Row], name: str, broker: Broker, progress: Progress) -> None:
    measures = [c.measure for row in rows for c in row.contestants if c.broker == name]
    task = progress.add_task(f"warming up {name}", total=_WARM_UP_SECONDS)
    for measure in measures:
        measure(broker, _WARM_UP_SECONDS / len(measures))
        progress.advance(task, _WARM_UP_SECONDS / len(measures))


def _version(broker: Broker) -> str:
    return f"{broker.name} {broker.version}"


def _libraries() -> list[str]:
    return [f"Python {platform.python_version()}", f"uvloop {version('uvloop')}"]


if __name__ == "__main__":
    typer.run(main)
