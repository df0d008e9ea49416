"""`flock` and its constants: locks on open files, which the system releases when their process ends."""

# Windows has no `flock`. Clients have to be importable there; whatever locks a folder fails with a sentence.

from __future__ import annotations

import errno
import sys

__all__ = ["LOCK_EX", "LOCK_NB", "LOCK_SH", "flock"]

if sys.platform != "win32":
    from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
else:
    LOCK_SH, LOCK_EX, LOCK_NB = 1, 2, 4

    def flock(fd: int, operation: int, /) -> None:  # noqa: ARG001
        """Raise OSError: there are no such locks."""
        raise OSError(errno.ENOTSUP, "folders are locked by flock, which this system does not have")
