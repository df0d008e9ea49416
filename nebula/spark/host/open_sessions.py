"""Register of the open sessions on a Connect server, on disk as well: for the host after a killed one.

A session's id follows from whose it is, so that who runs a job's next attempt can name those of the earlier
ones, wherever they ran.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from nebula.spark.host.status_store import group_of

_NAMESPACE = UUID("5a0f3c0e-6d1b-4a58-9c35-0d9e9a3b7f10")


def session_id_of(service: str, group: str) -> str:
    """The id of the session of one attempt at a job of this service: always the same."""
    return str(uuid5(_NAMESPACE, f"{service}/{group}"))


def groups_before(group: str) -> list[str]:
    """The earlier attempts at the same job."""
    job, _, attempt = group.rpartition(".")
    return [group_of(job, number) for number in range(1, int(attempt))]


class OpenSessions:
    """A file for each session, called by its id, with the name of its job's attempt.

    Args:
        folder: made if need be; no other program may use it.
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
