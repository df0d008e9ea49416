"""The stages of a run: how many rows each handled, how fast, and how many bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from nebula.sync import JobHandle


@dataclass(frozen=True, slots=True)
class Stage:
    """One of them.

    Attributes:
        rows: messages or rows.
        seconds: how long it took.
        size_bytes: of what it made, or read.
    """

    name: str
    rows: int
    seconds: float
    size_bytes: int

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        """As the table shows it."""
        rate = self.rows / self.seconds if self.seconds else 0.0
        return (
            self.name,
            f"{self.rows:,}",
            f"{self.seconds:.1f}",
            f"{rate:,.0f}",
            f"{self.size_bytes / 1e6:.1f}",
        )


class Stages:
    """All of a run: a bar while one runs, a line when it is done, a table at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._done: list[Stage] = []

    @contextlib.contextmanager
    def bar(self, name: str, total: int) -> Iterator[Callable[[int], None]]:
        """Draw how much is done, on a terminal; the value is told so."""
        columns = (TextColumn("{task.description:<24}"), BarColumn(bar_width=40), TaskProgressColumn())
        with Progress(
            *columns,
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        ) as progress:
            task = progress.add_task(name, total=total)
            yield lambda done: progress.update(task, completed=done)

    def follow(self, name: str, job: JobHandle) -> None:
        """Draw how far a job is; returns when it has ended, however it did."""
        with self.bar(name, 100) as on_progress:
            for status in job.watch():
                on_progress(int((status.progress or 0.0) * 100))

    def add(self, stage: Stage) -> None:
        """Note one that is done, and say so."""
        self._done.append(stage)
        name, rows, seconds, rate, size = stage.cells
        self._console.print(f"{name}: {rows} in {seconds} s, {rate} a second, {size} MB")

    def show(self) -> None:
        """The table."""
        table = Table(box=None, header_style="bold", title="stages", title_justify="left")
        table.add_column("")
        for column in ("messages or rows", "seconds", "a second", "MB"):
            table.add_column(column, justify="right")
        for stage in self._done:
            table.add_row(*stage.cells)
        self._console.print()
        self._console.print(table)


def folder_bytes(folder: Path) -> int:
    """What is in a folder and all below it."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
