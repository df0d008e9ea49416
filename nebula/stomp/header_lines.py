"""Header lines that a broker passes on as they came, without reading them.

Theory. A broker acts upon a few headers of a SEND, those that it knows by name. All others it hands to the
receivers, and what is in them is none of its business: reading them would cost a split, a decoding, a dict
and an encoding for each message. So the lines of a head are split in two: those that are *read*, and those
that are *passed on*, which stay bytes from the socket of the sender to those of the receivers.

Lines that are passed on have one form, whatever version the sender speaks: each begins with LF, has a name
and exactly one colon, and what the version cannot express is escaped as in STOMP 1.2. Nearly all lines have
this form when they arrive. It is the form of 1.1 too, and of 1.0, unless a backslash occurs.

All lines of a repeated header may be passed on: the first one counts, for the receivers too (A.3). Why lines
are passed on unread, and what that saves: docs/decisions/0059.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from nebula.stomp.dialects import V1_2, Dialect

DIALECT: Final = V1_2
"""That of lines that are passed on."""

# All that gives a line another form than the usual one, or ends it; and what may not be UTF-8.
_UNUSUAL: Final = b"\n:\\\r\0"
_USUAL_FORM: Final = b"\n:" * 1024

USUAL: Final = bytes(set(range(128)).difference(_UNUSUAL))
"""What names and values consist of in the usual form."""
# What it may contain, and not what it may not: a negated class takes up to twice as long to match.
_ODD_VALUE: Final = b"(?:[:%b]++|\\\\[cn\\\\])*+" % re.escape(USUAL)
ODD_VALUES: Final = re.compile(_ODD_VALUE)
"""Values that also have colons, or the escapes of 1.1; several with a space between them."""
LINES: Final = re.compile(b"(?:\n[%b]++:%b)*+" % (re.escape(USUAL), _ODD_VALUE))
"""Lines whose names are in the usual form and whose values match `ODD_VALUES`."""

LENGTH: Final = b"content-length:"


class HeaderNames:
    """The headers that are read, and those that are neither read nor passed on.

    Args:
        read: names of the former; none of them needs an escape. `content-length` is always read, and has an
            empty value among the headers: it differs from frame to frame.
        dropped: names of the latter; those that are read as well are read.
    """

    __slots__ = ("dropped", "read", "split")

    def __init__(self, read: Iterable[str], dropped: Iterable[str]) -> None:
        self.read = {"content-length", *read}
        self.dropped = set(dropped) - self.read
        names = [_one_of(each) for each in (self.read, self.dropped)]
        # All alternatives begin with the same byte: so line ends are searched for, at a fifth of the cost.
        # A line without a name counts as read, since reading it finds the fault.
        pattern = rb"\n(?:(%b|%b:[^\n]*+|:[^\n]*+)([^\n]*+)|%b:[^\n]*+)" % (LENGTH, *names)
        self.split = re.compile(pattern).split
        """Splits a head. Of three parts each the first are the unread lines; the second a line that is read,
        without LF, or None; the third what follows LENGTH, where the second is that."""


def _one_of(words: Iterable[str]) -> bytes:
    """A pattern for any of these words, as a tree of letters: the alternatives are tried at each line."""
    branches: dict[str, set[str]] = {}
    for word in words:
        branches.setdefault(word[:1], set()).add(word[1:])
    if branches.keys() <= {""}:
        return b""
    alternatives = [re.escape(letter.encode()) + _one_of(rests) for letter, rests in branches.items()]
    # The empty one last: it ends a word that others go on from.
    return b"(?:%b)" % b"|".join(sorted(alternatives, reverse=True))


def usual_lines(head: bytes) -> int:
    """How many lines a head has behind its first one, if each is ASCII with one colon and without an escape.

    Returns:
        -1: one line at least has another form.
    """
    # One pass over the bytes, instead of a search for each of what makes a line unusual.
    marks = head.translate(None, USUAL)
    return len(marks) // 2 if _USUAL_FORM.startswith(marks) and not len(marks) % 2 else -1


def write(pairs: Iterable[tuple[str, str]], dialect: Dialect = DIALECT) -> bytes:
    """Lines of these headers, as `dialect` writes them."""
    block = dialect.header_block(pairs)
    return b"\n" + block[:-1] if block else b""


def read(lines: bytes) -> tuple[tuple[str, str], ...]:
    """The headers of lines that are passed on, in their order, repeated ones too."""
    pairs = (line.partition(":") for line in lines.decode().split("\n")[1:])
    return tuple((DIALECT.unescape(name), DIALECT.unescape(value)) for name, _, value in pairs)


def start_of(name: str) -> bytes:
    """What the line of a header begins with, for `find`; the name needs no escape."""
    return f"\n{name}:".encode()


def find(lines: bytes, start: bytes) -> str | None:
    """The value of the first header among lines that are passed on whose line begins with this."""
    if (begin := lines.find(start)) < 0:
        return None
    begin, end = begin + len(start), lines.find(b"\n", begin + 1)
    return DIALECT.unescape((lines[begin:] if end < 0 else lines[begin:end]).decode())


def in_dialect(lines: bytes, dialect: Dialect) -> bytes:
    """Lines that are passed on, as `dialect` writes them."""
    return lines if dialect is DIALECT or b"\\" not in lines else write(read(lines), dialect)
