"""The program `nebula broker` with a store that leaves marks: `python -m tests.recovery.broker MARKS WORDS`.

Nothing else about it is different; `WORDS` are those of the command. The environment variable
NEBULA_TEST_FAULT makes the store a bad one, to see that the tests find it out.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nebula import cli
from nebula.broker import assembly
from nebula.broker.core.tables import MESSAGES, Put, Write
from nebula.broker.store.sqlite import SqliteStore
from tests.recovery.marks import Marker

FAULT = "NEBULA_TEST_FAULT"


class _Commits(sqlite3.Connection):
    """A connection that says when it begins a COMMIT."""

    on_commit: Callable[[], None]

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql == "COMMIT":
            self.on_commit()
        return super().execute(sql, parameters)


class _Unsynced(_Commits):
    """One that does not wait for the disk, whatever it is told."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        return super().execute(sql.replace("synchronous = FULL", "synchronous = OFF"), parameters)


class _Small(_Commits):
    """One on a disk with little room: SQLite itself finds it full."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        super().execute("PRAGMA max_page_count = 60")


class MarkedStore(SqliteStore):
    """A `SqliteStore` that marks each batch's begin, COMMIT and end."""

    marker: Marker
    connection: type[_Commits] = _Commits

    def __init__(self, *words: Any, **options: Any) -> None:
        self._is_applying = False
        super().__init__(*words, connect=partial(self._marked, sqlite3.connect), **options)

    def apply(self, writes: Sequence[Write]) -> None:
        self.marker.count(0)
        self._is_applying = True
        super().apply(writes)
        self._is_applying = False
        if not writes:
            self.marker.count(2)
        self.marker.count(1)

    def _marked(self, connect: Callable[..., sqlite3.Connection], *words: Any, **options: Any) -> Any:
        db = connect(*words, factory=self.connection, **options)
        assert isinstance(db, _Commits)
        db.on_commit = self._on_commit
        return db

    def _on_commit(self) -> None:
        # The start and the end of a run commit too, outside any batch.
        if self._is_applying:
            self.marker.count(2)


class UnsyncedStore(MarkedStore):
    """Survives a kill, but not the end of the machine's power."""

    connection = _Unsynced


class SmallStore(MarkedStore):
    """Is full soon."""

    connection = _Small


class LosingStore(MarkedStore):
    """Leaves out one message of each batch that has many."""

    def apply(self, writes: Sequence[Write]) -> None:
        put = next((each for each in writes if isinstance(each, Put) and each.table is MESSAGES), None)
        super().apply([each for each in writes if each is not put] if len(writes) > 4 else writes)


class HastyStore(MarkedStore):
    """Says that a batch is durable when it has only been handed in: it is written three batches later."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self._kept: deque[Sequence[Write]] = deque([(), (), ()])

    def apply(self, writes: Sequence[Write]) -> None:
        self._kept.append(writes)
        super().apply(self._kept.popleft())


class ForgetfulStore(MarkedStore):
    """Never drops what was settled."""

    def apply(self, writes: Sequence[Write]) -> None:
        super().apply([each for each in writes if not type(each).__name__.startswith("Drop")])


_STORES = {
    "": MarkedStore,
    "loses": LosingStore,
    "hastes": HastyStore,
    "never drops": ForgetfulStore,
    "never syncs": UnsyncedStore,
    "fills up": SmallStore,
}


def main() -> None:
    MarkedStore.marker = Marker(Path(sys.argv[1]))
    # The class, not a setting: what the program does with its store is what is tested.
    setattr(assembly, "SqliteStore", _STORES[os.environ.get(FAULT, "")])  # noqa: B010
    sys.argv[1:2] = []
    cli.main()


if __name__ == "__main__":
    main()
