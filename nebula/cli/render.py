"""What commands show: tables, colour and progress bars on a terminal, JSON off it.

One `Output` belongs to a command. Everything is said twice, once for each reader, side by side.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from pydantic_core import to_json
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column, Table
from rich.text import Text

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

    def __init__(self, *, as_json: bool = False, console: Console | None = None) -> None:
        self.console = console or Console()
        self.is_for_people = self.console.is_terminal and not as_json

    def json_line(self, value: Any) -> None:
        """One JSON value on one line, written at once: the reader may be a program that waits for it."""
        self.console.file.write(_json(value) + "\n")
        self.console.file.flush()

    def value(self, value: Any) -> None:
        """A verb's result: a table if it is a list of objects, else as it reads best."""
        if not self.is_for_people:
            self.json_line(value)
        elif isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            self.console.print(_table(list(dict.fromkeys(key for row in value for key in row)), value))
        elif isinstance(value, dict):
            self.console.print(_pairs(value))
        elif value is None or isinstance(value, str):
            text = "success, with nothing to report" if value is None else harmless(value, keep="\n\t")
            self.console.print(text, markup=False, highlight=False)
        else:
            self.console.print_json(_json(value))

    def rows(self, columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, none: str) -> None:
        """Records of one kind: chosen columns for people, all there is for programs."""
        rows = list(rows)
        if not self.is_for_people:
            self.json_line(rows)
        elif rows:
            self.console.print(_table(columns, rows))
        else:
            self.console.print(none, markup=False, highlight=False)

    def event(self, text: str, **facts: Any) -> None:
        """Something that happened to the command: a sentence for people, an object for programs."""
        if self.is_for_people:
            self.console.print(text, markup=False, highlight=False)
        else:
            self.json_line(facts)


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        # What a peer told may hold an infinity, for which JSON has no word and its readers no use.
        return to_json(value, inf_nan_mode="null", fallback=str).decode()


def harmless(text: str, *, keep: str = "") -> str:
    """Text of a peer as a person may see it: a terminal would do what a stranger's control characters say.

    Args:
        keep: control characters that stay what they are; the others are shown by their codes.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode()
        for each in text
    )


class JobView:
    """A job on its way: a progress bar that is drawn over, or one JSON line for each status.

    A context manager; call `show` with each status as it comes.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._bar = Progress(
            TextColumn("{task.fields[state]}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            # Where there is no room for all of it, it is the note that has less of it.
            TextColumn("{task.fields[note]}", markup=False, table_column=Column()),
            console=output.console,
            disable=not output.is_for_people,
        )
        self._task = self._bar.add_task("job", total=1.0, state="", note="")

    def __enter__(self) -> JobView:
        self._bar.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._bar.stop()

    def show(self, status: Mapping[str, Any]) -> None:
        """Draw one status, or write it."""
        if not self._output.is_for_people:
            self._output.json_line(status)
            return
        state = str(status.get("state", ""))
        # An ended job's bar is full or stays where it stood; a fraction of None means "not known yet".
        fraction = 1.0 if state == _ENDED_WELL else status.get("progress") or 0.0
        note = _note(status)
        self._bar.update(self._task, completed=fraction, state=_state(state).markup, note=note)


def _note(status: Mapping[str, Any]) -> str:
    error = status.get("error")
    if isinstance(error, Mapping):
        return harmless(f"{error.get('code', '')}: {error.get('message', '')}")
    place = status.get("position")
    said = (None if place is None else f"place {place} in the queue", status.get("note"))
    return harmless("; ".join(str(one) for one in said if one))


def _state(state: str) -> Text:
    return Text(state, style=_COLOURS.get(state, "cyan"))


def _table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    rows = list(rows)
    for column in columns:
        numbers = all(_is_number(row.get(column)) for row in rows)
        # A job's id is there to be copied: it stays in one piece.
        table.add_column(
            Text(harmless(column)),
            justify="right" if numbers else "left",
            overflow="fold",
            no_wrap=column == "job",
        )
    for row in rows:
        table.add_row(*(_cell(column, row.get(column)) for column in columns))
    return table


def _pairs(value: Mapping[str, Any]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, field in value.items():
        table.add_row(Text(harmless(str(key))), _cell(str(key), field))
    return table


def _cell(column: str, value: Any) -> Text:
    if column == "state":
        return _state(str(value))
    if value is None:
        return Text("")
    if column == "progress" and _is_number(value):
        return Text(f"{value:.0%}")
    if column.endswith("_at") and _is_number(value):
        # Services tell seconds since the epoch; people read their own clock. Others' milliseconds stay.
        with suppress(ValueError, OverflowError, OSError):
            return Text(datetime.fromtimestamp(value, UTC).astimezone().strftime("%d %b %H:%M:%S"))
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return Text(harmless(text, keep="\n"))


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
