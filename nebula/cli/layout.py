"""Terminal layout of tables and facts that never breaks a word.

Rows become a table if it fits. If only first cells are too long, such as names of queues, each of those gets
a line of its own with the rest of its row below. If that does not fit either, each row becomes a block. A
word longer than a line exceeds it: the terminal wraps it, and users can still copy it in one piece.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment, Segments
from rich.text import Text

__all__ = ["Facts", "Fitted", "Heading", "Rows", "Words"]

# Includes the spaces around a word, so that they are kept within a line.
_WORD: Final = re.compile(r"\s*\S+\s*")

_GAP = 2
_INDENT = 2

# Narrower first columns do not look like columns, and narrower texts are hard to read.
_NARROWEST_NAME = 8
_NARROWEST_TEXT = 24


@dataclass(frozen=True, slots=True)
class Heading:
    """The head of a column.

    Attributes:
        text: what it says, escaped.
        is_figure: cells are aligned to the right.
    """

    text: Text
    is_figure: bool = False


class Rows:
    """Rows of one kind, as rich draws them.

    Args:
        headings: of the columns.
        rows: escaped cells, one for each heading. They may have several lines.
    """

    def __init__(self, headings: Sequence[Heading], rows: Iterable[Sequence[Text]]) -> None:
        self._headings = headings
        # A list, because a live screen draws them again.
        self._rows = [list(row) for row in rows]

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """The lines, for this width."""
        width = options.max_width
        # The first of three layouts that fits, see docs/decisions/0050. Rich's own table would break words.
        if (widths := self._widths(width)) is None:
            return self._blocks(width)
        return self._table(widths)

    def _widths(self, width: int) -> list[int] | None:
        """Widths of columns that fit; None if no widths do."""
        heads = [_width_of(heading.text) for heading in self._headings]
        # By columns; without rows `zip` yields none, and only the headings count.
        cells = list(zip(*self._rows, strict=True)) or [()] * len(heads)
        widths = [max([head, *map(_width_of, column)]) for head, column in zip(heads, cells, strict=True)]
        missing = sum(widths) + _GAP * (len(widths) - 1) - width
        if missing <= 0:
            return widths
        return self._with_text_wrapped(widths, heads, cells, missing) or self._with_names_above(
            widths, heads, cells, missing, width
        )

    def _with_text_wrapped(
        self, widths: list[int], heads: list[int], cells: Sequence[Sequence[Text]], missing: int
    ) -> list[int] | None:
        """Widths with the widest column of several words narrowed."""
        words = [max([head, *map(_longest_word, column)]) for head, column in zip(heads, cells, strict=True)]
        # Not numbers: a wrapped number looks like two.
        texts = [place for place, heading in enumerate(self._headings) if not heading.is_figure]
        if not texts:
            return None
        widest = max(texts, key=lambda place: widths[place])
        narrower = widths[widest] - missing
        # It would break a word, or become a very narrow column.
        if narrower < max(words[widest], _NARROWEST_TEXT):
            return None
        return [*widths[:widest], narrower, *widths[widest + 1 :]]

    def _with_names_above(
        self, widths: list[int], heads: list[int], cells: Sequence[Sequence[Text]], missing: int, width: int
    ) -> list[int] | None:
        """Widths with a narrower first column, whose longer cells get lines of their own."""
        # The width that is left for the first column.
        room = widths[0] - missing
        if self._headings[0].is_figure or room < max(heads[0], _NARROWEST_NAME) or widths[0] > width:
            return None
        fitting = [found for found in map(_width_of, cells[0]) if found <= room]
        return [max([heads[0], *fitting]), *widths[1:]]

    def _table(self, widths: Sequence[int]) -> Iterator[Text]:
        heads = [_bold(heading.text) for heading in self._headings]
        # Without headings the table begins with its first row.
        if any(head.plain for head in heads):
            yield from self._line(heads, widths)
        for name, *others in self._rows:
            # A long name gets a line of its own, as in the output of `df`.
            is_above = _longest_word(name) > widths[0]
            if is_above:
                yield _whole(name)
            yield from self._line([Text() if is_above else name, *others], widths)

    def _line(self, cells: Sequence[Text], widths: Sequence[int]) -> Iterator[Text]:
        columns = [list(_wrapped(cell, width)) for cell, width in zip(cells, widths, strict=True)]
        for number in range(max(map(len, columns))):
            pieces = [column[number] if number < len(column) else Text() for column in columns]
            line = Text()
            for piece, width, heading in zip(pieces, widths, self._headings, strict=True):
                padding = " " * (width - piece.cell_len)
                parts = (padding, piece) if heading.is_figure else (piece, padding)
                line = Text.assemble(line, " " * _GAP if line else "", *parts)
            line.rstrip()
            yield _whole(line)

    def _blocks(self, width: int) -> Iterator[Text]:
        for row in self._rows:
            first, *others = [
                pair for pair in zip(self._headings, row, strict=True) if pair[1].plain.strip()
            ] or [(self._headings[0], Text("-"))]
            yield from _pair_alone(first, width, 0)
            line = Text()
            for pair in others:
                piece = _pair(pair)
                has_lines = "\n" in piece.plain
                if line and (has_lines or _INDENT + line.cell_len + len(", ,") + piece.cell_len > width):
                    yield _whole(Text(" " * _INDENT) + line + Text(","))
                    line = Text()
                if has_lines or _INDENT + piece.cell_len + len(",") > width:
                    yield from _pair_alone(pair, width, _INDENT)
                else:
                    line = Text.assemble(line, ", " if line else "", piece)
            if line:
                yield _whole(Text(" " * _INDENT) + line)


class Facts:
    """Names with their values, one below the other, as rich draws them.

    Args:
        facts: names and values, escaped.
    """

    def __init__(self, facts: Iterable[tuple[Text, Text]]) -> None:
        self._facts = list(facts)

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """The lines, for this width."""
        width = options.max_width
        # The value of a name longer than half a line goes below it, or that name would push all values to the
        # right edge.
        names = [found for name, _ in self._facts if (found := _width_of(name)) <= width // 2]
        lead = max(names, default=0) + _GAP
        for name, value in self._facts:
            room = width - lead
            if _width_of(name) > lead - _GAP or _longest_word(value) > room:
                yield _whole(_bold(name))
                yield from _indented(value, width, _INDENT)
                continue
            for number, line in enumerate(_wrapped(value, room)):
                head = _bold(name) if number == 0 else Text()
                yield _rstripped(Text.assemble(head, " " * (lead - head.cell_len), line))


class Words:
    """Text of one or several lines, as rich draws it.

    Args:
        text: escaped.
        indent: spaces before each line.
    """

    def __init__(self, text: Text, indent: int = 0) -> None:
        self._text, self._indent = text, indent

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """The lines, for this width."""
        return _indented(self._text, options.max_width, self._indent)


class Fitted:
    """Parts cut to the height of the screen, except for the last part, which is its last line."""

    def __init__(self, *parts: RenderableType) -> None:
        self._parts, self._last = parts[:-1], parts[-1]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """The lines that fit."""
        # Counted after layout: a row may take several lines.
        lines = console.render_lines(Group(*self._parts), options, pad=False)
        # Two lines are for the last part and the cursor.
        room = options.size.height - 2
        if len(lines) > room:
            cut = len(lines) - room + 1
            lines = [*lines[: room - 1], [Segment(f"… {cut} more lines")]]
        for line in lines:
            yield Segments([*line, Segment.line()])
        # Always shown, because it explains the keys.
        yield self._last


def _pair(pair: tuple[Heading, Text]) -> Text:
    heading, cell = pair
    return Text.assemble(_bold(heading.text), ": " if heading.text else "", cell)


def _pair_alone(pair: tuple[Heading, Text], width: int, indent: int) -> Iterator[Text]:
    """A heading with its cell on lines of their own."""
    heading, cell = pair
    whole = _pair(pair)
    if "\n" not in cell.plain and whole.cell_len + indent <= width:
        yield _whole(Text(" " * indent) + whole)
        return
    if heading.text:
        yield _whole(Text.assemble(" " * indent, _bold(heading.text), ":"))
    yield from _indented(cell, width, indent + _INDENT)


def _indented(cell: Text, width: int, indent: int) -> Iterator[Text]:
    # A long name gets a whole line.
    indent = max(0, min(indent, width - _longest_word(cell)))
    for line in _wrapped(cell, width - indent):
        yield _rstripped(Text(" " * indent) + line)


def _wrapped(cell: Text, width: int) -> Iterator[Text]:
    """Lines of whole words; a word that is longer than the width is a line of its own.

    Rich itself breaks such words, or cuts them off.
    """
    for line in cell.split("\n", allow_blank=True):
        breaks, column = [], 0
        # In cells, not characters: an ideograph takes two, a combining mark none.
        for word in _WORD.finditer(line.plain):
            # At the start of a line a word that is too long stays, and exceeds it.
            if column and column + cell_len(word[0].rstrip()) > width:
                breaks.append(word.start())
                column = 0
            column += cell_len(word[0])
        yield from map(_rstripped, line.divide(breaks))


def _whole(line: Text) -> Text:
    """A line that is not wrapped again."""
    # Otherwise rich would wrap it again at its own width, and cut it off.
    line.no_wrap, line.overflow = True, "ignore"
    return line


def _rstripped(line: Text) -> Text:
    line.rstrip()
    return _whole(line)


def _bold(heading: Text) -> Text:
    # A copy, because this Text is drawn again.
    bold = heading.copy()
    bold.stylize("bold")
    return bold


def _width_of(cell: Text) -> int:
    return max(map(cell_len, cell.plain.split("\n")))


def _longest_word(cell: Text) -> int:
    return max(map(cell_len, cell.plain.split()), default=0)
