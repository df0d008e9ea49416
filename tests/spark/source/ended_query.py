"""A streaming query's process that gets Spark's SIGTERM at a moment of its own choice.

`python -m tests.spark.source.ended_query URL FOLDER MOMENT`: `waiting`: while it waits for Spark; `stopping`:
while it stops, since the connection to Spark was closed first; `stuck`: where something keeps it from
stopping. Prints "stopped" when it was.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from nebula.spark.source.options import stream_options
from nebula.spark.source.receiver import Receiver
from nebula.spark.source.stream import StreamReader


def _terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _terminated_when_left(receiver: Receiver, *_: object) -> None:
    _terminate()
    receiver._stack.close()


def main(url: str, folder: Path, moment: str) -> None:
    """As Spark runs it."""
    said = {"broker": url, "destination": "/queue/readings", "spool": str(folder), "content": "text"}
    reader = StreamReader(stream_options(said), None)
    if moment == "stopping":
        Receiver.__exit__ = _terminated_when_left  # type: ignore[method-assign]
    reader.initialOffset()
    try:
        if moment != "stopping":
            _terminate()
            time.sleep(60)
    finally:
        if moment == "stuck":
            time.sleep(60)
        reader.stop()
        print("stopped")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
