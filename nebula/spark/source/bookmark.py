"""What a query keeps beside its spool: which spool it is, and how far Spark has come."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Final

from nebula.errors import SettingsError
from nebula.record.disk import sync_file, sync_folder

_NAME: Final = "source.json"


class Bookmark:
    """A small file in the spool's folder, for who holds the spool.

    Args:
        folder: of the spool.

    Raises:
        SettingsError: the file is there and is none of ours.
        OSError: it cannot be read or written.

    Attributes:
        spool: a name that no other spool has: a checkpoint belongs to one spool.
        committed: the position that Spark has said last to have committed, or one before it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME
        self.spool, self.committed = uuid.uuid4().hex, 0
        if self._path.exists():
            try:
                said = json.loads(self._path.read_bytes())
                self.spool, self.committed = str(said["spool"]), int(said["committed"])
            except (ValueError, KeyError, TypeError) as error:
                raise SettingsError(f"{self._path} is not what was written there: restore it") from error
        else:
            self._write(is_synced=True)

    def commit(self, position: int) -> None:
        """Keep how far Spark has come. After a power cut it may be an earlier position: no harm is done."""
        if position > self.committed:
            self.committed = position
            self._write(is_synced=False)

    def _write(self, *, is_synced: bool) -> None:
        draft = self._path.with_suffix(".tmp")
        with draft.open("w") as file:
            json.dump({"spool": self.spool, "committed": self.committed}, file)
            file.flush()
            if is_synced:
                sync_file(file.fileno(), draft)
        draft.replace(self._path)
        if is_synced:
            sync_folder(self._path.parent)
