"""A third store: one log file of batches, which a start reads from its beginning.

It shows what the interface asks of a store, and that the core knows no other one: nothing outside this file
was changed for it. A batch is one record with its length and checksum, so a crash in the middle of a write
leaves a torn record at the end, which the next start cuts off: all of a batch, or none of it.
"""

from __future__ import annotations

import os
import pickle
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final

from nebula.broker.core.storage import PageRequest, StoredMessage
from nebula.broker.core.tables import TABLES, Drop, DropRange, Put, SetAttempts, Write
from nebula.broker.store.store import Snapshot
from tests.broker.memory_store import MemoryDisk, MemoryStore

_HEAD: Final = struct.Struct("!II")  # length and CRC of what follows
_TABLES: Final = {table.name: table for table in TABLES}
_KINDS: Final[dict[str, Any]] = {kind.__name__: kind for kind in (Put, Drop, DropRange, SetAttempts)}


class LogStore:
    """A `Store` in one file, which only grows.

    Args:
        file: made at the first start.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._disk = MemoryDisk()
        self._memory = MemoryStore(self._disk)
        # `page` comes from another thread, while an `apply` may be running.
        self._lock = Lock()
        self._log: int | None = None
        self._has_failed = False

    def load(self) -> Snapshot:
        self._log = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        whole_bytes = 0
        for record in _records(self._file.read_bytes()):
            whole_bytes += _HEAD.size + len(record)
            self._replay(pickle.loads(record))
        os.ftruncate(self._log, whole_bytes)
        snapshot = self._memory.load()
        self._append("began")
        return snapshot

    def apply(self, writes: Sequence[Write]) -> None:
        if not writes:
            return
        # A table is compared by identity, so the log has its name.
        self._append([(type(write).__name__, write.table.name, *write[1:]) for write in writes])
        with self._lock:
            self._memory.apply(writes)

    def page(self, request: PageRequest) -> list[StoredMessage]:
        with self._lock:
            return self._memory.page(request)

    def close(self) -> None:
        if self._log is not None:
            if not self._has_failed:
                self._append("ended")
            os.close(self._log)
            self._log = None

    def _append(self, entry: object) -> None:
        assert self._log is not None, "a store is loaded first, and closed last"
        record = pickle.dumps(entry)
        try:
            os.write(self._log, _HEAD.pack(len(record), zlib.crc32(record)) + record)
            os.fdatasync(self._log)
        except OSError:
            self._has_failed = True
            raise

    def _replay(self, entry: Any) -> None:
        if isinstance(entry, str):
            self._disk.runs += entry == "began"
            self._disk.is_clean = entry == "ended"
        else:
            self._memory.apply([_KINDS[kind](_TABLES[table], *rest) for kind, table, *rest in entry])


def _records(log: bytes) -> Iterator[bytes]:
    """The whole records; what is behind the first torn one was never promised."""
    begin = 0
    while begin + _HEAD.size <= len(log):
        length, checksum = _HEAD.unpack_from(log, begin)
        begin += _HEAD.size
        record = log[begin : begin + length]
        if len(record) < length or zlib.crc32(record) != checksum:
            return
        yield record
        begin += length
