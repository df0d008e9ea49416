"""A streaming query without Spark, in child processes that die at each of their steps, one after the other.

`python -m tests.spark.source.dying_query URL FOLDER ROWS`: for the step 0, 1, … a child reads the ROWS
messages of /queue/r<step> into FOLDER/<step>, and is killed (SIGKILL) before its step of that number: a call
of the system that changes the disk (half-way where it writes), an ACK, its receipt. A second child restarts
the query from its checkpoint and ends it. When a child gets through without dying, the number of steps is
printed.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl  # noqa: F401  # so that not each child has to load it
from pyspark.sql.streaming.datasource import ReadMaxRows

from nebula import logs
from nebula.record.spool import Spool
from nebula.spark.source.options import stream_options
from nebula.spark.source.stream import StreamReader
from nebula.stomp.client.messages import Message
from tests.dying import calls_of_os, has_died, start

ROWS_PER_BATCH = 4

_AT_ONCE = 8

_STEPS = [
    *calls_of_os("pwrite", "fdatasync", "fsync", "ftruncate", "replace", "unlink", "mkdir"),
    *((Message, "ack"), (Spool, "acked"), (Spool, "sync")),
]


def query(url: str, folder: Path, queue: str, rows: int) -> None:
    """What Spark does with a source, batch by batch, until there is no more; its log and output are files."""
    for name in ("offsets", "commits", "out"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    reader = StreamReader(
        stream_options({
            "broker": url, "destination": queue, "spool": str(folder / "spool"), "content": "text",
            "quietSeconds": "0.15", "prefetch": "5",
        }),
        None,
    )  # fmt: skip
    try:
        while True:
            reader.prepareForTriggerAvailableNow()
            while _batch(reader, folder):
                pass
            # The broker of a busy machine may have been quiet too early. Rows that are lost never come.
            if sum(len(_read(batch)) for batch in (folder / "out").iterdir()) >= rows:
                return
    finally:
        reader.stop()


def _batch(reader: StreamReader, folder: Path) -> bool:
    offsets, commits = (
        sorted(int(each.name) for each in (folder / n).iterdir()) for n in ("offsets", "commits")
    )
    number = len(commits)
    start = _read(folder / "offsets" / str(number - 1)) if number else reader.initialOffset()
    if len(offsets) > number:
        end = _read(folder / "offsets" / str(number))
    else:
        end = reader.latestOffset(start, ReadMaxRows(ROWS_PER_BATCH))
        if end == start:
            return False
        _write(folder / "offsets" / str(number), end)
        if number:
            reader.commit(start)
    parts = reader.partitions(start, end)
    rows = [row for part in parts for batch in reader.read(part) for row in batch.column("body").to_pylist()]
    _write(folder / "out" / str(number), rows)
    _write(folder / "commits" / str(number), {})
    return True


def _read(path: Path) -> Any:
    return json.loads(path.read_text())


def _write(path: Path, what: Any) -> None:
    draft = path.parent.with_name(path.parent.name + ".tmp")
    draft.write_text(json.dumps(what))
    os.replace(draft, path)  # noqa: PTH105  # by the name that dies


def _start(url: str, folder: Path, step: int, rows: int, *, dies: bool) -> int:
    def work() -> None:
        logs.configure(logs.Level.ERROR)
        query(url, folder / str(step), f"/queue/r{step}", rows)

    return start(work, step if dies else None, _STEPS)


def main(url: str, folder: Path, rows: int) -> None:
    """Let children die, until one does not."""
    step = 0
    while True:
        # Most of the time they wait for messages that do not come.
        steps = range(step, step + _AT_ONCE)
        died = [has_died(child) for child in [_start(url, folder, each, rows, dies=True) for each in steps]]
        restarted = [
            _start(url, folder, each, rows, dies=False)
            for each, is_dead in zip(steps, died, strict=True)
            if is_dead
        ]
        outcomes = [has_died(child) for child in restarted]
        assert not any(outcomes), "a restarted query died"
        if not all(died):
            print(steps[died.index(False)])
            return
        step += _AT_ONCE


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
