"""What was checked at the end of a run, and how it came out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from services.venue.invariants import in_short


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that has to hold.

    Attributes:
        rule: what has to hold, as a sentence.
        evidence: what it was checked against.
        breaches: a sentence for each breach; none: it holds.
    """

    rule: str
    evidence: str
    breaches: Sequence[str] = ()

    @property
    def holds(self) -> bool:
        """Whether there was no breach."""
        return not self.breaches


def show(console: Console, checks: Sequence[Check]) -> bool:
    """Print the checks; returns whether all of them hold."""
    table = Table(box=None, header_style="bold", title="checked", title_justify="left")
    for column in ("", "rule", "seen"):
        table.add_column(column, overflow="fold")
    for check in checks:
        mark = "[green]holds[/]" if check.holds else "[bold red]broken[/]"
        table.add_row(mark, check.rule, check.evidence if check.holds else in_short(list(check.breaches)))
    console.print()
    console.print(table)
    return all(check.holds for check in checks)
