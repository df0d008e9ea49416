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
# A letter for each byte in the usual form: `isalpha` says whether a value has no other.
_FORM: Final = bytes(97 if byte in USUAL else 32 for byte in range(256))


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
        # Texts are what stands between the values that differ.
        texts = [self.command.encode()]
        unread = b""
        roles: list[int] = []
        # Places among the values; -1: there is no such value.
        self._length_place = self._receipt_place = -1
        self._header_places: list[tuple[str, int]] = []
        for place, line in enumerate(self._lines):
            differs = place in self._differing
            texts[-1] += line.name if differs else line.name + line.value
            if line.role == _UNREAD:
                unread += (line.name if differs else line.name + escaped(line.value)).replace(b"%", b"%%")
            if not differs:
                continue
            unread += b"%b" if line.role == _UNREAD else b"%.0b"  # the latter writes nothing
            if line.role == _LENGTH:
                self._length_place = len(roles)
            elif line.role == _RECEIPT:
                self._receipt_place = len(roles)
            if line.header is not None:
                self._header_places.append((line.header, len(roles)))
            roles.append(line.role)
            texts.append(b"")
        texts[-1] += b"\n\n"
        self.begin, self._texts, self._unread = texts[0], tuple(texts), unread
        self._has_unread = _UNREAD in [line.role for line in self._lines]
        self._set_widths([0] * len(roles))

    def _set_widths(self, widths: Sequence[int]) -> None:
        sizes = [len(self._texts[0])]
        for text, width in zip(self._texts[1:], widths, strict=True):
            sizes += width, len(text)
        self._cut = Struct("".join(f"{size}s" for size in sizes))

    def _fits(self, data: bytes, position: int) -> bool:
        """Find the widths of the values in the head at a position. False: it is another one."""
        stop, widths = position, []
        for text in self._texts:
            end = stop + len(text)
            if stop < 0 or data[stop:end] != text:
                return False
            stop = data.find(b"\n", end)
            widths.append(stop - end)
        self._set_widths(widths[:-1])
        return True

    def match(self, data: bytes, position: int) -> tuple[Headers, int, bytes, int, str | None] | None:
        """Recognise the head at a position, with the empty line behind it.

        Returns:
            What is read, the length of the body, the unread lines, where the body begins, and the receipt, or
            None if none is asked for; None: it is another head, or it is not complete.
        """
        texts = self._texts
        # Mostly each value is as long as in the head before.
        end = position + self._cut.size
        pieces: tuple[bytes, ...] = self._cut.unpack_from(data, position) if end <= len(data) else ()
        if pieces[::2] != texts:
            if not self._fits(data, position):
                return None
            end = position + self._cut.size
            pieces = self._cut.unpack_from(data, position)
        if end - position > self._most_bytes:
            return None
        headers, length, receipt = self._headers, self._length, None
        values = pieces[1::2]
        if not values:
            return headers, length, self._unread % (), end, None
        text = b" ".join(values)
        is_odd = not text.translate(_FORM).isalpha()
        if is_odd:
            # A value with an LF in it too is found here: it was cut off at the wrong place.
            if ODD_VALUES.fullmatch(text) is None:
                return None
            values = tuple(map(escaped, values))
        if (place := self._length_place) >= 0:
            digits = values[place]
            if len(digits) > _MOST_DIGITS or not digits.isdigit():
                return None
            length = int(digits)
        if (place := self._receipt_place) >= 0:
            receipt = self._text(values[place], is_odd=is_odd)
        if self._header_places:
            headers = Headers(headers)
            for name, place in self._header_places:
                headers[name] = self._text(values[place], is_odd=is_odd)
        return headers, length, self._unread % values if self._has_unread else b"", end, receipt

    def _text(self, value: bytes, *, is_odd: bool) -> str:
        text = value.decode()
        return self._dialect.unescape(text) if is_odd else text


def escaped(value: bytes) -> bytes:
    """A value with colons as it is passed on."""
    return value.replace(b":", b"\\c")
