"""Output of commands: tables, colour and progress bars on a terminal, JSON off it.

One `Output` belongs to a command. It has each fact in two forms: for people, and for programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from rich.console import RenderableType
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from nebula.cli.ids import shortened
from nebula.cli.layout import Facts, Heading, Rows
from nebula.cli.terminal import Screen, cell_of, progress_of, text
from nebula.visible import visible

# Texts instead of `JobState`, because a newer service may have other states.
_ENDED_WELL = "done"
_COLOURS = {
    "done": "green",
    "failed": "red",
    "lost": "red",
    "timed_out": "red",
    "cancelled": "yellow",
    "expired": "yellow",
}


class Output:
    """Where a command writes: stdout.

    Args:
        as_json: JSON also on a terminal.
        console: instead of stdout.
    """

    def __init__(self, *, as_json: bool = False, console: Screen | None = None) -> None:
        self.console = console or Screen()
        # Decided once, so that the output of a command has one form.
        self.is_for_people = self.console.is_terminal and not as_json

    def json_line(self, value: Any) -> None:
        """One JSON value on one line, written at once: the reader may be a program that waits for it."""
        self.console.json_line(value)

    def show(self, *parts: RenderableType) -> None:
        """Tables and texts for people, one below the other."""
        self.console.show(*parts)

    def value(self, value: Any) -> None:
        """A verb's result: a table if it is a list of objects, else as it reads best."""
        if not self.is_for_people:
            self.json_line(value)
        # Objects may differ in their fields: all are columns, in order of appearance.
        elif isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            self.show(_table(list(dict.fromkeys(str(key) for row in value for key in row)), value))
        elif isinstance(value, dict):
            self.show(_facts(value))
        elif value is None or isinstance(value, str):
            # Without this text a verb without a result would seem not to have run.
            self.show("success, with nothing to report" if value is None else value)
        else:
            self.console.pretty_json(value)

    async def items(self, items: Sequence[Any]) -> None:
        """Write items of a stream, each on a line, at the reader's pace."""
        if self.is_for_people:
            await self.console.texts(cell_of(item) for item in items)
        else:
            await self.console.json_lines(items)

    def rows(
        self, columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, none: str, ids: str = ""
    ) -> None:
        """Records of one kind: selected columns for people, all fields for programs.

        Args:
            columns: the chosen ones.
            rows: the records.
            none: the text for people if there are no records.
            ids: the column whose ids are abbreviated for people.
        """
        # A list, because it is read twice and may be a generator.
        rows = list(rows)
        if not self.is_for_people:
            self.json_line(rows)
        elif rows:
            self.show(_table(columns, _with_short_ids(ids, rows) if ids else rows))
        else:
            self.show(none)

    def event(self, sentence: str, /, **facts: Any) -> None:
        """Something that happened to the command: a sentence for people, an object for programs."""
        if self.is_for_people:
            self.show(sentence)
        else:
            self.json_line(facts)


class JobView:
    """A job on its way: a progress bar that is drawn over, or one JSON line for each status.

    A context manager; call `show` with each status as it comes.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        columns = (
            _StateColumn(),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %", markup=False),
            # Where there is no room for all of it, it is the note that has less of it.
            TextColumn("{task.fields[note]}", markup=False, table_column=Column()),
        )
        # On stdout, because the bar is the output here; `work_bar` is a bar next to an output.
        self._bar = progress_of(output.console, columns, disable=not output.is_for_people)
        self._task = self._bar.add_task("job", total=1.0, state="", note="")
        self._failure = ""

    def __enter__(self) -> JobView:
        # A disabled bar does nothing.
        self._bar.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._bar.stop()
        if self._failure:
            self._output.show(self._failure)

    def show(self, status: Mapping[str, Any]) -> None:
        """Draw one status, or write it."""
        if not self._output.is_for_people:
            self._output.json_line(status)
            return
        state = str(status.get("state", ""))
        # An ended job's bar is full or stays where it stood; a fraction of None means "not known yet".
        # Jobs need not report progress, and those that do rarely end at exactly 1.0.
        fraction = 1.0 if state == _ENDED_WELL else _fraction(status.get("progress"))
        # The reason is below the bar, where all of it fits.
        self._failure = _failure(status)
        self._bar.update(self._task, completed=fraction, state=state, note=_note(status))


class _StateColumn(ProgressColumn):
    """The state of a job, in its colour."""

    def render(self, task: Task) -> Text:
        return _state(task.fields["state"])


def _fraction(told: Any) -> float:
    """A fraction up to 1.0; for anything else there is no bar."""
    # False for NaN.
    return float(told) if _is_number(told) and told is not None and 0 <= told <= 1 else 0.0


def _failure(status: Mapping[str, Any]) -> str:
    error = status.get("error")
    return f"{error.get('code', '')}: {error.get('message', '')}" if isinstance(error, Mapping) else ""


def _note(status: Mapping[str, Any]) -> str:
    if isinstance(status.get("error"), Mapping):
        return ""
    place = status.get("position")
    said = (None if place is None else f"place {place} in the queue", status.get("note"))
    return visible("; ".join(str(one) for one in said if one))


def _state(state: str) -> Text:
    return text(state, _COLOURS.get(state, "cyan"), keep="")


def _with_short_ids(column: str, rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    # The whole column at once, because the length of an abbreviated id depends on the others.
    short = shortened([cell_of(row.get(column, "")) for row in rows])
    return [{**row, column: one} for row, one in zip(rows, short, strict=True)]


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Rows:
    headings = [
        Heading(text(column, keep=""), all(_is_number(row.get(column)) for row in rows)) for column in columns
    ]
    return Rows(headings, ([_cell(column, row.get(column)) for column in columns] for row in rows))


def _facts(value: Mapping[str, Any]) -> Facts:
    return Facts((text(str(key), keep=""), _cell(str(key), field)) for key, field in value.items())


def _cell(column: str, value: Any) -> Text:
    # By name: Nebula's replies use it for states, and other values are shown as text.
    if column == "state":
        return _state(str(value))
    if value is None:
        return text("")
    if column == "progress" and _is_number(value):
        # A peer may send an integer that is too large for a float.
        with suppress(OverflowError):
            return text(f"{value:.0%}")
    if column.endswith("_at") and _is_number(value):
        # Services tell seconds since the epoch; people read their own clock. Others' milliseconds stay.
        with suppress(ValueError, OverflowError, OSError):
            return text(datetime.fromtimestamp(value, UTC).astimezone().strftime("%d %b %H:%M:%S"))
    return text(cell_of(value), keep="\n")


def _is_number(value: Any) -> bool:
    # A bool is an int to Python. None does not spoil a column of numbers.
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
