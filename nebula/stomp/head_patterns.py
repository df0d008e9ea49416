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
from typing import Final

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


class _Slot:
    """A value that differs, and what follows it.

    Attributes:
        line: the line that it is the value of.
        width: of the value in the last head.
        text: from the value to the next slot, or to the end of the head.
        unread: what of that text is passed on.
    """

    __slots__ = ("line", "text", "unread", "width")

    def __init__(self, line: Line) -> None:
        self.line, self.width = line, len(line.value)
        self.text = self.unread = b""


class HeadPattern:
    """Heads with the same names in the same order.

    Args:
        lines: of one of them.
        headers: what is read of it.
        length: of its body.
        dialect: in which values are escaped.
        most_bytes: of a head that is recognised; longer ones may break a limit.

    Attributes:
        command: of these heads.
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
        text, unread = self.command.encode(), b""
        self._slots: list[_Slot] = []
        self._has_headers = False
        for place, line in enumerate(self._lines):
            differs = place in self._differing
            text += line.name + b"" if differs else line.name + line.value
            if line.role == _UNREAD:
                unread += line.name if differs else line.name + line.value.replace(b":", b"\\c")
            if differs:
                self._end_slot(text, unread)
                text = unread = b""
                self._slots.append(_Slot(line))
                self._has_headers = self._has_headers or line.header is not None
        self._end_slot(text + b"\n\n", unread)

    def _end_slot(self, text: bytes, unread: bytes) -> None:
        if self._slots:
            self._slots[-1].text, self._slots[-1].unread = text, unread
        else:
            self._text, self._unread = text, unread

    def match(self, data: bytes, position: int) -> tuple[Headers, int, bytes, int, str | None] | None:
        """Recognise the head at a position, with the empty line behind it.

        Returns:
            What is read, the length of the body, the unread lines, where the body begins, and the receipt, or
            None if none is asked for; None: it is another head, or it is not complete.
        """
        end = position + len(self._text)
        if data[position:end] != self._text:
            return None
        values: list[bytes] = []
        for slot in self._slots:
            begin, stop = end, end + slot.width
            end = stop + len(slot.text)
            if data[stop:end] != slot.text:
                stop = data.find(b"\n", begin)
                end = stop + len(slot.text)
                if stop < 0 or data[stop:end] != slot.text:
                    return None
                slot.width = stop - begin
            values.append(data[begin:stop])
        if end - position > self._most_bytes:
            return None
        if not values:
            return self._headers, self._length, self._unread, end, None
        is_odd = False
        if (text := b" ".join(values)).translate(None, USUAL):
            # A value with an LF in it too is found here: it was cut off at the wrong place.
            if ODD_VALUES.fullmatch(text) is None:
                return None
            is_odd = True
        headers, length, receipt = self._headers, self._length, None
        if self._has_headers:
            headers = Headers(headers)
        unread = [self._unread]
        for slot, value in zip(self._slots, values, strict=True):
            line = slot.line
            if line.role == _UNREAD:
                unread.append(value.replace(b":", b"\\c") if is_odd else value)
            elif line.role == _RECEIPT:
                receipt = self._dialect.unescape(value.decode())
            else:
                if line.role == _LENGTH:
                    if len(value) > _MOST_DIGITS or not value.isdigit():
                        return None
                    length = int(value)
                if line.header is not None:
                    headers[line.header] = self._dialect.unescape(value.decode())
            unread.append(slot.unread)
        return headers, length, b"".join(unread), end, receipt
