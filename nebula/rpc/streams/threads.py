"""A plain generator, run in one thread from its first item to its last."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Any


class ThreadedItems:
    """Puts what a generator yields into a deque that the loop empties.

    The thread is the generator's for as long as it lives: what it holds may be bound to it, as SQLite's
    connections are. It waits while the deque is full, so a slow reader slows it. There is no lock but for
    that waiting: of the deque and the flags each has one writer.

    Args:
        generator: not begun.
        ready: where items go.
        wake: called, from the thread, when there are items where there were none.
    """

    def __init__(
        self, generator: Generator[Any, Any, Any], ready: deque[Any], wake: Callable[[], object]
    ) -> None:
        self._generator = generator
        self._ready = ready
        self._wake = wake
        self._change = threading.Condition()
        self._limit = 0
        self._is_waiting = False
        self._is_signalled = False
        self._is_closed = False

    # --- on the loop's thread ---

    def hold(self) -> None:
        """Let nothing more in for a moment: items are being taken."""
        self._limit = 0
        self._is_signalled = False

    def allow(self, limit: int) -> None:
        """How many items may wait there."""
        self._limit = limit
        if self._is_waiting and limit:
            with self._change:
                self._change.notify()

    def close(self) -> None:
        """End it: the thread closes the generator once it has yielded again. Idempotent."""
        self._is_closed = True
        with self._change:
            self._change.notify()

    # --- in the thread ---

    def run(self) -> None:
        """Run the generator until it ends or is closed. Raises what it raises."""
        generator = self._generator
        try:
            for item in generator:
                if self._is_closed:
                    return
                self._ready.append(item)
                if not self._is_signalled:
                    self._is_signalled = True
                    self._wake()
                if len(self._ready) >= self._limit:
                    self._wait()
        finally:
            # In its own thread: no other thread can close it while it runs.
            generator.close()

    def _wait(self) -> None:
        with self._change:
            self._is_waiting = True
            self._change.wait_for(self._may_go_on)
            self._is_waiting = False

    def _may_go_on(self) -> bool:
        return self._is_closed or len(self._ready) < self._limit
