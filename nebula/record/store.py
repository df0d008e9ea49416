"""Record store: messages into files, each once, between a MESSAGE and its ACK."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from operator import itemgetter
from pathlib import Path
from typing import Final, Self

from nebula.errors import SettingsError
from nebula.record.codecs import codec_named
from nebula.record.disk import lock_folder, make_folders
from nebula.record.ledger import MAX_IN_DOUBT, Ledger
from nebula.record.parts import Parts, Rotation
from nebula.record.sorting import Sorter
from nebula.stomp.client.messages import Message

STATE_FOLDER: Final = ".recorder"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class RecordStore:
    """The files of one recorder, and the ledger of their messages. For one thread at a time.

    The order of things: `take` some messages, `sync`, ACK them with a receipt, and at the RECEIPT `confirm`
    the group that `sync` returned. Then each message that was ACKed is in a file, once, wherever the process
    or the machine dies; what was not ACKed comes again.

    Opening it finishes what an earlier process left: open files are cut to what counts and get their names.

    Args:
        folder: of the files; it is made if missing.
        sorter: tells the streams.
        instance: names this recorder among those of the folder: letters, digits, `._-`.
        codec: `deflate`, `zstandard` or `null`.
        rotation: when files are closed.
        max_in_doubt: ids that are kept, see `Ledger`.
        now: seconds since 1970.

    Raises:
        SettingsError: the folder cannot be used, another process has it, or there is no such codec.
        LedgerDamaged: what is in the folder is not what was written.
        SyncFailed: the disk fails.

    Attributes:
        recovered: the files that were finished at opening.
        recorded: messages since then.
        doubles: messages that came again and were dropped.
    """

    def __init__(
        self,
        folder: Path,
        sorter: Sorter,
        *,
        instance: str = "recorder",
        codec: str = "deflate",
        rotation: Rotation | None = None,
        max_in_doubt: int = MAX_IN_DOUBT,
        now: Callable[[], float] = time.time,
    ) -> None:
        # Checked before a folder is made: a codec that is not installed is an error in the settings.
        codec_named(codec)
        self.folder = folder
        self._sorter = sorter
        self._waiting: dict[str, None] = {}
        self._again: dict[str, None] = {}
        self.recorded = self.doubles = 0
        self.recovered: list[Path] = []
        state = state_folder(folder, instance)
        try:
            # The lock comes before the ledger, and the ledger before the files that it describes.
            with ExitStack() as opened:
                make_folders(folder, folder)
                make_folders(state, folder)
                opened.callback(os.close, lock_folder(state, "the recorder's folder"))
                self._ledger = Ledger(state / "ledger", max_in_doubt=max_in_doubt)
                opened.callback(self._ledger.close)
                self._parts = Parts(folder, instance, codec=codec, rotation=rotation or Rotation(), now=now)
                opened.callback(self._parts.abandon)
                self.recovered = self._parts.recover(self._ledger)
                if self._ledger.is_new:
                    self._ledger.rewrite()
                self._opened = opened.pop_all()
        except OSError as error:
            raise SettingsError(f"{folder}: {error.strerror}") from error

    @property
    def in_doubt(self) -> int:
        """How many ids are kept of messages that may come again."""
        return self._ledger.in_doubt

    @property
    def total(self) -> int:
        """How many messages this instance has recorded in the folder, ever."""
        return self._ledger.position

    def take(
        self,
        messages: Iterable[tuple[Message, int]],
        id_of: Callable[[Mapping[str, str]], str] = itemgetter("message-id"),
    ) -> None:
        """Take messages, each with its time of receipt (ms since 1970); in memory until `sync`.

        Those that are recorded are dropped: ACK them with the others.

        Args:
            messages: with their times.
            id_of: what names a message, by its headers, on each delivery to its subscription.
        """
        waiting, ledger, sort, append = self._waiting, self._ledger, self._sorter.sort, self._parts.append
        for message, time_ms in messages:
            # A topic's message is called the same in each subscription that it comes by.
            message_id = f"{message.subscription.destination} {id_of(message.headers)}"
            if message_id in waiting:
                continue
            if message_id in ledger:
                self._again[message_id] = None
                continue
            waiting[message_id] = None
            kind, datum = sort(message, time_ms)
            append(kind, time_ms, datum)

    def sync(self) -> int | None:
        """Make durable what was taken.

        Returns:
            The group to `confirm`; None: nothing was taken since the last time.

        Raises:
            OSError: no room, or worse. Nothing counts and nothing is lost: call it again. See
                `nebula.record.disk.is_full`.
            SyncFailed: the disk failed. Nothing may be ACKed; open the store anew.
        """
        if not self._waiting and not self._again:
            return None
        # The order is the invariant: data on disk, then the ledger, then (by the caller) the ACKs.
        marks = self._parts.sync()
        group = self._ledger.commit(list(self._waiting), marks, again=list(self._again))
        # Only now: if the ledger could not be written, the same marks are returned by the next try.
        self._parts.settle()
        self.recorded += len(self._waiting)
        self.doubles += len(self._again)
        self._waiting, self._again = {}, {}
        # After the commit, as it may write the whole ledger anew.
        self._ledger.compact()
        return group

    def confirm(self, groups: Sequence[int]) -> None:
        """The broker has confirmed all ACKs of these groups: forget their ids."""
        for group in groups:
            self._ledger.confirm(group)

    def rotate(self) -> list[Path]:
        """Close the files whose time has come; not between a `take` and its `sync`.

        Returns:
            Those that are seen now.

        Raises:
            OSError, SyncFailed: of the disk.
        """
        return self._parts.rotate(self._ledger)

    def finish(self) -> list[Path]:
        """As `rotate`, of all; and write down what was confirmed. For the end."""
        found = self._parts.finish_all(self._ledger)
        # With no room for it some ids are known again at the next start, which does no harm.
        with suppress(OSError):
            self._ledger.rewrite()
        return found

    def close(self) -> None:
        """Release the folder, as it is. Idempotent."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def state_folder(folder: Path, instance: str) -> Path:
    """The folder of a recorder's own files. Raises SettingsError if the name is not allowed."""
    if not _NAME.fullmatch(instance):
        raise SettingsError(f"the recorder's name {instance!r}: take letters, digits and . _ -, 64 at most")
    return folder / STATE_FOLDER / instance
