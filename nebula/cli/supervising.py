"""Several processes of one service, kept alive until they are told to stop: `--workers` and `--reload`."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any, Final

import anyio
from anyio.abc import ByteReceiveStream, Process, TaskGroup

from nebula.cli.exits import Exit
from nebula.cli.terminal import hand_on, silence_stdout
from nebula.errors import SettingsError
from nebula.logs import get_logger

__all__ = ["Supervisor", "Worker", "check_can_watch"]

_log = get_logger("nebula.run")

# Between the end of a worker and its next begin; doubled each time, until one has lived for a while.
_FIRST_DELAY: Final = 0.5
_LONGEST_DELAY: Final = 30.0
_STEADY_SECONDS: Final = 60.0

# Above what a service takes to answer what it has begun, and to end its engine.
_STOP_SECONDS: Final = 15.0
_LAST_OUTPUT_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Worker:
    """How one process is started.

    Attributes:
        command: the program and its arguments. Its first line says by JSON, `{"event": "serving", …}`, that
            it takes requests; all others are handed on.
        environment: its own.
    """

    command: Sequence[str]
    environment: Mapping[str, str]


class Supervisor:
    """Keeps processes of one service alive.

    A worker that ends is started again, after a delay that grows with each failure. Where the first ones fail
    before any of them has served, and not for want of a broker, there is nothing to keep alive: it gives up.
    Workers have a session of their own, so that Ctrl-C reaches the supervisor alone, and their stdin ends
    with it, which tells them to stop.

    Args:
        workers: how each is started.
        on_serving: called once, when all of them serve, with what each of them said, in their order.
        watched: start all workers anew when a Python file under this folder changes; None: never.
        first_delay: seconds before the first restart.
        stop_seconds: that a worker may take to end before it is killed.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        on_serving: Callable[[Sequence[Mapping[str, Any]]], None],
        *,
        watched: Path | None = None,
        first_delay: float = _FIRST_DELAY,
        stop_seconds: float = _STOP_SECONDS,
    ) -> None:
        self._workers = workers
        self._on_serving = on_serving
        self._watched = watched
        self._first_delay = first_delay
        self._stop_seconds = stop_seconds
        # By number of the worker: the last line that says that it serves.
        self._serving: dict[int, Mapping[str, Any]] = {}
        self._running: dict[int, Process] = {}
        self._changed = anyio.Event()
        self._over = anyio.Event()
        self.status = int(Exit.OK)

    async def run(self) -> None:
        """Run them until cancelled, or until it gives up; `status` says how it went.

        When cancelled, all workers are told to stop at once, and waited for.
        """
        async with anyio.create_task_group() as tasks:
            if self._watched is not None:
                tasks.start_soon(self._watch, self._watched, tasks)
            for number, worker in enumerate(self._workers):
                # A task for each worker, so that one that fails does not affect the others.
                tasks.start_soon(self._keep, number, worker)
            # Set when the supervisor gives up; a signal cancels from outside.
            await self._over.wait()
            tasks.cancel_scope.cancel()

    async def _keep(self, number: int, worker: Worker) -> None:
        delay = self._first_delay
        while True:
            # The event of now: `_watch` replaces it with each change, so a change during this run is found in
            # it even after the process has ended by itself.
            began, changed = monotonic(), self._changed
            status = await self._run_once(number, worker)
            # Ended because of the change: no failure, so no delay.
            if changed.is_set():
                delay = self._first_delay
                continue
            if self._is_hopeless(status):
                # As shells have it: what a signal ended has a status above those that programs give.
                self.status = 128 - status if status < 0 else status
                self._over.set()
                return
            if monotonic() - began >= _STEADY_SECONDS:
                delay = self._first_delay
            # Those that ended together need not come back in the same moment.
            seconds = delay * random.uniform(0.5, 1.0)  # noqa: S311  # nothing secret
            _log.warning("worker ended", worker=number, status=status, restart_seconds=round(seconds, 1))
            # A change of a file may well be the repair: it ends the delay.
            with anyio.move_on_after(seconds):
                await changed.wait()
            # Bounded, so that the service returns soon after the cause is gone.
            delay = min(delay * 2, _LONGEST_DELAY)

    def _is_hopeless(self, status: int) -> bool:
        """Whether the service cannot even be started, so that trying again is pointless."""
        # Status 3: the broker may start later. With --reload the next change may repair the service.
        return not self._serving and status != Exit.UNREACHED and self._watched is None

    async def _run_once(self, number: int, worker: Worker) -> int:
        process = await anyio.open_process(
            worker.command,
            env=worker.environment,
            # Never written to. It ends with us, also if we are killed, and then the worker stops.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Workers log to the supervisor's stderr.
            stderr=None,
            start_new_session=True,
        )
        self._running[number] = process
        _log.info("worker started", worker=number, pid=process.pid)
        try:
            assert process.stdout is not None
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read, number, process.stdout)
                status = await process.wait()
                # What it has started itself may hold its stdout for longer than it lives.
                tasks.cancel_scope.deadline = anyio.current_time() + _LAST_OUTPUT_SECONDS
            return status
        finally:
            # Shielded: a worker that is not waited for would outlive its supervisor.
            with anyio.CancelScope(shield=True):
                await self._end(process)
                await process.aclose()
            del self._running[number]

    async def _read(self, number: int, stdout: ByteReceiveStream) -> None:
        """Hand on what a worker says, until it says no more."""
        rest = b""
        async for data in stdout:
            # Whole lines, because several workers write to one stdout.
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if (facts := _serving_facts(line)) is None:
                    _write(line + b"\n")
                else:
                    self._note_serving(number, facts)
        # The rest may be a line without an end.
        _write(rest)

    def _note_serving(self, number: int, facts: Mapping[str, Any]) -> None:
        # Announced once, although restarted workers serve again.
        is_news = len(self._serving) < len(self._workers)
        self._serving[number] = facts
        # Where it listens now: a free port is another one after each start.
        place = {"http": facts["http"]} if "http" in facts else {}
        _log.info("worker began to serve", worker=number, **place)
        if is_news and len(self._serving) == len(self._workers):
            self._on_serving([told for _, told in sorted(self._serving.items())])

    async def _end(self, process: Process) -> None:
        """Tell a worker to stop and wait for it; kill it if it takes too long."""
        if process.returncode is None:
            with suppress(ProcessLookupError):
                # SIGTERM first, so that requests in progress are completed.
                process.terminate()
            with anyio.move_on_after(self._stop_seconds):
                await process.wait()
        if process.returncode is None:
            _log.warning("worker killed", pid=process.pid, seconds=self._stop_seconds)
            with suppress(ProcessLookupError):
                # A handler hangs, or user code ignores the signal.
                process.kill()
            await process.wait()

    async def _watch(self, folder: Path, tasks: TaskGroup) -> None:
        async for names in _changes(folder):
            _log.info("files changed", files=sorted(names)[:5])
            # Replaced before the old event is set, so that restarted workers wait for the next change.
            changed, self._changed = self._changed, anyio.Event()
            changed.set()
            for process in self._running.values():
                # Concurrently: the next change must not wait for a process that takes long to end.
                tasks.start_soon(self._end, process)


def _serving_facts(line: bytes) -> Mapping[str, Any] | None:
    """What a worker's line says if it is the one by which it says that it serves."""
    # Handlers may print JSON too; this cheap test excludes most lines.
    if not line.startswith(b'{"event": "serving"'):
        return None
    try:
        facts = json.loads(line)
    except ValueError:
        return None
    return facts if isinstance(facts, dict) else None


def _write(data: bytes) -> None:
    try:
        hand_on(data)
    except BrokenPipeError:
        # The reader of the first line has it. The service goes on.
        silence_stdout()


def check_can_watch() -> None:
    """Raise `SettingsError` where files cannot be watched."""
    # Not imported yet: only the loop needs it.
    if find_spec("watchfiles") is None:
        raise SettingsError("--reload needs watchfiles: install nebula-rpc[reload]")


async def _changes(folder: Path) -> AsyncIterator[set[str]]:
    from watchfiles import PythonFilter, awatch

    async for changes in awatch(folder, watch_filter=PythonFilter()):
        yield {os.path.relpath(path, folder) for _, path in changes}
