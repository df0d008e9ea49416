"""Runs jobs in an engine host, and keeps an engine host running."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import anyio
import structlog

from nebula.rpc.jobs.runner import JobListener, JobTask
from nebula.spark import lines
from nebula.spark.book import JobBook, Key
from nebula.spark.child import ERRORS, HOST_COMMAND, Child
from nebula.spark.engine import Spark

_log = structlog.get_logger()

BACK_OFF = (1.0, 2.0, 5.0, 10.0, 30.0)
_BROKEN_AFTER = 5

# How often the host's signs of life are looked at.
_TICK_SECONDS = 0.5

# For what an ended host said last to be read.
_LAST_WORDS_SECONDS = 0.2

_Item = TypeVar("_Item")


class _Mailbox(Generic[_Item]):
    """What was put in comes out in order. Putting never waits; one task takes."""

    def __init__(self) -> None:
        self._items: deque[_Item] = deque()
        self._has_items = anyio.Event()

    def put(self, item: _Item) -> None:
        self._items.append(item)
        self._has_items.set()

    async def take(self) -> _Item:
        while not self._items:
            self._has_items = anyio.Event()
            await self._has_items.wait()
        return self._items.popleft()


class EngineState(StrEnum):
    """What the engine is doing."""

    STOPPED = "stopped"  # not started: no job has come, or the runner does not run
    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"  # for the next try after a failed start


class _Restart:
    """A command: replace the engine."""


class _Host:
    """What is known of the one host that runs now."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.outbox = _Mailbox[lines.Line]()
        self.began = self.heard = anyio.current_time()
        self.stuck_since: float | None = None
        self.handed_over = 0
        self.ready: lines.Ready | None = None
        self.beat: lines.Beat | None = None
        self.farewell: str | None = None


@dataclass(frozen=True, slots=True)
class _End:
    """Why a host has to go. One that does not react is not asked to stop first."""

    reason: str
    is_hung: bool = False


