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
# Of widths for which a pattern remembers where it cuts.
_MAX_CUTS: Final = 16
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


class _Cut:
    """Heads of a pattern whose values have these widths.

    Attributes:
        size: of such a head.
        pieces: cuts it into what stands before, between and after the values, and these.
        unread: from where to where lines are passed on.
    """

    __slots__ = ("pieces", "size", "unread")

    def __init__(self, sizes: Sequence[int], unread: list[tuple[int, int]]) -> None:
        self.pieces = Struct("".join(f"{size}s" for size in sizes)).unpack_from
        self.size, self.unread = sum(sizes), unread


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
        # What stands between the values that differ.
        texts = [self.command.encode()]
        template = b""
        slots: list[Line] = []
        for place, line in enumerate(self._lines):
            differs, is_unread = place in self._differing, line.role == _UNREAD
            texts[-1] += line.name if differs else line.name + line.value
            if is_unread:
                template += (line.name if differs else line.name + _escaped(line.value)).replace(b"%", b"%%")
            if differs:
                template += b"%b" if is_unread else b"%.0b"  # the latter writes nothing
                slots.append(line)
                texts.append(b"")
        texts[-1] += b"\n\n"
        self.begin, self._texts, self._template = texts[0], tuple(texts), template
        self._has_colons = b"\\" in template
        roles = [line.role for line in slots]
        # Places among the values; -1: there is no such value.
        self._length_place = roles.index(_LENGTH) if _LENGTH in roles else -1
        self._receipt_place = roles.index(_RECEIPT) if _RECEIPT in roles else -1
        self._header_places = [(line.header, place) for place, line in enumerate(slots) if line.header]
        self._cuts: dict[tuple[int, ...], _Cut] = {}
        self._cut = self._cut_at(tuple(len(line.value) for line in slots))

    def _cut_at(self, widths: tuple[int, ...]) -> _Cut:
        """The cut for values of these widths."""
        if (known := self._cuts.get(widths)) is not None:
            return known
        if len(self._cuts) == _MAX_CUTS:
            self._cuts.clear()
        sizes = [len(self._texts[0])]
        for text, width in zip(self._texts[1:], widths, strict=True):
            sizes += width, len(text)
        unread: list[tuple[int, int]] = []
        end, slot = len(self.command), 0
        for place, line in enumerate(self._lines):
            begin, end = end, end + len(line.name) + len(line.value)
            if place in self._differing:
                end += widths[slot] - len(line.value)
                slot += 1
            if line.role == _UNREAD:
                # Lines that follow each other are one piece.
                before = unread.pop()[0] if unread and unread[-1][1] == begin else begin
                unread.append((before, end))
        self._cuts[widths] = cut = _Cut(sizes, unread)
        return cut

    def _find_cut(self, data: bytes, position: int) -> _Cut | None:
        """The cut for the head at a position. None: it is of another kind."""
        stop, widths = position, []
        for text in self._texts:
            end = stop + len(text)
            if stop < 0 or data[stop:end] != text:
                return None
            stop = data.find(b"\n", end)
            widths.append(stop - end)
        return self._cut_at(tuple(widths[:-1]))

    def match(self, data: bytes, position: int) -> tuple[Headers, int, bytes, int, str | None] | None:
        """Recognise the head at a position, with the empty line behind it.

        Returns:
            What is read, the length of the body, the unread lines, where the body begins, and the receipt, or
            None if none is asked for; None: it is another head, or it is not complete.
        """
        cut = self._cut
        end = position + cut.size
        # Mostly each value is as long as in the head before.
        pieces: tuple[bytes, ...] = cut.pieces(data, position) if end <= len(data) else ()
        if pieces[::2] != self._texts:
            if (found := self._find_cut(data, position)) is None:
                return None
            cut = self._cut = found
            end = position + cut.size
            pieces = cut.pieces(data, position)
        if end - position > self._most_bytes:
            return None
        values = pieces[1::2]
        is_odd = False
        if values and not (text := b" ".join(values)).translate(_FORM).isalpha():
            # A value with an LF in it too is found here: it was cut off at the wrong place.
            if ODD_VALUES.fullmatch(text) is None:
                return None
            is_odd = True
        headers, length, receipt = self._headers, self._length, None
        if (place := self._length_place) >= 0:
            digits = values[place]
            if len(digits) > _MOST_DIGITS or not digits.isdigit():
                return None
            length = int(digits)
        if (place := self._receipt_place) >= 0:
            receipt = self._text(values[place], is_odd=is_odd)
        if self._header_places:
            headers = self._read(values, is_odd=is_odd)
        if is_odd or self._has_colons:
            return headers, length, self._template % tuple(map(_escaped, values)), end, receipt
        unread = b""
        for begin, stop in cut.unread:
            unread += data[position + begin : position + stop]
        return headers, length, unread, end, receipt

    def _read(self, values: tuple[bytes, ...], *, is_odd: bool) -> Headers:
        headers = Headers(self._headers)
        for name, place in self._header_places:
            headers[name] = self._text(values[place], is_odd=is_odd)
        return headers

    def _text(self, value: bytes, *, is_odd: bool) -> str:
        text = value.decode()
        return self._dialect.unescape(text) if is_odd else text


def _escaped(value: bytes) -> bytes:
    return value.replace(b":", b"\\c")
