"""A transport whose peer reads only as much as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Socket(asyncio.Transport):
    """A transport whose peer reads only as much as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.is_ended = False
        self.pause: Callable[[], None]
        self.resume: Callable[[], None]
        self._size = 0
        self._high_water = 64 * 1024

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self._high_water = high

    def get_write_buffer_size(self) -> int:
        return self._size

    def is_closing(self) -> bool:
        return self.is_ended

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_ended
        self._size += len(data)
        if self._size > self._high_water:
            self.pause()

    def write_eof(self) -> None:
        self.is_ended = True

    def read(self, size: int) -> None:
        self._size -= size
        if not self._size:
            self.resume()
