"""Chromium without a window."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.processes import running

# Chromium's sandbox does not work for root, as whom CI runs, and many containers have a small /dev/shm.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    # Without it a headless Chromium ends once the page is there.
    "--remote-debugging-port=0",
)


@contextmanager
def showing(url: str, folder: Path) -> Iterator[Path]:
    """Show a page for a block.

    Args:
        folder: an empty one; Chromium keeps all in there, and finds nothing of the user's.

    Yields:
        The file of Chromium's log.
    """
    log = folder / "chromium.log"
    environment = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}
    command = ["chromium", *_FLAGS, f"--user-data-dir={folder / 'profile'}", url]
    with running(command, log=log, environment=environment):
        yield log
