"""Heads of one sender that differ in a few values only, recognised by what they have in common.

Theory. A sender's frames mostly have the same header lines in the same order. They differ in a few values: an
id, a timestamp, the receipt that they ask for, the length of the body. A pattern is made from one head, and
learns from others with the same names which values differ. The bytes between these are compared as they are.

Mostly each value is as long as in an earlier head. Where everything stands in such heads is a *layout*. Its
*form* has a letter for each byte in the usual form, so that two heads with the same form have their lines at
the same places. Then nothing has to be searched for. A line that is passed on may even have another name or
value than before, since it goes out as it came, unless the new name is one that is read or dropped. A pattern
has several layouts, because a length of the body has one to five digits. In other heads an expression finds
the values. It is made when it is needed for the first time, which costs as much as reading fifty heads.

This takes a fraction of the time of reading the lines, and finds the same headers. What it saves, and why
other ways were not taken: docs/decisions/0059.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from nebula.stomp.dialects import Dialect
from nebula.stomp.frames import Memo
from nebula.stomp.header_lines import ODD_VALUES, USUAL, HeaderNames

# What a line is to the receiver.
_KEY: Final = 0  # read, and the same in all heads of a pattern
_HEADER: Final = 1  # read
_UNREAD: Final = 2  # passed on
_LENGTH: Final = 3
_RECEIPT: Final = 4

_OWN_ROLES: Final = {"content-length": _LENGTH, "receipt": _RECEIPT}

# Marks of the bytes of a head whose form is known.
_SAME: Final = "s"
_VALUE: Final = "v"  # of one that is read and differs
_PASSED_ON: Final = "p"
_TELLING: Final = "t"  # passed on, and the same
_COLONS: Final = "c"  # of a value with colons that is passed on

# A longer number is too large, or begins with zeros: reading the head finds out.
_MOST_DIGITS: Final = 9
# A letter for each byte in the usual form, so that `isalpha` says whether a value has that form. LF and colon
# stay as they are, since a head is made of them.
_FORM: Final = bytes(97 if byte in USUAL else byte if byte in b"\n:" else 0 for byte in range(256))
# The same, but letters that are no hexadecimal digits stay too: in most heads the values that differ are
# numbers or hexadecimal, and such a letter tells most names from others.
_LETTERS: Final = b"ghijklmnopqrstuvwxyzGHIJKLMNOPQRSTUVWXYZ"
_STRICT_FORM: Final = bytes(byte if byte in _LETTERS else _FORM[byte] for byte in range(256))
# A layout costs as much as searching some ten heads. So each comes after more heads that had to be searched
# than the one before, up to this many more.
_FEWEST_SEARCHES: Final = 16
_MOST_SEARCHES: Final = 1024
# Enough for the lengths of most bodies. Each one costs the heads of no layout two comparisons.
_MOST_LAYOUTS: Final = 4
_LF: Final = 10
# What formats a value as nothing.
_NOTHING: Final = b"%.0b"


class KnownHead:
    """A head that was read, or with `HeadPattern` the last one of many.

    Args:
        head: as it came, without the empty line.

    Attributes:
        command: SEND, MESSAGE, …
        headers: those that are read; the first of repeated ones counts.
        length: of the body.
        unread: the lines that are passed on.
        memo: of all heads that share `headers`; None: none do.
        receipt: what it asks for, or None.
    """

    __slots__ = ("_head", "command", "headers", "length", "memo", "receipt", "unread")

    def __init__(
        self,
        head: bytes,
        command: str,
        headers: dict[str, str],
        length: int,
        unread: bytes,
        memo: Memo | None,
    ) -> None:
        self._head = head
        self.command, self.headers, self.length = command, headers, length
        self.unread, self.memo = unread, memo
        self.receipt: str | None = None

    # A number and attributes, because a tuple would cost more to make and to take apart.
    def match(self, data: bytes, position: int) -> int:
        """Recognise this head at a position, with the empty line behind it.

        Returns:
            Where the body begins; -1: it is another head, or it is not complete.
        """
        end = position + len(self._head)
        is_ended = end + 1 < len(data) and data[end] == _LF and data[end + 1] == _LF
        return end + 2 if is_ended and data[position:end] == self._head else -1


class Line:
    """A header line, as it came.

    Attributes:
        name: with the LF before it and the colon.
        value: what follows.
        role: what it is to the receiver.
        marks: what each byte of `name` is in heads of the same form.
        is_told_by_form: whether the strict form tells its name from those of lines that are not passed on.
        header: its name among the headers; None: it is not one of them, or never differs.
    """

    __slots__ = ("header", "is_told_by_form", "marks", "name", "role", "value")

    def __init__(self, name: bytes, value: bytes, role: int, header: str | None) -> None:
        self.name, self.value, self.role, self.header = name, value, role, header
        self.marks, self.is_told_by_form = _SAME * len(name), False

    def mark_passed_on(self, others: Iterable[str]) -> None:
        """Find out how much of its name has to be compared, as it is passed on.

        A head of the same form may have another name there, and it does no harm unless it is one of `others`,
        the lines that are read or dropped. Only names of the same length can be. One byte that none of them
        has in its place rules them out. Without such a byte the whole name is compared.
        """
        name = self.name[1:-1].decode()
        alike = [each for each in others if len(each) == len(name)]
        telling = [at for at, letter in enumerate(name) if all(each[at] != letter for each in alike)]
        self.is_told_by_form = not alike or any(ord(name[at]) in _LETTERS for at in telling)
        self.marks = _TELLING * len(self.name)
        if telling:
            mark = _TELLING if alike else _PASSED_ON
            self.marks = (_PASSED_ON * (1 + telling[0]) + mark).ljust(len(self.name), _PASSED_ON)


def lines_of(head: bytes, dialect: Dialect, names: HeaderNames | None) -> list[Line]:
    """The lines of a head; none if one is repeated or dropped, so that it has no pattern.

    Args:
        head: without faults.
        dialect: in which it is written.
        names: of the headers that are read; None: all are.
    """
    lines: list[Line] = []
    known, others = (set(), set()) if names is None else (set(names.dropped), names.read | names.dropped)
    for line in head.decode().split("\n")[1:]:
        name, _, value = line.partition(":")
        usual_role = _HEADER if names is None else _KEY if name in names.read else _UNREAD
        role = _OWN_ROLES.get(name, usual_role)
        if name in known and (role != _RECEIPT or _RECEIPT in [one.role for one in lines]):
            return []
        known.add(name)
        header = dialect.unescape(name) if names is None and role != _RECEIPT else None
        lines.append(Line(f"\n{name}:".encode(), value.encode(), role, header))
        if role == _UNREAD:
            lines[-1].mark_passed_on(others)
    return lines


def _runs(marks: str, wanted: str) -> list[tuple[int, int]]:
    """Where the bytes begin and end that have one of these marks."""
    runs: list[tuple[int, int]] = []
    end = 0
    for is_wanted, run in groupby(marks, lambda mark: mark in wanted):
        begin, end = end, end + len([*run])
        if is_wanted:
            runs.append((begin, end))
    return runs


class _Layout:
    """Where everything stands in the heads of a pattern whose values are as long as in one of them.

    Args:
        pattern: of these heads.
        head: this one, with the empty line behind it.
        table: gives a head its form.

    Attributes:
        size: of a head.
    """

    __slots__ = ("_begin", "_form", "_more_pieces", "_same", "_stop", "_table", "_values", "size")

    def __init__(self, pattern: HeadPattern, head: bytes, table: bytes) -> None:
        # A form has each LF, each colon, and nothing that is escaped.
        self.size, self._table, self._form = len(head), table, head.translate(table)
        command, *lines = head[:-2].split(b"\n")
        marks = _SAME * len(command)
        escaped: list[tuple[int, int]] = []
        for place, (line, text) in enumerate(zip(pattern.lines, lines, strict=True)):
            if line.role == _UNREAD:
                mark = _COLONS if text.count(b":") > 1 else _PASSED_ON
            else:
                mark = _VALUE if place in pattern.differing else _SAME
            is_told = line.is_told_by_form and table is _STRICT_FORM
            marks += _PASSED_ON * len(line.name) if is_told else line.marks
            begin = len(marks)
            marks += mark * (len(text) + 1 - len(line.name))
            if 0 in text.translate(_FORM):
                # With an escape, of which a form says nothing. If the value differs, there is no layout.
                escaped.append((begin, len(marks)))
        same = _runs(marks, _SAME + _TELLING) + escaped
        self._same = [(begin, stop, head[begin:stop]) for begin, stop in same]
        self._values = _runs(marks, _VALUE)
        pieces = [(begin, stop, False) for begin, stop in _runs(marks, _PASSED_ON + _TELLING)]
        pieces += [(begin, stop, True) for begin, stop in _runs(marks, _COLONS)]
        (self._begin, self._stop, _), *self._more_pieces = sorted(pieces) or [(0, 0, False)]

    def fits(self, head: bytes) -> bool:
        """Whether a head of this size has the form, and what has to be the same."""
        if head.translate(self._table) != self._form:
            return False
        for begin, stop, text in self._same:  # noqa: SIM110  # interpreted, a generator takes longer
            if head[begin:stop] != text:
                return False
        return True

    def values(self, head: bytes) -> list[bytes]:
        """Those that are read and differ."""
        return [head[begin:stop] for begin, stop in self._values]

    def unread(self, head: bytes) -> bytes:
        """The lines that are passed on."""
        unread = head[self._begin : self._stop]
        for begin, stop, has_colons in self._more_pieces:
            piece = head[begin:stop]
            # Not `+=`, which takes twice as long when it is compiled.
            unread = unread + (_escaped(piece) if has_colons else piece)
        return unread


class HeadPattern(KnownHead):
    """Heads with the same names in the same order.

    Args:
        known: one of these heads.
        lines: of it.
        dialect: in which values are escaped.
        most_bytes: of a head that is recognised; longer ones may break a limit.

    Attributes:
        begin: what these heads begin with.
        lines: of one of them.
        differing: the places of those whose values differ.
    """

    def __init__(self, known: KnownHead, lines: list[Line], dialect: Dialect, most_bytes: int) -> None:
        super().__init__(b"", known.command, known.headers, known.length, b"", known.memo)
        # Where all headers are read, each frame has headers of its own, which its receiver may change.
        self._is_copied = any(line.header is not None for line in lines)
        self._same_headers = dict(known.headers)
        self.lines, self._dialect, self._most_bytes = lines, dialect, most_bytes
        self._arrange({place for place, line in enumerate(lines) if line.role == _RECEIPT})

    def learn(self, lines: Sequence[Line]) -> bool:
        """Learn from the lines of another head which values differ. False: it is of another kind."""
        pairs = list(zip(self.lines, lines, strict=False))
        if len(lines) != len(self.lines) or any(own.name != line.name for own, line in pairs):
            return False
        differing = {place for place, (own, line) in enumerate(pairs) if own.value != line.value}
        if any(self.lines[place].role == _KEY for place in differing):
            return False
        self._arrange(self.differing | differing)
        return True

    def _arrange(self, differing: set[int]) -> None:
        self.differing = differing
        texts = [self.command.encode()]  # what stands before, between and after the values that differ
        unread = b""
        slots: list[Line] = []
        for place, line in enumerate(self.lines):
            differs = place in differing
            texts[-1] += line.name if differs else line.name + line.value
            if line.role == _UNREAD:
                unread += (line.name if differs else line.name + _escaped(line.value)).replace(b"%", b"%%")
            if differs:
                unread += b"%b" if line.role == _UNREAD else _NOTHING
                slots.append(line)
                texts.append(b"")
        texts[-1] += b"\n\n"
        self.begin, self._texts = texts[0], texts
        self._template = unread if unread.replace(_NOTHING, b"") else b""
        if not differing:
            self.unread = unread % ()
        # Of the values that differ: those that are not only passed on.
        self._places = [place for place, line in enumerate(slots) if line.role != _UNREAD]
        self._read_lines = [slots[place] for place in self._places]
        self._is_read = bool(self._read_lines) or self._is_copied
        self._expression: re.Pattern[bytes] | None = None
        self._searches, self._next_layout = 0, _FEWEST_SEARCHES
        self._layouts: list[_Layout] = []

    def match(self, data: bytes, position: int) -> int:
        """Recognise a head of this pattern; the attributes say what was read."""
        for layout in self._layouts:
            end = position + layout.size
            # Most other layouts end elsewhere, which costs less to see than a different form.
            if end > len(data) or data[end - 1] != _LF or data[end - 2] != _LF:
                continue
            head = data[position:end]
            # In heads of the same form the values end at the same places.
            if layout.fits(head):
                self.unread = layout.unread(head)
                is_like = not self._is_read or self._read(layout.values(head), is_odd=False)
                return end if is_like else -1
        return self._search(data, position)

    def _search(self, data: bytes, position: int) -> int:
        """Recognise a head whose values may have other lengths."""
        if len(self._texts) == 1:  # no value differs
            end = position + len(self.begin)
            if data[position:end] != self.begin:
                return -1
            return end if not self._is_read or self._read((), is_odd=False) else -1
        if self._expression is None:
            self._expression = re.compile(b"(.*+)".join(map(re.escape, self._texts)))
        found = self._expression.match(data, position)
        if found is None or (end := found.end()) - position > self._most_bytes:
            return -1
        values: tuple[bytes, ...] = found.groups()
        all_values = b" ".join(values)
        is_odd = not all_values.translate(_FORM).isalpha()
        if is_odd and ODD_VALUES.fullmatch(all_values) is None:
            return -1
        self._searches += 1
        # A form says nothing of escapes, and what is empty cannot be cut out.
        if self._searches >= self._next_layout and not (is_odd and b"\\" in all_values) and all(values):
            self._next_layout += min(self._next_layout, _MOST_SEARCHES)
            layout = _Layout(self, data[position:end], self._table_for(values))
            # What comes most often was searched first, so the oldest layout is tried first.
            self._layouts = [*self._layouts[1 - _MOST_LAYOUTS :], layout]
        self.unread = self._template and self._template % (tuple(map(_escaped, values)) if is_odd else values)
        return end if self._read([values[place] for place in self._places], is_odd=is_odd) else -1

    def _table_for(self, values: Sequence[bytes]) -> bytes:
        """The strict one, if the values that differ have no letters for it, or those of other heads."""
        for value, place in zip(values, sorted(self.differing), strict=True):
            form = value.translate(_STRICT_FORM)
            if form not in (value.translate(_FORM), self.lines[place].value.translate(_STRICT_FORM)):
                return _FORM
        return _STRICT_FORM

    def _read(self, values: Sequence[bytes], *, is_odd: bool) -> bool:
        """Note the values that are read. False: the head is not like the others, and must be read itself."""
        if self._is_copied:
            self.headers = self._same_headers.copy()
        for place, line in enumerate(self._read_lines):
            value = values[place]
            if line.role == _LENGTH:
                if len(value) > _MOST_DIGITS or not value.isdigit():
                    return False
                self.length = int(value)
                if line.header is None:
                    continue
            text = self._dialect.unescape(value.decode()) if is_odd else value.decode()
            if line.role == _RECEIPT:
                self.receipt = text
            elif line.header is not None:
                self.headers[line.header] = text
        return True


def _escaped(value: bytes) -> bytes:
    return value.replace(b":", b"\\c")
