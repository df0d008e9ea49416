"""Runs `nebula record` during a demo, and reports what it has recorded and where."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from nebula.avro import Schema
from nebula.record.status import read_statuses
from services.programs import DemoFailed, program, tail

# If no new message is recorded for this long, something is wrong.
_PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.05


class Recorded:
    """A recorder that runs.

    Args:
        name: its own.
        into: its folder.
        log: its log.

    Attributes:
        seconds: from its start to the last message that `wait` waited for.
    """

    def __init__(self, name: str, into: Path, log: Path) -> None:
        self.seconds = 0.0
        self._name = name
        self._into = into
        self._log = log
        self._began = time.perf_counter()

    def folder_of(self, schema: Schema) -> Path:
        """Where the data of a schema are."""
        return self._into / schema.name

    def wait(self, count: int, on_recorded: Callable[[int], None]) -> None:
        """Return when `count` messages are recorded and ACKed.

        Args:
            count: the number of messages to wait for.
            on_recorded: called with the number of messages recorded so far.

        Raises:
            DemoFailed: no new message was recorded for a minute.
        """
        seen, changed = -1, time.perf_counter()
        while (recorded := self._count()) < count:
            if recorded != seen:
                seen, changed = recorded, time.perf_counter()
                on_recorded(recorded)
            elif time.perf_counter() - changed > _PATIENCE_SECONDS:
                raise DemoFailed(f"{recorded:,} of {count:,} were recorded, then none:\n{tail(self._log)}")
            time.sleep(_LOOK_SECONDS)
        on_recorded(recorded)
        self.seconds = time.perf_counter() - self._began

    def _count(self) -> int:
        statuses = read_statuses(self._into)
        return sum(int(status["messages"]) for status in statuses if status["instance"] == self._name)


@contextlib.contextmanager
def recording(queue: str, into: Path, environment: Mapping[str, str], folder: Path) -> Iterator[Recorded]:
    """Record a queue while the block runs. After the block all files are complete.

    Args:
        queue: what to record.
        into: where the files go.
        environment: of the program.
        folder: for its log.
    """
    name = queue.rpartition("/")[2]
    arguments = ["record", queue, "--into", str(into), "--name", name]
    with program(f"recorder of {name}", arguments, environment, folder):
        yield Recorded(name, into, folder / f"recorder of {name}.log")
