"""Credit of streams: both ends of one stream as plain state. No I/O, no clock: time is an argument.

A stream is many messages on one reply queue, so a fast handler could fill the reader's memory, and a slow
reader could not slow the handler. Credit closes that loop:

- The reader opens with credit for a number of items (`neb-credit` of the request). The sender never sends an
  item that no credit is left for: with none left, the handler is not asked for the next item.
- The reader gives credit back as items are consumed, half of the window at a time: the next half is under way
  while it works on this one, and a message of credit costs a fraction of an item.
- A stream must neither hang nor live for ever when one end is gone. Credit of 0 is a sign of life, and either
  end gives up on a peer that has been silent for too long.
- Credit counts items; memory is bytes. So the sender also limits the bytes that the broker has not confirmed,
  and splits batches: one message carries at most `MOST_ITEMS` and about `MOST_BYTES`.
- Items are numbered. The reader checks the number when a message arrives (no more than was asked for, never
  backwards) and again when it is read, as only then the count of its items is known. A gap, or a stream that
  starts over after its instance died, is `StreamBroken`: nothing is repeated silently.

Invariants: for the sender, items sent <= credit given; for the reader, items under way + unread <= window.
"""

# docs/decisions/0020: credit counts items, and the sender limits the bytes.
# A stream with a window of 4, so that credit is given back 2 at a time:
#
#     reader                                   sender
#       | request, neb-credit:4                  |
#       |--------------------------------------->|   credit 4
#       |        items 0 1 2, neb-stream-seq:0   |
#       |<---------------------------------------|   credit 1
#       | (the caller takes 0 and 1)             |
#       | neb-credit:2                           |
#       |--------------------------------------->|   credit 3
#       |           items 3 4 5, seq 3           |
#       |<---------------------------------------|   credit 0: the handler is not asked for item 6
#       | neb-credit:0   (alive, but slow)       |
#       |--------------------------------------->|   its silence begins anew
#       |        ...                             |
#       |     items 6, seq 6, neb-stream-end     |
#       |<---------------------------------------|
#
# Half of the window is the compromise between two costs. Credit for each item would double the messages;
# credit for all of it at once would leave the sender idle for a round trip after each window.
#
# A single counter is not enough for the sender. Credit is in items, because the reader knows its work by
# items; but 256 items of a megabyte would fill the broker. So `room` is 0 while a megabyte is unconfirmed,
# and the size of a batch is learned from the last one.
#
# The reader checks everything, because a service of another make may send anything: a number that goes back
# (the request was handled again, by another instance), a gap, more than was asked for.

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from nebula.rpc.errors import StreamBroken, VerbError

__all__ = ["MOST_BYTES", "MOST_ITEMS", "Inflow", "Outflow", "Part"]

MOST_ITEMS: Final = 256
"""Items in one message, at most; and the credit of a reader that names none."""

MOST_BYTES: Final = 64 * 1024
"""Bytes of items in one message; a single item may be larger."""

# More credit changes nothing: the bytes under way are limited before.
_MOST_CREDIT: Final = 1_000_000

# Bytes that the broker has not confirmed. Large items would pile up in the link: credit counts items.
_MOST_UNCONFIRMED_BYTES: Final = 1024 * 1024

# Signs of life within the time after which a silent peer is given up.
_BEATS: Final = 3

# Readers give up on us after 30 s of silence, however long we wait for them.
_LONGEST_SILENCE: Final = 10.0


class Part(NamedTuple):
    """What one message carries: items as a JSON array, their number, and that of the first in the stream."""

    seq: int
    length: int
    items: bytes


class Outflow:
    """The sender's end: what may be sent, and in which parts.

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
        # How many items of this stream fill a message, learned from the last one.
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
            items: no more than there is `room` for.
            now: the time.

        Raises:
            VerbError, ValueError: an item cannot be sent. The parts with what is before it come first.
        """
        count = len(items)
        try:
            encoded = self._dump(items)
        except (VerbError, ValueError):
            if count <= 1:
                raise
            encoded = None
        if encoded is None or (len(encoded) > MOST_BYTES and count > 1):
            middle = count // 2
            yield from self.pack(items[:middle], now)
            yield from self.pack(items[middle:], now)
            return
        if count:
            self._batch = max(1, min(MOST_ITEMS, MOST_BYTES * count // len(encoded)))
        part = Part(self.seq, count, encoded)
        self.seq += count
        self.credit -= count
        if count and not self.credit:
            # From now on it is the reader's turn to speak.
            self._heard_at = now
        self._unconfirmed_bytes += len(encoded)
        self._said_at = now
        yield part

    def confirm(self, part: Part) -> None:
        """The broker has it."""
        self._unconfirmed_bytes -= len(part.items)

    def grant(self, more: int, now: float) -> None:
        """The reader gives more credit; 0 says that it is still there."""
        self.credit = min(self.credit + more, _MOST_CREDIT)
        self._heard_at = now

    def is_abandoned(self, now: float) -> bool:
        """All credit is used up, and the reader has been silent for too long."""
        return not self.credit and now - self._heard_at >= self._idle

    def beat_is_due(self, now: float) -> bool:
        """Nothing was sent for a while: the reader is owed a sign of life."""
        return now - self._said_at >= min(self._idle / _BEATS, _LONGEST_SILENCE)

    def beat(self, now: float) -> None:
        """A sign of life was sent."""
        self._said_at = now


class Inflow:
    """The reader's end: checks what arrives, and says when to give credit.

    Args:
        credit: items that may be under way or unread, from 1.

    Attributes:
        step: items that the reader should take at a time: half of the window.
        next: the number of the next item to be read.
    """

    def __init__(self, credit: int) -> None:
        self.step = max(1, credit // 2)
        self.next = 0
        # No credit was given from this number on.
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
        """A part is read; parts are read in the order of `arrive`.

        Raises:
            StreamBroken: items are missing before it, or there are more than were asked for.
        """
        if seq != self.next:
            raise StreamBroken(f"items {self.next} to {seq - 1} did not come")
        self.next += count
        if self.next > self._end:
            raise StreamBroken(f"{self.next} items came, but credit was given for {self._end}")

    def consume(self, count: int) -> int:
        """The reader is done with a number of items. Returns the credit to give now, 0 for none yet."""
        self._owed += count
        return self.give() if self._owed >= self.step else 0

    def give(self) -> int:
        """All credit that is owed, even if it is little: a slow reader's sign of life."""
        more, self._owed = self._owed, 0
        self._end += more
        return more
