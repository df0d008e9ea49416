"""Runs jobs in an engine host, and keeps an engine host running."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import Any, Literal

import anyio
from anyio.abc import TaskGroup

from nebula.logs import get_logger
from nebula.rpc.contract.job_runner import JobListener, JobTask, Started
from nebula.rpc.jobs.registry.unfinished import notes_of
from nebula.spark import lines
from nebula.spark.child import ERRORS, HOST_COMMAND
from nebula.spark.class_archive import Archivist
from nebula.spark.engine import Spark
from nebula.spark.engine_status import status_of
from nebula.spark.host_run import End, HostRun
from nebula.spark.idle_policy import Idle, why_recycle, why_stop
from nebula.spark.isolated import IsolatedRuns
from nebula.spark.job_table import JobBook, Key
from nebula.spark.mailbox import Mailbox
from nebula.spark.plan import EnginePlan

_log = get_logger(__name__)

BACK_OFF = (1.0, 2.0, 5.0, 10.0, 30.0)
_BROKEN_AFTER = 5
_SLOW_SECONDS = 30.0

# An engine that ends sooner than this by itself, without having finished a job, counts as failed.
_STEADY_SECONDS = 60.0


class EngineState(StrEnum):
    """What the engine is doing."""

    STOPPED = "stopped"  # not started: no job has come, or none for long, or the runner does not run
    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"  # for the next try after a failed start


class _Restart:
    """A command: replace the engine."""


class SparkRunner:
    """The `JobRunner` whose jobs run in Spark: supervisor of one engine, one host at a time.

    It never blocks the loop it runs on. The host's death, a JVM's included, ends its open jobs as lost
    and starts a fresh one. What the listener hears of a job comes in order, and its end once. Jobs that
    want to be isolated have hosts of their own beside it.

    Args:
        spark: the declaration.
        state: the service instance's folder; nobody else may use its `engine/<name>/`.
        service: the service's name.
        name: the engine's.
        is_shared: False: all jobs are isolated, and nothing is started before the first one.
        command: what to start as the host.
        back_off: seconds before the next start, by failed starts in a row; the last one repeats.
        archivist: makes what looks after the archive of Java's classes.

    Attributes:
        max_running: how many jobs should be submitted at a time.
    """

    def __init__(
        self,
        spark: Spark,
        state: Path,
        service: str,
        name: str = "default",
        *,
        is_shared: bool = True,
        command: Sequence[str] = HOST_COMMAND,
        back_off: Sequence[float] = BACK_OFF,
        archivist: Callable[[Spark, Callable[[], float]], Archivist] = Archivist,
    ) -> None:
        self._spark, self._is_shared, self._back_off = spark, is_shared, back_off
        self._archivist = archivist(spark, self._idle_seconds)
        self._plan = EnginePlan(
            spark,
            service,
            name,
            folder=state.absolute() / "engine" / name,
            results=EnginePlan.results_of(state),
            notes=notes_of(state.absolute()),
            command=command,
            archives=self._archivist.folder,
        )
        self._plan.clean()
        self.max_running = spark.max_running
        self._broken: str | None = None
        # Commands go through a mailbox, so that a listener is never called from within `submit`.
        self._commands = Mailbox[JobTask | Key | _Restart]()
        self._book: JobBook | None = None
        self._isolated: IsolatedRuns | None = None
        self._host: HostRun | None = None
        self._has_work, self._wants_restart = anyio.Event(), anyio.Event()
        self._state = EngineState.STOPPED
        self._stuck_since: float | None = None
        self._idle_since = math.inf
        # Starts; of those the last ones in a row that failed, and those that ended before they were of use.
        self._starts = self._failures = self._early_ends = 0
        self._ready_since = math.inf
        self._failing: str | None = None
        self._suspects_archive = False
        self._last_end: str | None = None

    @property
    def is_broken(self) -> str | None:
        """Why no job can run now, as a sentence, or None. The start is still tried, so it may become None."""
        return self._broken or (self._isolated.is_broken if self._isolated else None)

    @property
    def failing(self) -> str | None:
        """See `JobRunner`: the last start failed, or the engine ended by itself; none is ready yet."""
        return self._failing or (self._isolated.failing if self._isolated else None)

    def submit(self, task: JobTask) -> None:
        """Run this job as soon as the engine can. Returns at once; the listener hears the rest."""
        self._commands.put(task)

    def cancel(self, job: str, attempt: int, *, reason: Literal["cancelled", "timed-out"]) -> None:
        """End this job. It hears `on_cancelled`, or its own end if that came first; nothing if it is over."""
        _log.info("job cancel requested", job=job, attempt=attempt, reason=reason)
        self._commands.put((job, attempt))

    def restart(self) -> None:
        """Replace the engine; its open jobs are lost. One that waits for its next try is started now.

        Isolated jobs run on: their engines are their own. Where these could not be started, the next job
        tries.
        """
        self._commands.put(_Restart())

    def status(self) -> Mapping[str, Any]:
        """What `engine.status` answers: plain values, None for what is not known now."""
        return {
            "state": str(self._state),
            "broken": self.is_broken,
            "last_end": self._last_end,
            "starts": self._starts,
            **status_of(self._spark, self._host),
            "archive": self._archivist.state,
            "jobs": self._book.counts() if self._book else {},
            "isolated": self._isolated.status() if self._isolated else [],
        }

    async def run(self, listener: JobListener, *, started: Started | None = None) -> None:
        """Take jobs and keep an engine until cancelled. No child process lives when this returns.

        Args:
            listener: hears of the jobs, on this loop, never from within `submit` or `cancel`.
            started: set as soon as jobs are taken; the engine may need seconds more.
        """
        book = self._book = JobBook(listener)
        self._isolated = IsolatedRuns(
            self._plan,
            listener,
            self._back_off,
            lambda line, suspects: self._archivist.hear(line, suspects_it=suspects),
        )
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._take_commands, book, self._isolated, group)
                group.start_soon(self._archivist.run)
                if started is not None:
                    started.set()
                await self._keep_engine(book)
        finally:
            self._state = EngineState.STOPPED

    async def _take_commands(self, book: JobBook, isolated: IsolatedRuns, group: TaskGroup) -> None:
        while True:
            command = await self._commands.take()
            if isinstance(command, _Restart):
                self._wants_restart.set()
                isolated.try_again()
                if self._host is not None:
                    self._host.look()
            elif isinstance(command, JobTask):
                self._take_job(command, book, isolated, group)
            elif not isolated.cancel(command) and book.cancel(command) and self._host is not None:
                self._host.say(lines.Cancel(*command))

    def _take_job(self, task: JobTask, book: JobBook, isolated: IsolatedRuns, group: TaskGroup) -> None:
        if task.isolation == "process":
            isolated.begin(task, group)
            return
        book.add(task)
        self._has_work.set()
        if self._broken:
            book.refuse_waiting(self._broken)
        self._hand_over(book)

    def _hand_over(self, book: JobBook) -> None:
        host = self._host
        # One that is about to go would take the job with it: the next one has it.
        if host is None or host.ready is None or host.is_leaving:
            return
        for task in book.hand_over(host.incarnation):
            self._idle_since = math.inf
            if (failed := host.submit(task)) is not None:
                book.hear(failed)

    async def _keep_engine(self, book: JobBook) -> None:
        waits_for_job = not self._spark.warm or not self._is_shared
        while True:
            if waits_for_job:
                await self._until_wanted(book)
            self._state, self._wants_restart = EngineState.STARTING, anyio.Event()
            self._starts += 1
            began = monotonic()
            end = await self._run_one(book)
            if end is None:
                # Once tried it is tried again, job or not: nobody else would find out that it was mended.
                waits_for_job = False
                await self._after_failure(book, monotonic() - began)
            else:
                is_wanted = self._spark.warm and self._is_shared and not end.is_idle
                waits_for_job = not (is_wanted or end.is_failure)
                await self._after_end(end)

    async def _after_failure(self, book: JobBook, seconds: float) -> None:
        self._failures += 1
        self._state = EngineState.WAITING
        # A cluster that does not answer takes Spark's own minute each time: more of them would be silence.
        is_slow = seconds > _SLOW_SECONDS and not self._spark.master.startswith("local")
        if (self._failures >= _BROKEN_AFTER or is_slow) and self._broken is None:
            where = self._plan.folder / ERRORS
            self._broken = f"Spark's engine cannot start, {self._last_end}; see {where}"
            self._tell_broken(self._broken)
        self._failing = self._broken or f"Spark's engine did not start, {self._last_end}"
        if self._broken:
            book.refuse_waiting(self._broken)
        await self._wait_for_next_start(self._failures)

    async def _after_end(self, end: End) -> None:
        """An engine has ended that had been ready: the next one follows at once, unless they end early."""
        if not end.is_failure:
            return
        self._failing = f"Spark's engine has ended, {self._last_end}"
        is_early = monotonic() - self._ready_since < _STEADY_SECONDS
        self._early_ends = self._early_ends + 1 if is_early else 0
        if self._early_ends > 1:
            self._state = EngineState.WAITING
            await self._wait_for_next_start(self._early_ends - 1)

    async def _wait_for_next_start(self, failures: int) -> None:
        # Asking for a restart shortens the wait: whoever asks has mended something.
        with anyio.move_on_after(self._back_off[min(failures, len(self._back_off)) - 1]):
            await self._wants_restart.wait()

    def _tell_broken(self, reason: str) -> None:
        _log.error("engine broken", service=self._plan.service, engine=self._plan.name, reason=reason)

    async def _until_wanted(self, book: JobBook) -> None:
        self._state = EngineState.STOPPED
        while not book.has_waiting:
            self._has_work = anyio.Event()
            await self._has_work.wait()

    async def _run_one(self, book: JobBook) -> End | None:
        """One host from start to end: why it ended; None if it could not start."""
        plan = self._plan
        try:
            await anyio.to_thread.run_sync(plan.prepare)
            host = self._host = await HostRun.start(plan.command, plan.folder, self._spark)
        except OSError as error:
            self._last_end = f"{plan.command[0]} was not started: {error}"
            _log.warning("engine host not started", service=plan.service, engine=plan.name, error=str(error))
            return None
        log = _log.bind(service=plan.service, engine=plan.name, incarnation=host.incarnation)
        log.info("engine host started", pid=host.pid)
        self._stuck_since, self._idle_since = None, math.inf
        end = End("the service stopped")
        try:
            configuration = plan.configuration(host.incarnation, with_archive=not self._suspects_archive)
            end = await host.converse(
                configuration,
                lambda line: self._hear(line, book),
                lambda now: self._why_end(host, book, now),
            )
        finally:
            self._state = EngineState.STARTING
            self._idle_since = math.inf
            with anyio.CancelScope(shield=True):
                ended = await host.close(end)
                await anyio.to_thread.run_sync(plan.remove_unfinished, book.held())
            self._host, self._last_end = None, ended.reason
            # A Java that has died at its start may have died by the archive.
            self._suspects_archive |= host.ready is None and ended.status == lines.STATUS_SPARK_DIED
            (log.warning if ended.is_failure else log.info)("engine host ended", **ended.facts())
            # Only now: what this host still did must not overlap with a job's next attempt.
            book.lose_all(ended.reason)
        return end if host.ready is not None or self._wants_restart.is_set() else None

    def _hear(self, line: lines.Line, book: JobBook) -> None:
        service, engine = self._plan.service, self._plan.name
        match line:
            case lines.Ready():
                self._state = EngineState.READY
                self._archivist.hear(line, suspects_it=self._suspects_archive)
                self._failures, self._broken, self._suspects_archive = 0, None, False
                self._failing, self._ready_since = None, monotonic()
                facts = {"spark": line.spark, "java": line.java, "seconds": line.seconds}
                _log.info("engine ready", service=service, engine=engine, archive=line.archive_state, **facts)
                self._hand_over(book)
            case lines.Broken():
                if self._broken != line.reason:
                    self._tell_broken(line.reason)
                self._broken = line.reason
            case lines.Done():
                self._early_ends = 0
                book.hear(line)
            case _:
                book.hear(line)

    def _why_end(self, host: HostRun, book: JobBook, now: float) -> End | None:
        # From here on a thread is lost for good: Python cannot end one from outside.
        self._stuck_since = (self._stuck_since or now) if book.has_stuck else None
        if self._wants_restart.is_set():
            return End("the engine was restarted by request")
        if self._stuck_since and (not book.has_open or now - self._stuck_since > self._spark.replace_after):
            return End("the engine was replaced: the code of a cancelled job did not stop", is_hung=True)
        if host.ready is None or not book.is_idle:
            self._idle_since = math.inf
            return None
        self._idle_since = min(self._idle_since, now)
        return self._why_end_idle(host, now)

    def _why_end_idle(self, host: HostRun, now: float) -> End | None:
        idle = Idle(
            seconds=now - self._idle_since,
            age=now - host.began,
            jobs=host.handed_over,
            rss_bytes=host.beat.rss_bytes if host.beat else 0,
        )
        if reason := why_stop(self._spark, idle):
            return End(reason, is_idle=True)
        if reason := why_recycle(self._spark, idle):
            return End(reason)
        return None

    def _idle_seconds(self) -> float:
        """How long the engine has had nothing to do; 0 where it has, or is about to start."""
        isolated = self._isolated.idle_seconds if self._isolated else 0.0
        if self._state is EngineState.STOPPED:
            return isolated
        return min(isolated, max(0.0, monotonic() - self._idle_since))
