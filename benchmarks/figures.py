"""Reads `results.md`: what was measured, by row, contestant and column."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# Under the table of a row that was measured while other programs ran.
BUSY = "on a machine that other programs kept busy"
RESULTS = Path(__file__).with_name("results.md")


class MissingFigure(Exception):
    """The results have no such figure; `str()` says which."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The tables of a page of results.

    Attributes:
        tables: by the row's title, then by contestant, then by column; cells as they stand there.
        provisional: titles of rows that were measured on a busy machine.
    """

    tables: dict[str, dict[str, dict[str, str]]]
    provisional: frozenset[str] = frozenset()

    @classmethod
    def of(cls, text: str) -> Figures:
        """Read a page that `benchmarks.report` wrote."""
        tables: dict[str, dict[str, dict[str, str]]] = {}
        heading: list[str] = []
        title, provisional = "", set()
        for line in text.splitlines():
            if line.startswith("## "):
                title = line[3:]
                tables[title] = table = {}
                heading = []
            elif line.startswith("*") and BUSY in line:
                provisional.add(title)
            elif line.startswith("| ") and not line.startswith("| ---"):
                cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
                if not heading:
                    heading = cells
                else:
                    table[cells[0]] = dict(zip(heading, cells, strict=True))
        return cls(tables, frozenset(provisional))

    def has(self, title: str) -> bool:
        """Whether a row was measured."""
        return bool(self.tables.get(title))

    def rate(self, title: str, contestant: str = "Nebula") -> float:
        """What a contestant did per second.

        Raises:
            MissingFigure: there is no such row, or it was not measured there.
        """
        columns = self._line(title, contestant)
        name = next(column for column in columns if column.endswith("/s"))
        return float(columns[name].replace(",", ""))

    def seconds(self, title: str, contestant: str = "Nebula", column: str = "p50 µs") -> float:
        """A latency, or another figure in µs.

        Raises:
            MissingFigure: as `rate`.
        """
        columns = self._line(title, contestant)
        if not columns.get(column):
            raise MissingFigure(f"“{title}” has no {column!r} of {contestant}")
        return float(columns[column].replace(",", "")) * 1e-6

    def part(self, title: str, contestant: str = "Nebula", column: str = "load") -> float:
        """A figure in percent, as a part of one.

        Raises:
            MissingFigure: as `rate`.
        """
        return float(self._line(title, contestant)[column].rstrip("%")) / 100

    def _line(self, title: str, contestant: str) -> dict[str, str]:
        try:
            return self.tables[title][contestant]
        except KeyError:
            raise MissingFigure(f"the results have no “{title}” of {contestant}") from None
