"""Header lines that a broker passes on as they came, without reading them.

Theory. A broker acts upon a few headers of a SEND, those that it knows by name. All others it hands to the
receivers, and what is in them is none of its business: reading them would cost a split, a decoding, a dict
and an encoding for each message. So the lines of a head are split in two: those that are *read*, and those
that are *passed on*, which stay bytes from the socket of the sender to those of the receivers.

Lines that are passed on have one form, whatever version the sender speaks: each begins with LF, has a name
and exactly one colon, and what the version cannot express is escaped as in STOMP 1.2. Nearly all lines have
this form when they arrive. It is the form of 1.1 too, and of 1.0, unless a backslash occurs.

A repeated header is passed on repeatedly: the first one counts, for the receivers too (A.3).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from nebula.stomp.dialects import V1_2, Dialect

NO_LINES: Final = b""
DIALECT: Final = V1_2
"""That of lines that are passed on."""

# All that gives a line another form than the usual one, or ends it.
_UNUSUAL: Final = b"\n:\\\r\0"
_USUAL: Final = bytes(set(range(256)).difference(_UNUSUAL))


class HeaderNames:
    """The headers that are read, and those that are neither read nor passed on.

    Args:
        read: names of the former; none of them needs an escape.
        dropped: names of the latter.
    """

    __slots__ = ("read", "split")

    def __init__(self, read: Iterable[str], dropped: Iterable[str]) -> None:
        self.read = frozenset(read)
        dropped = frozenset(dropped) - self.read
        # All alternatives begin with the same byte: so line ends are searched for, at a fifth of the cost.
        self.split = re.compile(
            rb"\n(?:(%b:[^\n]*+)|%b:[^\n]*+)" % (_one_of(self.read), _one_of(dropped))
        ).split
        """Splits a head: unread lines at even places, between them one that is read, without LF, or None."""


def _one_of(words: Iterable[str]) -> bytes:
    """A pattern for any of these words, as a tree of letters: the alternatives are tried at each line."""
    branches: dict[str, set[str]] = {}
    for word in words:
        branches.setdefault(word[:1], set()).add(word[1:])
    if branches.keys() <= {""}:
        return b""
    alternatives = [
        re.escape(letter.encode()) + _one_of(rests) if letter else b"" for letter, rests in branches.items()
    ]
    return (
        alternatives[0]
        if len(alternatives) == 1
        else b"(?:%b)" % b"|".join(sorted(alternatives, reverse=True))
    )


def has_usual_form(lines: bytes) -> bool:
    """Whether each line has a name, one colon and nothing that needs an escape."""
    return not lines.translate(None, _USUAL).replace(b"\n:", b"") and lines.find(b"\n:") < 0


def write(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Lines of these headers, in the form in which they are passed on."""
    escape = DIALECT.escape
    return "".join([f"\n{escape(name)}:{escape(value)}" for name, value in pairs]).encode("utf-8", "replace")


def read(lines: bytes) -> tuple[tuple[str, str], ...]:
    """The headers of lines that are passed on, in their order, repeated ones too."""
    if not lines:
        return ()
    pairs = (line.partition(":") for line in lines.decode()[1:].split("\n"))
    if b"\\" not in lines:
        return tuple((name, value) for name, _, value in pairs)
    return tuple((DIALECT.unescape(name), DIALECT.unescape(value)) for name, _, value in pairs)


def find(lines: bytes, name: str) -> str | None:
    """The value of the first header of this name among lines that are passed on."""
    begin = lines.find(f"\n{name}:".encode())
    if begin < 0:
        return None
    begin += len(name) + 2
    end = lines.find(b"\n", begin)
    return DIALECT.unescape((lines[begin:] if end < 0 else lines[begin:end]).decode())


def in_dialect(lines: bytes, dialect: Dialect) -> bytes:
    """Lines that are passed on, as `dialect` writes them."""
    if dialect is DIALECT or b"\\" not in lines:
        return lines
    return b"\n" + dialect.header_block(read(lines)).removesuffix(b"\n")
