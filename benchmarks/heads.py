"""Heads of SENDs that differ in every message, as those of most clients do.

A head is header lines with marks: each `#` becomes a random hexadecimal digit, and `NOW` the milliseconds of
the moment. The values come from no cycle, so that a table of heads that were seen before helps no broker.

All frames of one head have the same length, so a block of them is filled column by column: one slice with a
stride for each `#`. Formatting each message by itself would cost the load more than the broker's work.
"""

from __future__ import annotations

import os
import time

from benchmarks.wire import message

_PER_BLOCK = 256

CORRELATION = f"content-type:text/plain\ncorrelation-id:{'#' * 32}\ntimestamp:NOW\npriority:4\n"
TRACEPARENT = f"content-type:application/json\ntraceparent:00-{'#' * 32}-{'#' * 16}-01\n"
IDS = f"correlation-id:{'#' * 16}\n"
# Twelve lines with `destination` before and `content-length` after them, as a JMS client and its application
# set them together.
JMS = (
    "content-type:application/json\n"
    f"correlation-id:{'#' * 32}\n"
    "timestamp:NOW\n"
    "type:order.placed\n"
    "priority:4\n"
    "tenant:north\n"
    "app-id:orders\n"
    f"customer:{'#' * 16}\n"
    f"order:{'#' * 16}\n"
    "region:eu-central\n"
)


class Frames:
    """SENDs with the usual body to one destination, as many at a time as are wanted.

    Args:
        head: whole header lines, with marks where messages differ; without a mark all frames are the same.
    """

    def __init__(self, destination: str, head: str = "") -> None:
        self._frame = message(destination, head)
        self._size = len(_at_this_moment(self._frame))
        self._differs = b"#" in self._frame
        self._made = b""
        self._taken_bytes = 0

    def take(self, count: int) -> bytes:
        """The next frames of this number, in one piece."""
        if not self._differs:
            return self._frame * count
        begin, end = self._taken_bytes, self._taken_bytes + count * self._size
        if end > len(self._made):
            block = _filled(_at_this_moment(self._frame), max(count, _PER_BLOCK))
            self._made = self._made[begin:] + block
            begin, end = 0, end - begin
        self._taken_bytes = end
        return self._made[begin:end]


def _at_this_moment(frame: bytes) -> bytes:
    # Many messages of one millisecond have the same time, as those of every fast sender.
    return frame.replace(b"NOW", b"%d" % (time.time_ns() // 1_000_000))


def _filled(frame: bytes, count: int) -> bytes:
    block = bytearray(frame * count)
    columns = [place for place, byte in enumerate(frame) if byte == ord("#")]
    digits = os.urandom(len(columns) * count // 2 + 1).hex().encode()
    for number, column in enumerate(columns):
        block[column :: len(frame)] = digits[number * count : (number + 1) * count]
    return bytes(block)
