"""Bookmark of a query, next to its spool: which spool it is, and how far Spark has come."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Final

from nebula.errors import SettingsError
from nebula.logs import get_logger
from nebula.private import open_private, write_private
from nebula.record.disk import sync_file, sync_folder

_log = get_logger(__name__)

_IDENTITY: Final = "identity"
_COMMITTED: Final = "committed"
_DIGITS: Final = 32


class Bookmark:
    """Two small files in the spool's folder, for the holder of the spool.

    Args:
        folder: of the spool.

    Raises:
        SettingsError: the spool has another identity.
        OSError: it cannot be read or written.
        SyncFailed: the disk fails.

    Attributes:
        spool: a name that no other spool has: a checkpoint belongs to one spool.
        committed: the position that Spark has said last to have committed, or one before it.
    """

    def __init__(self, folder: Path) -> None:
        self._committed = folder / _COMMITTED
        self.spool = _identity(folder / _IDENTITY)
        try:
            self.committed = int(self._committed.read_text())
        # A lost hint is position 0: Spark's checkpoint then says where to go on.
        except (OSError, ValueError):
            self.committed = 0

    def commit(self, position: int) -> None:
        """Keep how far Spark has come.

        Not for ever: after a power cut or with a full disk it may be an earlier position, or 0. Spark goes by
        its checkpoint. A query with a new checkpoint begins with what is still there.
        """
        # Positions only rise. A restarted query may repeat an earlier commit.
        if position <= self.committed:
            return
        self.committed = position
        draft = self._committed.with_suffix(".tmp")
        try:
            write_private(draft, str(position))
            # No sync: the file is a hint, Spark's checkpoint is the truth. A sync would cost each batch a
            # wait for the disk.
            draft.replace(self._committed)
        except OSError as error:
            _log.warning("committed position not written", file=str(self._committed), reason=error.strerror)


def _identity(path: Path) -> str:
    """Written once, and never again: without it no checkpoint would know the spool."""
    if path.exists():
        found = path.read_text(errors="replace")
        # No checkpoint would match an identity that was cut.
        if len(found) != _DIGITS:
            raise SettingsError(f"{path} is not what was written there: restore it")
        return found
    made = uuid.uuid4().hex
    draft = path.with_suffix(".tmp")
    # Written under another name, synced and then renamed: after a power cut all of it is there, or nothing.
    with open(open_private(draft, os.O_WRONLY | os.O_TRUNC), "w") as file:  # noqa: PTH123
        file.write(made)
        file.flush()
        sync_file(file.fileno(), draft)
    draft.replace(path)
    sync_folder(path.parent)
    return made
