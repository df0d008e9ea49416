"""Bytes and frames that connections have read and written.

Counting costs an addition for each read and write, and no more.
"""

from __future__ import annotations


class Traffic:
    """Bytes and frames of a connection, or of many together.

    Attributes:
        read_bytes: handed over by the transport.
        written_bytes: handed to the transport.
        sent_frames: deliveries, and frames of the protocol itself.
    """

    __slots__ = ("read_bytes", "sent_frames", "written_bytes")

    def __init__(self) -> None:
        self.read_bytes = 0
        self.written_bytes = 0
        self.sent_frames = 0

    def add(self, other: Traffic) -> None:
        """Add what another has counted."""
        self.read_bytes += other.read_bytes
        self.written_bytes += other.written_bytes
        self.sent_frames += other.sent_frames
