"""What an engine host, its JVM and their children print, all into one file that must not fill its disk."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import Final

__all__ = ["bound_output"]

_MOST_BYTES: Final = 8 * 1024 * 1024
# Of a flood the end says what it was about.
_KEPT_BYTES: Final = 1024 * 1024


def bound_output(descriptor: int = 2) -> None:
    """Where the file has grown beyond 8 MiB, leave the last MiB of it. Call it now and then.

    It stays the same file: a JVM and Python's workers hold it open for as long as they live. What one of them
    writes at this very moment may be lost.

    Args:
        descriptor: open for reading and appending; with any other nothing is done.
    """
    with suppress(OSError):
        size = os.fstat(descriptor).st_size
        # Who does not append would write on at the old end, after a hole.
        if size <= _MOST_BYTES or not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND:
            return
        kept = os.pread(descriptor, _KEPT_BYTES, size - _KEPT_BYTES)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, b"[... %d bytes are left out]\n" % (size - len(kept)) + kept)
