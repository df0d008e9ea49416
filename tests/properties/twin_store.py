"""The store in memory with one on disk beside it: both are told the same, and have to hold the same."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nebula.broker.core.storage import PageRequest, StoredMessage
from nebula.broker.core.tables import Write
from nebula.broker.store.sqlite import SqliteStore
from nebula.broker.store.store import Snapshot
from nebula.broker.store.tools import open_store
from tests.broker.memory_store import MemoryDisk, MemoryStore


class _Quick(sqlite3.Connection):
    """A connection that does not wait for the disk: nothing here cuts its power."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        return super().execute(sql.replace("synchronous = FULL", "synchronous = OFF"), parameters)


class TwinDisk(MemoryDisk):
    """What stays when a `TwinStore` goes."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = TemporaryDirectory()
        self.store = SqliteStore(Path(self._folder.name), connect=partial(sqlite3.connect, factory=_Quick))

    def check(self) -> None:
        """See that the file is sound, and has no body too many or too few."""
        self.store.close()
        with open_store(self.store.folder) as opened:
            assert set(opened.check()) <= {None}

    def close(self) -> None:
        """Give the folder back."""
        self.check()
        self._folder.cleanup()


class TwinStore(MemoryStore):
    """A `MemoryStore` that sees whether a `SqliteStore` does the same."""

    def __init__(self, disk: TwinDisk, *, page_messages: int | None = None) -> None:
        super().__init__(disk, page_messages=page_messages)
        self._twin = disk

    def load(self) -> Snapshot:
        if self._twin.runs:
            self._twin.check()
        found = self._twin.store.load()
        there = {(name, each.number): each for name, line in found.lines.items() for each in line.first}
        assert there == self._twin.messages
        return super().load()

    def apply(self, writes: Sequence[Write]) -> None:
        super().apply(writes)
        self._twin.store.apply(writes)

    def page(self, request: PageRequest) -> list[StoredMessage]:
        found = super().page(request)
        assert self._twin.store.page(request) == found
        return found
