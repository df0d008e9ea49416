"""Free space on the store's disk, checked once a second.

The broker refuses persistent messages while space is low, before the disk is full and a batch fails.
"""

from __future__ import annotations

from collections.abc import Callable

from nebula.logs import get_logger

_log = get_logger("nebula.broker")

_LOOK_SECONDS = 1.0

# Once low, space counts as low until it is above this multiple of the minimum, so that small changes do not
# make it flip back and forth.
_ENOUGH = 1.25


class DiskWatch:
    """Watches the free space of a disk.

    Args:
        free_bytes: returns the free space; may raise OSError.
        min_free_bytes: below this, space is low.
    """

    def __init__(self, free_bytes: Callable[[], int], min_free_bytes: int) -> None:
        self._free_bytes = free_bytes
        self._min_free_bytes = min_free_bytes
        self._next_look = 0.0
        self.is_low = False
        """Whether space was low at the last check."""
        self.room_bytes = 0
        """Bytes that could still be written at the last check."""

    def look(self, now: float) -> bool:
        """Check the disk if the interval is over. Logs when it becomes low, and when it no longer is.

        Returns:
            Whether it was checked.
        """
        if now < self._next_look:
            return False
        self._next_look = now + _LOOK_SECONDS
        try:
            free_bytes = self._free_bytes()
        except OSError:
            # A failed look does not mean that the disk is full, so nothing changes.
            return False  # the next write will find out
        # What persistent messages may still take; the core divides it among the principals (`note_disk`).
        self.room_bytes = free_bytes - self._min_free_bytes
        enough_bytes = self._min_free_bytes * (_ENOUGH if self.is_low else 1.0)
        is_low = free_bytes < enough_bytes
        if is_low and not self.is_low:
            _log.error("disk nearly full", free_bytes=free_bytes, min_free_disk_bytes=self._min_free_bytes)
        elif self.is_low and not is_low:
            _log.warning("disk has room again", free_bytes=free_bytes)
        self.is_low = is_low
        return True
