"""Bytes to whole frames, still as bytes: for faults, which strike between frames or within one.

Not the codec: what goes through here has to come out as it was, byte by byte.
"""

from __future__ import annotations

import re
from typing import Final

# STOMP 1.2 allows CR LF too.
_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
# In lower case only, as header names are case-sensitive (A.1).
_LENGTH: Final = re.compile(rb"\ncontent-length:(\d+)")
_LINE_ENDS: Final = b"\r\n"


class FrameSplitter:
    """Collects bytes and gives them back as pieces: a frame with its NUL, or a line end between frames."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The pieces that these bytes complete, in order. Joined, all pieces are all bytes."""
        self._held += data
        pieces: list[bytes] = []
        while size := self._first_size():
            pieces.append(self._held[:size])
            # Quadratic in the number of frames, which is fast enough for tests.
            self._held = self._held[size:]
        return pieces

    def _first_size(self) -> int:
        """How long the first piece is; 0: it is not whole yet."""
        held = self._held
        if not held:
            return 0
        # A.1.1: line ends between frames are heart-beats, and pieces of their own.
        if held[0] in _LINE_ENDS:
            return 1
        head = _HEAD_END.search(held)
        if head is None:
            return 0
        # The first one counts (A.3), and only in the head: a body may contain the same words.
        length = _LENGTH.search(held, 0, head.end())
        if length is None:
            # Without a length the body ends at the first NUL (A.1.3); not found is -1, and thus 0.
            return held.find(b"\0", head.end()) + 1
        size = head.end() + int(length[1]) + 1
        return size if len(held) >= size else 0


def command_of(piece: bytes) -> str:
    """What kind of frame it is; empty for a line end."""
    return piece.split(b"\n", 1)[0].rstrip(b"\r").decode()


def header_of(piece: bytes, name: str) -> str | None:
    """A header of a frame, without undoing escapes; None: it has none of that name."""
    head = _HEAD_END.split(piece, 1)[0].decode()
    for line in head.splitlines()[1:]:
        key, _, value = line.partition(":")
        if key == name:
            return value
    return None
