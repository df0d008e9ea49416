"""The sessions on a Connect server that jobs have now, on disk as well: for the host after a killed one."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any


class OpenSessions:
    """A file for each session, which bears its id and holds the name of its job's attempt.

    Args:
        folder: made if need be; nobody else may use it.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._lock = threading.Lock()
        self._open: dict[str, Any] = {}

    def left_over(self) -> Iterator[tuple[str, str]]:
        """The id of each session that a predecessor has not closed, and whose it was."""
        for file in sorted(self._folder.iterdir()):
            yield file.name, file.read_text()

    def remember(self, session_id: str, group: str, session: Any) -> None:
        """Write it down; on disk when this returns. Call it before the server hears of the session."""
        with self._lock:
            self._open[session_id] = session
        with (self._folder / session_id).open("w") as file:
            file.write(group)
            file.flush()
            os.fsync(file.fileno())
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def forget(self, session_id: str) -> None:
        """It is closed on the server."""
        with self._lock:
            self._open.pop(session_id, None)
        with suppress(FileNotFoundError):
            (self._folder / session_id).unlink()

    def opened(self) -> list[tuple[str, Any]]:
        """Those of this process."""
        with self._lock:
            return list(self._open.items())
