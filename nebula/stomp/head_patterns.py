"""Heads of one sender that differ in a few values only, recognised by what they have in common.

Theory. A sender's frames mostly have the same header lines in the same order. They differ in a few values: an
id, a timestamp, the receipt that they ask for, the length of the body. A pattern is made from one head, and
learns from others with the same names which values differ: these are its *slots*. The bytes between the slots
are compared as they are. A value ends at the next LF, which is mostly at the same distance as in the head
before, so that nothing has to be searched for.

This takes a fraction of the time of reading the lines, and finds the same headers. What it saves, and why
other ways were not taken: docs/decisions/0059.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, TypeAlias

from nebula.stomp.dialects import Dialect
from nebula.stomp.header_block import Headers
from nebula.stomp.header_lines import LENGTH, ODD_VALUES, USUAL

# What a line is to the receiver.
_KEY: Final = 0  # read, and the same in all heads of a pattern
_HEADER: Final = 1  # read
_UNREAD: Final = 2  # passed on
_LENGTH: Final = 3
_RECEIPT: Final = 4

_OWN_ROLES: Final = {b"content-length": _LENGTH, b"receipt": _RECEIPT}
# A longer number is too large, or begins with zeros: reading the head finds out.
_MOST_DIGITS: Final = 9
# A letter for each byte in the usual form, so that `isalpha` says whether a value has that form. LF and colon
# stay as they are, since a head is made of them.
_FORM: Final = bytes(97 if byte in USUAL else byte if byte in b"\n:" else 0 for byte in range(256))
# A layout costs as much as finding the values of some ten heads. So each comes after more heads whose values
# had to be found than the one before, up to this many more.
_FEWEST_WALKS: Final = 16
_MOST_WALKS: Final = 1024

# What formats a value as nothing.
_NOTHING: Final = b"%.0b"

_Found: TypeAlias = tuple[Headers, int, bytes, int, str | None]


class Line:
    """A header line, as it came.

    Attributes:
        name: with the LF before it and the colon.
        value: what follows.
        role: what it is to the receiver.
        header: its name among the headers; None: it is not one of them, or never differs.
    """

    __slots__ = ("header", "name", "role", "value")

    def __init__(self, name: bytes, value: bytes, role: int, header: str | None = None) -> None:
        self.name, self.value, self.role, self.header = name, value, role, header


def lines_of_send(parts: Sequence[bytes | None]) -> list[Line]:
    """The lines of a SEND of which not all are read.

    Args:
        parts: as `HeaderNames.split` returns them. None of its lines is dropped, except one `receipt`.
    """
    lines: list[Line] = []
    for place, part in enumerate(parts):
        if place % 3 == 0:
            for line in (part or b"").split(b"\n")[1:]:
                name, _, value = line.partition(b":")
                lines.append(Line(b"\n%b:" % name, value, _UNREAD))
        elif place % 3 == 1:
            role = _RECEIPT if part is None else _LENGTH if part == LENGTH else _KEY
            lines.append(Line(b"\n%b" % (part or b"receipt:"), parts[place + 1] or b"", role))
    return lines


def lines_of(head: bytes, dialect: Dialect) -> list[Line]:
    """The lines of a head of which all are read."""
    lines: list[Line] = []
    for line in head.split(b"\n")[1:]:
        name, _, value = line.partition(b":")
        role = _OWN_ROLES.get(name, _HEADER)
        header = None if role == _RECEIPT else dialect.unescape(name.decode())
        lines.append(Line(b"\n%b:" % name, value, role, header))
    return lines


class _Layout:
    """Where everything stands in heads of a pattern whose values are as long as those of one head.

    Args:
        head: that one.
        lines: of the pattern, each with the place of its value among those that differ, or -1.
        texts: what stands before, between and after the values.
        values: of that head.

    Attributes:
        size: of such a head.
        form: the same for all of them.
        texts: cuts out what stands between the values.
        values: cuts out the values.
        unread: from where to where lines are passed on.
        has_colons: lines that are passed on have more than one.
    """

    __slots__ = ("form", "has_colons", "size", "texts", "unread", "values")

    def __init__(
        self,
        head: bytes,
        lines: Sequence[tuple[Line, int]],
        texts: tuple[bytes, ...],
        values: Sequence[bytes],
    ) -> None:
        self.size, self.form = len(head), head.translate(_FORM)
        self.unread: list[tuple[int, int]] = []
        self.has_colons = False
        end = head.index(b"\n")
        for line, place in lines:
            value = line.value if place < 0 else values[place]
            begin, end = end, end + len(line.name) + len(value)
            if line.role == _UNREAD:
                self.has_colons = self.has_colons or b":" in value
                # Lines that follow each other are one piece.
                before = self.unread.pop()[0] if self.unread and self.unread[-1][1] == begin else begin
                self.unread.append((before, end))
        sizes = [(len(text), len(value)) for text, value in zip(texts, [*values, b""], strict=True)]
        self.texts = Struct("".join(f"{text}s{value}x" for text, value in sizes)).unpack
        self.values = Struct("".join(f"{text}x{value}s" for text, value in sizes[:-1])).unpack_from


class HeadPattern:
    """Heads with the same names in the same order.

    Args:
        command: of these heads.
        lines: of one of them.
        headers: what is read of it.
        length: of its body.
        dialect: in which values are escaped.
        most_bytes: of a head that is recognised; longer ones may break a limit.

    Attributes:
        command: of these heads.
        begin: what they begin with.
    """

    def __init__(
        self,
        command: str,
        lines: list[Line],
        headers: Headers,
        length: int,
        dialect: Dialect,
        most_bytes: int,
    ) -> None:
        self.command = command
        self._lines, self._headers, self._length = lines, headers, length
        self._dialect, self._most_bytes = dialect, most_bytes
        self._differing = {place for place, line in enumerate(lines) if line.role == _RECEIPT}
        self._arrange()

    def learn(self, lines: Sequence[Line]) -> bool:
        """Learn from the lines of another head which values differ. False: it is of another kind."""
        if len(lines) != len(self._lines):
            return False
        differing = set(self._differing)
        for place, (own, line) in enumerate(zip(self._lines, lines, strict=True)):
            if own.name != line.name or own.role != line.role:
                return False
            if own.value != line.value:
                if own.role == _KEY:
                    return False
                differing.add(place)
        self._differing = differing
        self._arrange()
        return True

    def _arrange(self) -> None:
        texts = [self.command.encode()]  # what stands before, between and after the values that differ
        unread = b""
        slots: list[Line] = []
        for place, line in enumerate(self._lines):
            differs, is_unread = place in self._differing, line.role == _UNREAD
            texts[-1] += line.name if differs else line.name + line.value
            if is_unread:
                unread += (line.name if differs else line.name + _escaped(line.value)).replace(b"%", b"%%")
            if differs:
                unread += b"%b" if is_unread else _NOTHING
                slots.append(line)
                texts.append(b"")
        texts[-1] += b"\n\n"
        if not unread.replace(_NOTHING, b""):
            unread = b""
        self.begin, self._texts, self._unread = texts[0], tuple(texts), unread
        # Of the values that differ: those that are not only passed on.
        self._read = [
            (place, line.role, line.header) for place, line in enumerate(slots) if line.role != _UNREAD
        ]
        self._has_headers = any(line.header is not None for line in slots)
        self._layout: _Layout | None = None
        self._walks, self._next_layout = 0, _FEWEST_WALKS

    def match(self, data: bytes, position: int) -> _Found | None:
        """Recognise the head at a position, with the empty line behind it.

        Returns:
            What is read, the length of the body, the unread lines, where the body begins, and the receipt, or
            None if none is asked for; None: it is another head, or it is not complete.
        """
        layout = self._layout
        if layout is None:
            return self._walk(data, position)
        end = position + layout.size
        head = data[position:end]
        # The form has each LF, each colon, and nothing that is escaped: so the values end where they ended.
        if head.translate(_FORM) != layout.form or layout.texts(head) != self._texts:
            return self._walk(data, position)
        values: tuple[bytes, ...] = layout.values(head) if self._read or layout.has_colons else ()
        if layout.has_colons:
            unread = self._unread % tuple(map(_escaped, values))
        else:
            unread = b"".join([head[begin:stop] for begin, stop in layout.unread])
        return self._found(values, unread, end, is_odd=False)

    def _walk(self, data: bytes, position: int) -> _Found | None:
        """Go from value to value, however long each is."""
        values: list[bytes] = []
        end = position + len(self.begin)
        if data[position:end] != self.begin:
            return None
        for text in self._texts[1:]:
            begin, stop = end, data.find(b"\n", end)
            end = stop + len(text)
            if stop < 0 or data[stop:end] != text:
                return None
            values.append(data[begin:stop])
        if end - position > self._most_bytes:
            return None
        if not values:
            return self._headers, self._length, self._unread % (), end, None
        all_values = b" ".join(values)
        is_odd = not all_values.translate(_FORM).isalpha()
        if is_odd and ODD_VALUES.fullmatch(all_values) is None:
            return None
        self._walks += 1
        # A form says nothing of escapes.
        if self._walks >= self._next_layout and not (is_odd and b"\\" in all_values):
            self._next_layout += min(self._next_layout, _MOST_WALKS)
            self._layout = self._layout_of(data[position:end], values)
        unread = self._unread
        if unread:
            unread %= tuple(map(_escaped, values) if is_odd else values)
        return self._found(values, unread, end, is_odd=is_odd)

    def _layout_of(self, head: bytes, values: Sequence[bytes]) -> _Layout:
        places = iter(range(len(values)))
        lines = [
            (line, next(places) if place in self._differing else -1) for place, line in enumerate(self._lines)
        ]
        return _Layout(head, lines, self._texts, values)

    def _found(self, values: Sequence[bytes], unread: bytes, end: int, *, is_odd: bool) -> _Found | None:
        headers, length, receipt = self._headers, self._length, None
        if self._has_headers:
            headers = Headers(headers)
        for place, role, header in self._read:
            value = values[place]
            if role == _LENGTH:
                if len(value) > _MOST_DIGITS or not value.isdigit():
                    return None
                length = int(value)
                if header is None:
                    continue
            text = value.decode()
            if is_odd:
                text = self._dialect.unescape(text)
            if role == _RECEIPT:
                receipt = text
            elif header is not None:
                headers[header] = text
        return headers, length, unread, end, receipt


def _escaped(value: bytes) -> bytes:
    return value.replace(b":", b"\\c")
