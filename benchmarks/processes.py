"""Child processes with an end: each is started here, waited for, and ended by its own pid."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

_END_SECONDS = 15.0


class Unavailable(Exception):
    """A program that a measurement or test needs is not available here; `str()` says why."""


def free_port() -> int:
    """A loopback port that no program listens on at this moment.

    For programs that cannot tell which port they took. Another program may take it first; then the
    start fails, and `wait_until` says so.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(
    arguments: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program; on leaving it gets SIGTERM, and SIGKILL if that was not enough.

    Its output goes to the file `log`. `environment` is added to ours. It has a session of its own, so that
    a Ctrl-C at the terminal reaches it through us, in order, and not at once. Its whole session is ended
    where we are killed.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    try:
        with _guarded(process.pid):
            yield process
    finally:
        end(process)


@contextmanager
def _guarded(session: int) -> Iterator[None]:
    """Have a session of processes ended where we are killed: a shell waits for the end of a pipe from us."""
    kill = f"kill -s TERM -- -{session}; sleep {_END_SECONDS}; kill -s KILL -- -{session}"
    guard = subprocess.Popen(
        ["/bin/sh", "-c", f"read over || {{ {kill}; }}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        guard.communicate(b"over\n")


def end(process: subprocess.Popen[bytes]) -> None:
    """End a child and reap it; harmless if it has ended already."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def answer_of(module: str, *arguments: str, timeout: float) -> Any:
    """The JSON value that a program prints last; `Unavailable` with its errors if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        cwd=Path(__file__).parents[1],
    )
    if done.returncode != 0:
        raise Unavailable(f"{module} {arguments[0]} failed: {done.stderr.strip()[-600:]}")
    return json.loads(done.stdout.splitlines()[-1])


def wait_until(
    is_ready: Callable[[], bool], process: subprocess.Popen[bytes], *, log: Path, timeout: float = 60.0
) -> None:
    """Wait for a child to become ready; `Unavailable` with the end of its log if it does not."""
    deadline = time.monotonic() + timeout
    while not is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            what = "ended" if process.poll() is not None else f"is not ready after {timeout:g} s"
            raise Unavailable(f"{Path(str(process.args[0])).name} {what}: {tail(log)}")  # type: ignore[index]
        time.sleep(0.05)


@contextmanager
def alone() -> Iterator[None]:
    """Wait for the turn of this process among all that install something for this checkout."""
    # Any file that is in every checkout would do; a lock changes nothing in it.
    with Path(__file__).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def cpu_seconds(pid: int) -> float:
    """What a process has worked so far, all its threads together: it does not grow while others work."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def file_system() -> str:
    """What kind of file system the brokers' folders are on, `ext4`."""
    folder = Path(tempfile.gettempdir()).resolve()
    mounts = {Path(mount.mountpoint): mount.fstype for mount in psutil.disk_partitions(all=True)}
    return next((mounts[place] for place in (folder, *folder.parents) if place in mounts), "unknown")


def tail(log: Path, *, lines: int = 15) -> str:
    """The last lines of a log, for an error's text."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
