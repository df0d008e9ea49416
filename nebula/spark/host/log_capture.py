"""Log capture: what a job's code prints or logs in Python goes into the job's log as well."""

from __future__ import annotations

import fcntl
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, TextIO, cast

__all__ = ["Hearer", "bound_output", "heard", "hearer_of_thread", "listen", "stop_listening"]

# Between two flushes; a log keeps no more. A job that prints in a loop must not keep its service busy.
_MOST_LINES: Final = 1000
_MOST_CHARACTERS: Final = 4000

# Of what a job logs, lines that do not wait for the next flush: the last ones before a crash say why.
_AT_ONCE: Final = 100

# The file that the host, its JVM and their children print to: beyond the first size it is cut to the second.
_MOST_BYTES: Final = 8 * 1024 * 1024
_KEPT_BYTES: Final = 1024 * 1024

_hearer: ContextVar[Hearer | None] = ContextVar("hearer", default=None)


class Hearer:
    """Takes what one job writes to its standard streams, and gives it on as lines.

    From any thread.

    Args:
        log: takes a line.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._lock, self._giving = threading.Lock(), threading.Lock()
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)
        self._left_out, self._at_once = 0, _AT_ONCE
        self._rest = ""

    def write(self, text: str) -> None:
        """Take a piece. Blank lines say nothing."""
        with self._lock:
            *complete, self._rest = (self._rest + text).split("\n")
            if len(self._rest) > _MOST_CHARACTERS:
                complete.append(self._rest)
                self._rest = ""
            for line in complete:
                self._add(line)

    def log(self, text: str) -> None:
        """Take a line, or several that belong together. Given on at once, unless there are too many."""
        with self._lock:
            self._add(text)
            # With those that were printed before, which are not to be more for it.
            is_soon = len(self._lines) <= self._at_once
            if is_soon:
                self._at_once -= len(self._lines)
        # The lock may be held by a thread of the process that this one was forked from: never wait.
        if is_soon and self._giving.acquire(blocking=False):
            try:
                self._give()
            finally:
                self._giving.release()

    def abandon(self) -> None:
        """This process was forked, whatever another thread did then: what was not given on is another's."""
        self._lock, self._giving = threading.Lock(), threading.Lock()

    def flush(self) -> None:
        """Give on the lines that are complete: they have been when this returns, by any thread."""
        with self._giving:
            self._give()
        with self._lock:
            self._at_once = _AT_ONCE

    def close(self) -> None:
        """Give on what there is, also a line without an end."""
        with self._lock:
            rest, self._rest = self._rest, ""
            self._add(rest)
        self.flush()

    def _give(self) -> None:
        with self._lock:
            lines, left_out = list(self._lines), self._left_out
            self._lines.clear()
            self._left_out = 0
        if left_out:
            self._log(f"… {left_out:,} lines came too fast and are left out")
        for line in lines:
            self._log(line)

    def _add(self, line: str) -> None:
        if line.strip():
            self._left_out += len(self._lines) == _MOST_LINES
            # One more than is kept of a line, to show that it was cut.
            self._lines.append(line.rstrip()[-_MOST_CHARACTERS - 1 :])


class _Heard:
    """A stream whose text is heard by the job in whose thread it is written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if (hearer := _hearer.get()) is not None:
            hearer.write(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def listen() -> None:
    """Have this process's standard streams heard. What logs to them, at any time later, is heard too."""
    sys.stdout, sys.stderr = (cast(TextIO, _Heard(stream)) for stream in (sys.stdout, sys.stderr))


def stop_listening() -> None:
    """What this thread writes from now on is only written, in a process that was forked."""
    if (hearer := _hearer.get()) is not None:
        hearer.abandon()
    _hearer.set(None)


def hearer_of_thread() -> Hearer | None:
    """The hearer of what this thread writes."""
    return _hearer.get()


@contextmanager
def heard(hearer: Hearer) -> Iterator[None]:
    """What this thread writes in the block is the job's, and has been given on when it ends."""
    token = _hearer.set(hearer)
    try:
        yield
    finally:
        _hearer.reset(token)
        hearer.close()


def bound_output(descriptor: int = 2) -> None:
    """Where the file has grown beyond 8 MiB, leave the last MiB of it. Call it now and then.

    It stays the same file: a JVM and Python's workers hold it open for as long as they live. What one of them
    writes at this very moment may be lost.

    Args:
        descriptor: open for reading and appending; with any other nothing is done.
    """
    with suppress(OSError):
        size = os.fstat(descriptor).st_size
        # A writer that does not append would write on at the old end, after a hole.
        if size <= _MOST_BYTES or not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND:
            return
        kept = os.pread(descriptor, _KEPT_BYTES, size - _KEPT_BYTES)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, b"[... %d bytes are left out]\n" % (size - len(kept)) + kept)
