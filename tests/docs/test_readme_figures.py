"""The figures of speed in the README are those of the last run of the benchmarks."""

from __future__ import annotations

import re

from benchmarks.figures import RESULTS, Figures
from tests.docs_runner import ROOT

# By row of the README: the table of the results, and its column.
ROWS = {
    "queue, messages/s": ("Queue, auto acks", "messages/s"),
    "queue on disk, a receipt per message, messages/s": ("Queue on disk, sends with receipts", "messages/s"),
    "topic, 1 to 10, deliveries/s": ("Topic, fan-out 1 to 10", "deliveries/s"),
    "request and reply, one at a time, median µs": ("Raw request/reply, one at a time", "p50 µs"),
    "request and reply, 64 in flight, requests/s": ("Raw request/reply, 64 in flight", "requests/s"),
}
# Measured with a receipt for 256 messages, which is faster there: the README says so.
FASTER = {("Queue on disk, sends with receipts", "ActiveMQ"): "ActiveMQ, 256 a receipt"}


def shown() -> dict[str, dict[str, str]]:
    section = (
        (ROOT / "README.md").read_text(encoding="utf-8").partition("## Speed\n")[2].partition("\n## ")[0]
    )
    heading, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in re.findall(r"^\|.*\|$", section, re.MULTILINE)
    ]
    return {row[0]: dict(zip(heading[1:], row[1:], strict=True)) for row in rows}


def test_figures_of_the_readme_are_those_of_the_last_run() -> None:
    tables = Figures.of(RESULTS.read_text(encoding="utf-8")).tables
    measured = {
        row: {
            name: tables[title][FASTER.get((title, name), name)][column]
            for name in ("Nebula", "RabbitMQ", "ActiveMQ")
        }
        for row, (title, column) in ROWS.items()
    }

    assert shown() == measured
