"""Standby threads for jobs, started and prepared in advance."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Standby:
    """A thread that has prepared itself, and does one thing: each job has a fresh one.

    One from a pool would hand on what Spark keeps by thread, the last job's marks.

    Args:
        prepare: called in the thread first. It must not raise.

    Attributes:
        thread: alive until what it does has ended.
    """

    def __init__(self, prepare: Callable[[], None]) -> None:
        self._prepare = prepare
        self._target: Callable[[], None] | None = None
        self._is_ready, self._is_wanted = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run, name="standby", daemon=True)
        self.thread.start()

    @property
    def is_ready(self) -> bool:
        """It is prepared."""
        return self._is_ready.is_set()

    def begin(self, name: str, target: Callable[[], None]) -> None:
        """Have the thread do this under that name, as soon as it is prepared. To be called once."""
        self._target, self.thread.name = target, name
        self._is_wanted.set()

    def _run(self) -> None:
        self._prepare()
        self._is_ready.set()
        self._is_wanted.wait()
        assert self._target is not None
        self._target()
