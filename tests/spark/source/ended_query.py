"""A streaming query's process that gets Spark's SIGTERM at a moment of its own choice.

`python -m tests.spark.source.ended_query URL FOLDER MOMENT`, where MOMENT is

- `waiting`: it waits for Spark.
- `stopping`: it stops already, since Spark closed the connection first.
- `stuck-before`, `stuck-within`: it waits, or stops, and its stop never begins, or never ends.

Prints "stopped" after the stop.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from nebula.spark.source import stream
from nebula.spark.source.options import stream_options
from nebula.spark.source.receiver import Receiver
from nebula.spark.source.stream import StreamReader

_FOR_EVER = 60.0


class _TerminatedReceiver(Receiver):
    """One that gets the signal as it is left."""

    def __exit__(self, *_: object) -> None:
        _terminate()
        if sys.argv[3] == "stuck-within":
            time.sleep(_FOR_EVER)
        super().__exit__()


def _terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def main(url: str, folder: Path, moment: str) -> None:
    """As Spark runs it."""
    said = {"broker": url, "destination": "/queue/readings", "spool": str(folder), "content": "text"}
    reader = StreamReader(stream_options(said), None)
    is_stopping = moment in ("stopping", "stuck-within")
    if is_stopping:
        vars(stream)["Receiver"] = _TerminatedReceiver
    reader.initialOffset()
    try:
        if not is_stopping:
            _terminate()
            time.sleep(_FOR_EVER)
    finally:
        if moment == "stuck-before":
            time.sleep(_FOR_EVER)
        reader.stop()
        print("stopped")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