class SparkRunner:
    """The `JobRunner` whose jobs run in Spark: supervisor of one engine host at a time.

    It never blocks the loop it runs on. The host's death, a JVM's included, ends its open jobs as lost
    and starts a fresh one. What the listener hears of a job comes in order, and its end once.

    Args:
        spark: the declaration.
        state: the service instance's folder; nobody else may use its `engine/`.
        service: the service's name.
        command: what to start as the host.
        back_off: seconds before the next start, by failed starts in a row; the last one repeats.

    Attributes:
        max_running: how many jobs should be submitted at a time.
        is_broken: why no job can run now, as a sentence, or None. The start is still tried, so it may
            become None again.
    """

    def __init__(
        self,
        spark: Spark,
        state: Path,
        service: str,
        *,
        command: Sequence[str] = HOST_COMMAND,
        back_off: Sequence[float] = BACK_OFF,
    ) -> None:
        self._spark, self._service, self._command, self._back_off = spark, service, command, back_off
        self._folder, self._results = state.absolute() / "engine", state.absolute() / "results"
        self.max_running = spark.max_running
        self.is_broken: str | None = None
        # Commands go through a mailbox, so that a listener is never called from within `submit`.
        self._commands = _Mailbox[JobTask | Key | _Restart]()
        self._book: JobBook | None = None
        self._host: _Host | None = None
        self._has_work, self._wants_restart = anyio.Event(), anyio.Event()
        self._state = EngineState.STOPPED
        self._starts = self._failures = 0
        self._ended_by = ""

    def submit(self, task: JobTask) -> None:
        """Run this job as soon as the engine can. Returns at once; the listener hears the rest."""
        self._commands.put(task)

    def cancel(self, job: str, attempt: int, *, reason: Literal["cancelled", "timed-out"]) -> None:
        """End this job. It hears `on_cancelled`, or its own end if that came first; nothing if it is over."""
        _log.info("job cancel requested", job=job, attempt=attempt, reason=reason)
        self._commands.put((job, attempt))

    def restart(self) -> None:
        """Replace the engine; its open jobs are lost. One that waits for its next try is started now."""
        self._commands.put(_Restart())

    def status(self) -> Mapping[str, Any]:
        """What `engine.status` answers: plain values, None for what is not known now."""
        host = self._host
        ready, beat = (host.ready, host.beat) if host else (None, None)
        return {
            "state": str(self._state),
            "broken": self.is_broken,
            "master": self._spark.master,
            "starts": self._starts,
            "incarnation": host.child.incarnation if host else None,
            "pid": host.child.pid if host else None,
            "jvm_pid": ready.jvm_pid if ready else None,
            "spark": ready.spark if ready else None,
            "java": ready.java if ready else None,
            "start_seconds": ready.seconds if ready else None,
            "rss_bytes": beat.rss_bytes if beat else None,
            "threads": beat.threads if beat else None,
            "jobs": self._book.counts() if self._book else {},
        }

    async def run(self, listener: JobListener, *, started: anyio.Event | None = None) -> None:
        """Take jobs and keep an engine until cancelled. No child process lives when this returns.

        Args:
            listener: hears of the jobs, on this loop, never from within `submit` or `cancel`.
            started: set as soon as jobs are taken; the engine may need seconds more.
        """
        self._book = JobBook(listener)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._take_commands, self._book)
                if started is not None:
                    started.set()
                await self._keep_engine(self._book)
        finally:
            self._state = EngineState.STOPPED

    def _prepare(self) -> None:
        # What a JVM said last is worth most when its successor has just been started.
        said = self._folder / ERRORS
        if said.exists():
            said.replace(said.with_name(f"{ERRORS}.1"))
        # What a host that was killed could not remove. Nobody writes now: its processes are gone.
        shutil.rmtree(self._folder / "scratch", ignore_errors=True)
        for unfinished in self._results.glob(f"*{lines.UNFINISHED}*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        for folder in (self._folder / "scratch", self._results):
            folder.mkdir(parents=True, exist_ok=True)

    async def _take_commands(self, book: JobBook) -> None:
        while True:
            command = await self._commands.take()
            if isinstance(command, JobTask):
                book.add(command)
                self._has_work.set()
                if self.is_broken:
                    book.refuse_waiting(self.is_broken)
                self._hand_over(book)
            elif isinstance(command, _Restart):
                self._wants_restart.set()
            elif book.cancel(command) and self._host is not None:
                self._host.outbox.put(lines.Cancel(*command))

    def _hand_over(self, book: JobBook) -> None:
        if self._state is not EngineState.READY or self._host is None:
            return
        for task in book.hand_over(self._host.child.incarnation):
            self._host.handed_over += 1
            self._host.outbox.put(
                lines.Submit(task.job, task.attempt, task.verb, task.function, task.parameters, task.trace)
            )

    async def _keep_engine(self, book: JobBook) -> None:
        while True:
            if not self._spark.warm:
                await self._until_wanted(book)
            self._state, self._wants_restart, self._starts = (
                EngineState.STARTING,
                anyio.Event(),
                self._starts + 1,
            )
            if await self._run_one(book):
                # It ran well until it ended, so the next one will; and starting takes seconds anyway.
                continue
            self._failures += 1
            self._state = EngineState.WAITING
            if self._failures >= _BROKEN_AFTER and self.is_broken is None:
                self.is_broken = f"Spark's engine cannot start, {self._ended_by}; see {self._folder / ERRORS}"
            if self.is_broken:
                book.refuse_waiting(self.is_broken)
            # Asking for a restart shortens the wait: whoever asks has mended something.
            with anyio.move_on_after(self._back_off[min(self._failures, len(self._back_off)) - 1]):
                await self._wants_restart.wait()

    async def _until_wanted(self, book: JobBook) -> None:
        self._state = EngineState.STOPPED
        while not book.has_waiting:
            self._has_work = anyio.Event()
            await self._has_work.wait()

    async def _run_one(self, book: JobBook) -> bool:
        """One host from start to end; whether it ever became ready."""
        try:
            await anyio.to_thread.run_sync(self._prepare)
            # A start that is cancelled half-way would leave a process that nobody knows.
            with anyio.CancelScope(shield=True):
                host = self._host = _Host(await Child.start(self._command, self._folder))
        except OSError as error:
            self._ended_by = f"{self._command[0]} was not started: {error}"
            _log.warning("engine host not started", service=self._service, error=str(error))
            return False
        log = _log.bind(service=self._service, incarnation=host.child.incarnation)
        log.info("engine host started", pid=host.child.pid)
        end = _End("the service stopped")
        try:
            end = await self._converse(host, book)
        finally:
            self._state = EngineState.STARTING
            status = await host.child.close(0.0 if end.is_hung else self._spark.stop_grace)
            self._host, self._ended_by = None, end.reason
            log.info("engine host ended", reason=end.reason, status=status)
            # Only now: what this host still did must not overlap with a job's next attempt.
            book.lose_all(end.reason)
        return host.ready is not None

    # Three things end a talk, and the first one counts: what is heard, the host's exit, and its silence.
    async def _converse(self, host: _Host, book: JobBook) -> _End:
        """Speak with the host until there is a reason to end it."""
        ends: list[_End] = []
        host.outbox.put(self._configuration(host.child.incarnation))
        async with anyio.create_task_group() as group:

            async def until_it_ends(wait: Callable[[], Awaitable[_End]]) -> None:
                ends.append(await wait())
                group.cancel_scope.cancel()

            group.start_soon(_write, host)
            group.start_soon(until_it_ends, partial(self._listen, host, book))
            group.start_soon(until_it_ends, partial(_await_exit, host))
            group.start_soon(until_it_ends, partial(self._watch, host, book))
        return ends[0]

    def _configuration(self, incarnation: str) -> lines.Configure:
        spark = self._spark
        return lines.Configure(
            name=self._service,
            incarnation=incarnation,
            folder=str(self._folder),
            results=str(self._results),
            master=spark.master,
            memory=spark.memory,
            conf=dict(spark.conf),
            max_rows=spark.max_rows,
            max_result_bytes=spark.max_result_bytes,
            cancel_grace=spark.cancel_grace,
        )

    async def _listen(self, host: _Host, book: JobBook) -> _End:
        while True:
            try:
                received = await host.child.read()
            except lines.LineError as error:
                return _End(f"the engine host did not speak our language: {error}", is_hung=True)
            host.heard = anyio.current_time()
            if not received:
                return _End(host.farewell or "the engine host died")
            for line in received:
                self._hear(line, host, book)

    def _hear(self, line: lines.Line, host: _Host, book: JobBook) -> None:
        match line:
            case lines.Ready():
                host.ready, self._state = line, EngineState.READY
                self._failures, self.is_broken = 0, None
                _log.info(
                    "engine ready",
                    service=self._service,
                    spark=line.spark,
                    java=line.java,
                    seconds=line.seconds,
                )
                self._hand_over(book)
            case lines.Broken():
                self.is_broken = line.reason
                _log.error("engine broken", service=self._service, reason=line.reason)
            case lines.Beat():
                host.beat = line
            case lines.Bye():
                host.farewell = line.reason
            case _:
                book.hear(line)

    async def _watch(self, host: _Host, book: JobBook) -> _End:
        while True:
            looked = anyio.current_time()
            with anyio.move_on_after(_TICK_SECONDS):
                await self._wants_restart.wait()
            now = anyio.current_time()
            if now - looked > 2 * _TICK_SECONDS:
                # Our own loop stood still: the silence may be ours, not the host's.
                host.heard = now
            end = self._why_end(host, book, now)
            if end is not None:
                return end

    def _why_end(self, host: _Host, book: JobBook, now: float) -> _End | None:
        spark = self._spark
        # From here on a thread is lost for good: Python cannot end one from outside.
        host.stuck_since = (host.stuck_since or now) if book.has_stuck else None
        if self._wants_restart.is_set():
            return _End("the engine was restarted by request")
        if now - host.heard > spark.silence_timeout:
            return _End(f"the engine host was silent for {spark.silence_timeout:g} s", is_hung=True)
        if host.ready is None and now - host.began > spark.start_timeout:
            return _End(f"Spark did not start within {spark.start_timeout:g} s", is_hung=True)
        if host.stuck_since and (not book.has_open or now - host.stuck_since > spark.replace_after):
            return _End("the engine was replaced: the code of a cancelled job did not stop", is_hung=True)
        if host.handed_over >= spark.recycle_after_jobs and not book.has_open:
            return _End(f"the engine was replaced after {host.handed_over} jobs")
        return None


async def _await_exit(host: _Host) -> _End:
    # Its end is normally heard as the end of its output, but a process that a job forked may hold that open.
    await host.child.wait()
    await anyio.sleep(_LAST_WORDS_SECONDS)
    return _End(host.farewell or "the engine host died")


async def _write(host: _Host) -> None:
    while True:
        await host.child.send(await host.outbox.take())
