"""The reader's end of one stream: order, gaps, credit. No I/O, no clock."""

from __future__ import annotations

from nebula.rpc.errors import StreamBroken


class Inflow:
    """Judges what comes by a stream, and says when to give credit.

    What comes is judged twice: when it arrives, by its headers, so that a service which sends more than it
    may cannot fill our memory; and when it is read, as only then the number of its items is known.

    Args:
        credit: items that may be under way or unread, from 1.

    Attributes:
        step: items that the reader should take at a time: each time credit goes back, so that the next ones
            are under way while these are read.
        next: the number of the next item to be read.
    """

    def __init__(self, credit: int) -> None:
        self.step = max(1, credit // 2)
        self.next = 0
        # Items from this number on were not asked for.
        self._end = credit
        self._last = -1
        self._owed = 0
        self._is_ended = False

    def arrive(self, seq: int, *, is_end: bool) -> None:
        """A part has come, whose first item has this number.

        Args:
            seq: as it says.
            is_end: it is the last one: it may be empty.

        Raises:
            StreamBroken: it cannot be the next one.
        """
        if self._is_ended:
            raise StreamBroken("items came after the stream's end")
        if seq <= self._last:
            raise StreamBroken(
                "the stream began anew: the instance that sent it is gone"
                if seq == 0
                else f"item {seq} came after item {self._last}"
            )
        if seq >= self._end and not (is_end and seq == self._end):
            raise StreamBroken(f"item {seq} came, but credit was given for {self._end}")
        self._last = seq
        self._is_ended = is_end

    def read(self, seq: int, count: int) -> None:
        """A part is read: after `arrive`, in the same order.

        Raises:
            StreamBroken: items are missing before it, or there are more than were asked for.
        """
        if seq != self.next:
            raise StreamBroken(f"items {self.next} to {seq - 1} did not come")
        self.next += count
        if self.next > self._end:
            raise StreamBroken(f"{self.next} items came, but credit was given for {self._end}")

    def consume(self, count: int) -> int:
        """The reader is done with so many items. Returns the credit to give now, 0 for none yet."""
        self._owed += count
        return self.give() if self._owed >= self.step else 0

    def give(self) -> int:
        """All credit that is owed, be it little: the reader is slow, and says that it is still there."""
        more, self._owed = self._owed, 0
        self._end += more
        return more
