"""Status of a recorder, for people and programs that look at its folder."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from time import time
from typing import Any, Final

from nebula.private import write_private
from nebula.record.disk import is_full, is_locked
from nebula.record.store import STATE_FOLDER

__all__ = ["RecorderState", "RecorderStatus", "metrics_of", "read_statuses", "write_status"]

_FILE: Final = "status.json"
_METRICS_FILE: Final = "metrics.prom"
_IF_FULL: Final = ".full"
_RATE_SECONDS: Final = 10.0


class RecorderState(StrEnum):
    """The state of a recorder."""

    CONNECTING = "connecting"
    """There is no connection."""

    RECORDING = "recording"
    """Messages are recorded as they come."""

    FULL = "full"
    """There is no room on the disk: nothing is taken until there is."""

    STOPPED = "stopped"
    """It has ended."""

    GONE = "gone"
    """Its process has ended without saying so: it was killed, or the disk was full."""


@dataclass(slots=True)
class RecorderStatus:
    """What a recorder has done since its start.

    Attributes:
        instance: its name.
        state: what it does now.
        destinations: what it records.
        began: when it was started, seconds since 1970; `told` is when this was written.
        messages: recorded and ACKed; `total` is those of all its runs in the folder.
        message_bytes: of their bodies.
        doubles: messages that were delivered again and dropped.
        files: that were closed and are visible.
        waiting: messages received and not yet recorded.
        in_doubt: messages whose ACK the broker has not confirmed.
        rate: messages per second, over the last ten seconds or so.
        failure: why nothing is recorded now; empty if it is.
    """

    instance: str
    state: RecorderState = RecorderState.CONNECTING
    destinations: list[str] = field(default_factory=list)
    began: float = 0.0
    told: float = 0.0
    messages: int = 0
    total: int = 0
    message_bytes: int = 0
    doubles: int = 0
    files: int = 0
    waiting: int = 0
    in_doubt: int = 0
    rate: float = 0.0
    failure: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class Rate:
    """The rate of a counter over the last seconds.

    Args:
        now: seconds of a monotonic clock.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._seen: deque[tuple[float, int]] = deque()

    def tell(self, count: int) -> float:
        """Note the total so far, and return the recent rate per second."""
        now = self._now()
        self._seen.append((now, count))
        # The oldest one kept is just outside the interval, so the rate covers ten seconds or a little more.
        while len(self._seen) > 2 and now - self._seen[1][0] >= _RATE_SECONDS:
            self._seen.popleft()
        began, before = self._seen[0]
        return (count - before) / (now - began) if now > began else 0.0


def write_status(state_folder: Path, status: RecorderStatus) -> None:
    """Write it where `read_statuses` finds it, and as metrics next to it. Each file appears whole.

    Raises:
        OSError: it cannot be written. Where that is for want of room, what is found says so from now on:
            `full`, with the numbers of the last time.
    """
    status.told = time()
    # Written while there is room, so that a mere rename can say that it is gone.
    if_full = replace(status, state=RecorderState.FULL, rate=0.0, failure="there is no room on the disk")
    try:
        _write(state_folder, if_full, _IF_FULL)
        _write(state_folder, status)
    except OSError as error:
        if is_full(error):
            for name in (_FILE, _METRICS_FILE):
                with suppress(FileNotFoundError):
                    (state_folder / f"{name}{_IF_FULL}").replace(state_folder / name)
        raise


def _write(state_folder: Path, status: RecorderStatus, suffix: str = "") -> None:
    for name, text in ((_FILE, json.dumps(status.as_dict()) + "\n"), (_METRICS_FILE, metrics_of(status))):
        draft = state_folder / f"{name}.tmp"
        write_private(draft, text)
        draft.replace(state_folder / f"{name}{suffix}")


def metrics_of(status: RecorderStatus) -> str:
    """The status in Prometheus's text format, for node_exporter's textfile collector for example."""
    lines, is_up = [], int(status.state is RecorderState.RECORDING)
    for name, kind, value, what in (
        ("messages_total", "counter", status.messages, "Messages recorded and ACKed."),
        ("message_bytes_total", "counter", status.message_bytes, "Bytes of their bodies."),
        (
            "doubles_total",
            "counter",
            status.doubles,
            "Duplicates: messages that were delivered again and dropped.",
        ),
        ("files_total", "counter", status.files, "Files that were closed."),
        ("waiting", "gauge", status.waiting, "Messages received and not yet recorded."),
        ("in_doubt", "gauge", status.in_doubt, "Messages whose ACK is not confirmed."),
        ("up", "gauge", is_up, "1 while messages are recorded, otherwise 0."),
        ("told_seconds", "gauge", status.told, "When this file was written, in seconds since 1970."),
    ):
        full = f"nebula_recorder_{name}"
        lines += [f"# HELP {full} {what}", f"# TYPE {full} {kind}"]
        lines.append(f'{full}{{instance_name="{status.instance}"}} {value}')
    return "\n".join(lines) + "\n"


def read_statuses(folder: Path) -> list[dict[str, Any]]:
    """The statuses of a folder's recorders, by name, with `age`: the seconds since each was written.

    What cannot be read is left out. Other users than the recorder's cannot see that it is gone: for them its
    state stays what it told last.
    """
    found = []
    for file in sorted((folder / STATE_FOLDER).glob(f"*/{_FILE}")):
        # Another version may have written it.
        with suppress(OSError, ValueError, KeyError, TypeError):
            found.append(_read_status(file))
    return found


def _read_status(file: Path) -> dict[str, Any]:
    told = json.loads(file.read_bytes())
    status = {each.name: told[each.name] for each in fields(RecorderStatus)}
    # The lock ends with its process, however that ends. Who may not look believes what was told.
    if is_locked(file.parent) is False:
        has_ended = status["state"] == RecorderState.STOPPED
        status |= {"state": RecorderState.STOPPED if has_ended else RecorderState.GONE, "rate": 0.0}
    return {**status, "age": max(0.0, time() - status["told"])}
