"""The sender's end of one stream: credit, batches, numbers. No I/O, no clock: time is an argument."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from nebula.rpc.errors import VerbError

MOST_ITEMS: Final = 256
"""In one message, at most; and the credit of a reader that does not say how much it gives."""

MOST_BYTES: Final = 64 * 1024
"""Of items in one message, unless there is one alone."""

# More credit than that changes nothing: what is under way is limited by its octets before.
_MOST_CREDIT: Final = 1_000_000

# What the broker has not confirmed yet. Large items would else pile up in our link: credit counts items.
_MOST_UNCONFIRMED_BYTES: Final = 1024 * 1024

# So many signs of life fit into the time after which a silent peer is given up.
_BEATS: Final = 3

# Readers take us for dead after 30 s of silence, however long we wait for them.
_LONGEST_SILENCE: Final = 10.0


class Part(NamedTuple):
    """What one message carries: items as a JSON array, their number, and that of the first in the stream."""

    seq: int
    length: int
    items: bytes


class Outflow:
    """What may be sent, and in which parts.

    The handler is asked for an item only while there is `room` for it, so a slow reader slows it, and what is
    kept here is bounded by one batch.

    Args:
        credit: items that the reader takes at first.
        dump: writes items as a JSON array.
        idle: seconds after which a reader that owes credit and says nothing is given up.
        now: the time, on the clock of all later calls.

    Attributes:
        seq: the number of the next item: how many were sent.
        credit: items that may be sent.
    """

    def __init__(
        self, credit: int, dump: Callable[[Sequence[Any]], bytes], *, idle: float, now: float
    ) -> None:
        self.seq = 0
        self.credit = min(credit, _MOST_CREDIT)
        self._dump = dump
        self._idle = idle
        # Items of this stream that are about as much as a message should hold.
        self._batch = MOST_ITEMS
        self._unconfirmed_bytes = 0
        self._said_at = now
        self._heard_at = now

    @property
    def room(self) -> int:
        """Items that may be sent in one go; 0: none before `grant` or `confirm`."""
        if self._unconfirmed_bytes >= _MOST_UNCONFIRMED_BYTES:
            return 0
        return min(self.credit, self._batch)

    def pack(self, items: Sequence[Any], now: float) -> Iterator[Part]:
        """The parts that carry these items, in order: each counts as sent.

        Args:
            items: no more than there is room for.
            now: the time.

        Raises:
            VerbError, ValueError: an item cannot be sent. The parts with what is before it come first.
        """
        count = len(items)
        try:
            octets = self._dump(items)
        except (VerbError, ValueError):
            if count <= 1:
                raise
            octets = None
        if octets is None or (len(octets) > MOST_BYTES and count > 1):
            middle = count // 2
            yield from self.pack(items[:middle], now)
            yield from self.pack(items[middle:], now)
            return
        if count:
            self._batch = max(1, min(MOST_ITEMS, MOST_BYTES * count // len(octets)))
        part = Part(self.seq, count, octets)
        self.seq += count
        self.credit -= count
        if count and not self.credit:
            # From now on the reader owes us a word.
            self._heard_at = now
        self._unconfirmed_bytes += len(octets)
        self._said_at = now
        yield part

    def confirm(self, part: Part) -> None:
        """The broker has it."""
        self._unconfirmed_bytes -= len(part.items)

    def grant(self, more: int, now: float) -> None:
        """The reader takes so many more; 0 says that it is still there."""
        self.credit = min(self.credit + more, _MOST_CREDIT)
        self._heard_at = now

    def is_abandoned(self, now: float) -> bool:
        """The reader owes credit, and has said nothing for too long."""
        return not self.credit and now - self._heard_at >= self._idle

    def beat_is_due(self, now: float) -> bool:
        """Nothing was sent for so long that the reader should be told that we are still there."""
        return now - self._said_at >= min(self._idle / _BEATS, _LONGEST_SILENCE)

    def beat(self, now: float) -> None:
        """It was told."""
        self._said_at = now
