"""Progress bars of long work at a store, on a terminal's stderr."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from nebula.cli.terminal import Screen, progress_of, stderr_screen
from nebula.logs import get_logger

_log = get_logger("nebula.broker")

# A bar that appears only for a moment is a distraction, and most starts are shorter than this.
_PATIENCE_SECONDS: Final = 1.0
# Off a terminal the lines usually go into a journal, where a few are enough.
_LINE_SECONDS: Final = 5.0


def work_bar(screen: Screen) -> Progress:
    """A bar, or a spinner where no total is known; gone when the work is done, and nothing off a terminal."""
    columns = (
        SpinnerColumn(),
        # A description may have names of files and verbs: `[red]` in one is part of the name.
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    # Output to stdout meanwhile is not part of the bar: its lines stay whole.
    # On stderr, so that it is visible while stdout is redirected.
    return progress_of(screen, columns, transient=True, redirect_stdout=False, disable=not screen.is_terminal)


class StartView:
    """What a broker is at while it opens a large store: a bar if it takes long; off a terminal, log lines.

    Args:
        console: instead of stderr.
        patience: seconds before anything is shown.
    """

    def __init__(self, console: Screen | None = None, *, patience: float = _PATIENCE_SECONDS) -> None:
        self._console = console or stderr_screen()
        self._patience = patience
        self._bar = work_bar(self._console)
        self._task = self._bar.add_task("opening the store", total=None)
        self._latest: tuple[str, float | None] = ("opening", None)

    def tell(self, step: str, fraction: float | None) -> None:
        """What it is at, and how much of that is done, of 1.0. May be called on any thread."""
        # One tuple, because the store's thread writes it and the loop reads it.
        self._latest = (step, fraction)
        total = None if fraction is None else 1.0
        self._bar.update(self._task, description=f"{step} the store", total=total, completed=fraction or 0.0)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show it while the block runs, on the loop."""
        # Not in `__init__`, which may run before there is a loop.
        self._loop = asyncio.get_running_loop()
        self._later = self._loop.call_later(self._patience, self._show)
        try:
            yield
        finally:
            self._later.cancel()
            self._bar.stop()

    def _show(self) -> None:
        if self._console.is_terminal:
            self._bar.start()
            return
        step, fraction = self._latest
        done = {} if fraction is None else {"done": round(fraction, 2)}
        _log.info("start delayed", store=step, **done)
        self._later = self._loop.call_later(_LINE_SECONDS, self._show)
