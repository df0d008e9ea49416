"""A third store: one log file of batches, which a start reads from its beginning.

It shows what the interface asks of a store, and that the core knows no other one: nothing outside this file
was changed for it. A batch is one record with its length and checksum, so a crash in the middle of a write
leaves a torn record at the end, which the next start cuts off: all of a batch, or none of it.
`tests/recovery/test_third_store.py` are the crash tests.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, Final

from nebula.broker.core.storage import PageRequest, StoredMessage
from nebula.broker.core.tables import TABLES, Write
from nebula.broker.store.store import Snapshot
from nebula.errors import StoreError
from tests.broker.memory_store import MemoryDisk, MemoryStore

_HEAD: Final = struct.Struct("!II")  # length and CRC of what follows
_TABLES: Final = {table.name: table for table in TABLES}


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
        try:
            self._log = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            records = list(_records(io.BytesIO(self._file.read_bytes())))
            os.ftruncate(self._log, sum(_HEAD.size + len(record) for record in records))
        except OSError as error:
            raise self._failed("read", error) from error
        for record in records:
            self._replay(pickle.loads(record))
        self._append("began")
        return self._memory.load()

    def apply(self, writes: Sequence[Write]) -> None:
        if writes:
            # A table is compared by identity, so the log has its name.
            self._append([(type(write), write.table.name, *write[1:]) for write in writes])
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
        entry_bytes = pickle.dumps(entry)
        left = _HEAD.pack(len(entry_bytes), zlib.crc32(entry_bytes)) + entry_bytes
        before_bytes = os.fstat(self._log).st_size
        try:
            while left:
                left = left[os.write(self._log, left) :]
            os.fdatasync(self._log)
        except OSError as error:
            # After a failed `fdatasync` the record is whole, and the next start would find what was
            # reported as failed.
            with suppress(OSError):
                os.ftruncate(self._log, before_bytes)
            raise self._failed("written", error) from error

    def _failed(self, what: str, error: OSError) -> StoreError:
        self._has_failed = True
        return StoreError(f"{self._file}: cannot be {what}, {error.strerror}; check the disk")

    def _replay(self, entry: Any) -> None:
        if isinstance(entry, str):
            self._disk.runs += entry == "began"
            self._disk.is_clean = entry == "ended"
        else:
            self._memory.apply([kind(_TABLES[table], *rest) for kind, table, *rest in entry])


def _records(log: io.BytesIO) -> Iterator[bytes]:
    """The whole records; what is behind the first torn one was never promised."""
    while len(head := log.read(_HEAD.size)) == _HEAD.size:
        length, checksum = _HEAD.unpack(head)
        if len(record := log.read(length)) < length or zlib.crc32(record) != checksum:
            return
        yield record
