"""Streaming read: offsets are positions in the spool, and batches are read from there."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from nebula import logs
from nebula.avro import Schema
from nebula.errors import SettingsError
from nebula.record.disk import is_locked
from nebula.record.spool import Slice, Spool
from nebula.spark.source.bookmark import Bookmark
from nebula.spark.source.options import StreamOptions
from nebula.spark.source.receiver import Receiver
from nebula.spark.source.rows import Bodies, MessageRows
from nebula.spark.source.schemas import Writers

_log = logs.get_logger(__name__)

# A task for fewer rows costs more than it saves.
_LEAST_TASK_ROWS: Final = 10_000

_STATUS_TERMINATED: Final = 128 + signal.SIGTERM

# The process ends this long after Spark's SIGTERM, whatever it is doing.
_END_SECONDS: Final = 5.0

# A query that was stopped releases its spool a moment later, or when a slow disk has synced, or when its
# process was ended.
_LOCK_SECONDS: Final = 30.0


@dataclass
class Part(InputPartition):
    """What one task reads."""

    slices: list[Slice]


# Exactly once, in four steps. A message is written to the spool and synced; then it is acknowledged, with
# a receipt; Spark reads it as often as it likes, since an offset names a place in the spool; when Spark
# has committed the batch, the place may be deleted. A crash between the first two brings the message
# again, and the spool knows its id. So the broker may forget a message as soon as the spool has it, and
# Spark may repeat a batch, which it does after each failure.
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Of `spark.readStream`.

    Spark makes one in a process that lives as long as the query, asks it for offsets and tells it of commits;
    and copies of another one read rows in the tasks. Only the first one opens the spool and connects, when
    it is first asked for something.

    An offset is the name of the spool and a position in it.

    Args:
        options: of the read.
        schema: of the columns, where the bodies are Avro.
    """

    def __init__(self, options: StreamOptions, schema: Schema | None) -> None:
        self._options = options
        self._definition = None if schema is None else schema.definition
        self._running: _Running | None = None
        self._last: int | None = None  # of `availableNow`

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """`maxRowsPerBatch`."""
        most = self._options.max_rows_per_batch
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins: behind what an earlier one has committed."""
        running = self._run()
        # The bookmark is only a hint: the spool's own start counts if it is later.
        return running.offset(max(running.spool.start, running.bookmark.committed))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """What is synced by now, or as much of it as the limit allows."""
        running = self._run()
        # Spark asks for more when it has committed all before; it may say so only with the next batch, which
        # would never come where the spool is full.
        begin = running.position(start)
        running.commit(begin)
        # With `availableNow` the end was fixed at the start, whatever has come since.
        end = running.spool.end if self._last is None else max(begin, self._last)
        if isinstance(limit, ReadMaxRows):
            end = min(end, begin + limit.max_rows)
        return running.offset(end)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """What is synced by now, for the query's status."""
        running = self._run()
        return running.offset(running.spool.end)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Receive until the broker has no more, or for this time; that is where the query will end."""
        running = self._run()
        running.receiver.wait_quiet(sleep)
        self._last = running.spool.end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Parts of a batch; the same rows whenever the same batch is asked for."""
        running = self._run()
        first, last = running.position(start), running.position(end)
        # One task for each core of this machine, unless the user knows the cluster's size.
        tasks = self._options.partitions or len(os.sched_getaffinity(0))
        size = max(_LEAST_TASK_ROWS, -(-(last - first) // tasks))
        return [
            Part(running.spool.slices(begin, min(begin + size, last))) for begin in range(first, last, size)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part. In a process of a worker, which sees the spool's folder and no more.

        Raises:
            SettingsError: it does not see it, or a file was removed.
            Unreadable, ContainerError: what is there cannot be read.
        """
        assert isinstance(partition, Part)
        read = self._options.read
        schema = None if self._definition is None else Schema(self._definition)
        bodies = Bodies(read.content, schema, Writers(read.content, read.broker), skips=read.skips_corrupt)
        rows = MessageRows()
        for each in partition.slices:
            _check_seen(Path(each.path))
            for messages in rows.of_slice(each):
                yield from bodies.rows(messages)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has committed all before: it may go."""
        running = self._run()
        running.commit(running.position(end))

    def stop(self) -> None:
        """Disconnect, and release the spool."""
        running, self._running = self._running, None
        if running is not None:
            with _no_exit_by_exception():
                running.close()

    def _run(self) -> _Running:
        if self._running is None:
            self._running = _Running(self._options)
        # Asked at each call, so that a failure of the receiver ends the query at its next trigger.
        self._running.receiver.check()
        return self._running


class _Running:
    """What the one reader of a query that receives has open."""

    def __init__(self, options: StreamOptions) -> None:
        logs.configure_if_nobody_has()  # this process is Spark's
        _end_by_exception()
        with ExitStack() as opened:
            self.spool = opened.enter_context(_opened(options))
            self.bookmark = Bookmark(options.spool)
            self.receiver = opened.enter_context(Receiver(options, self.spool))
            self._opened = opened.pop_all()

    def offset(self, position: int) -> dict[str, Any]:
        return {"spool": self.bookmark.spool, "position": position}

    def position(self, offset: dict[str, Any]) -> int:
        """Of an offset that was ours. Raises SettingsError: the checkpoint is of another spool."""
        position = int(offset["position"])
        folder = self.spool.folder
        if offset["spool"] != self.bookmark.spool:
            raise SettingsError(
                f"the query's checkpoint belongs to another spool than {folder}: give it back its folder, or"
                " begin with a new checkpoint"
            )
        # The spool has been restored or cleared: guessing would lose or repeat rows.
        if not self.spool.start <= position <= self.spool.end:
            raise SettingsError(
                f"the query's checkpoint is at position {position}, and the spool {folder} has"
                f" {self.spool.start} to {self.spool.end}: another query used it, or it was restored; begin"
                " with a new checkpoint"
            )
        return position

    def commit(self, position: int) -> None:
        self.receiver.commit(position)
        self.bookmark.commit(position)

    def close(self) -> None:
        self._opened.close()


def _check_seen(segment: Path) -> None:
    if segment.exists():
        return
    # Its ledger is there from the first moment to the last.
    if (segment.parent / "ledger").exists():
        raise SettingsError(
            f"{segment} was removed before the query had committed it: another query used the spool, or it"
            " was restored; restore the file, or begin with a new checkpoint"
        )
    raise SettingsError(
        f"{segment} is not seen here: the spool has to lie where the driver and all workers see it"
    )


def _end_by_exception() -> None:
    """Spark ends this process by SIGTERM: let the reader be stopped then, so that the broker is told."""
    # A handler of the user's stays, and Python allows handlers to be set only in the main thread.
    is_default = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if is_default and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _exit)


def _exit(*_: object) -> None:
    _end_soon()
    sys.exit()


def _end_soon(*_: object) -> None:
    # It comes twice, and the second one is not to disturb the stop.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # However long the stop takes: the next query needs the spool. What is synced is safe.
    last = threading.Timer(_END_SECONDS, os._exit, (_STATUS_TERMINATED,))
    last.daemon = True
    last.start()


@contextmanager
def _no_exit_by_exception() -> Iterator[None]:
    """Spark's SIGTERM may come after it has closed the connection: an exception would break off the stop."""
    is_ours = signal.getsignal(signal.SIGTERM) is _exit
    if not is_ours or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, _end_soon)
    try:
        yield
    finally:
        # Else it has come.
        if signal.getsignal(signal.SIGTERM) is _end_soon:
            signal.signal(signal.SIGTERM, _exit)


def _opened(options: StreamOptions) -> Spool:
    """Open the spool; wait for a query that is just ending."""
    if is_locked(options.spool):
        _log.warning("spool waited for", spool=str(options.spool), seconds=_LOCK_SECONDS)
    # Ids are kept for all that may come again after a loss of the connection or two.
    most = max(300_000, 3 * options.prefetch)
    return Spool(options.spool, max_in_doubt=most, lock_seconds=_LOCK_SECONDS)
