"""Runner of one Spark engine: starts its process, feeds it jobs, watches, replaces and ends it.

The runner never gives up: a start that failed is tried again after a back-off, and the engine counts as
broken meanwhile, so that its jobs fail at once instead of waiting. A process that dies is replaced. Isolated
jobs have processes of their own; see `nebula.spark.isolated`.
"""

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
from nebula.spark.class_archive import ClassArchive
from nebula.spark.engine_process import ERRORS, HOST_COMMAND, End, EngineProcess
from nebula.spark.engine_slot import EnginePlan, EngineSlot
from nebula.spark.engine_status import status_of
from nebula.spark.idle_policy import Idle, why_recycle, why_stop
from nebula.spark.isolated import IsolatedRuns
from nebula.spark.job_table import JobTable, Key
from nebula.spark.mailbox import Mailbox
from nebula.spark.settings import EngineSettings

_log = get_logger(__name__)

BACK_OFF = (1.0, 2.0, 5.0, 10.0, 30.0)
_BROKEN_AFTER = 5
_SLOW_SECONDS = 30.0

# An engine that ends sooner than this by itself, without having finished a job, counts as failed.
_STEADY_SECONDS = 60.0


class EngineState(StrEnum):
    """What the engine is doing."""

    STOPPED = "stopped"  # not started: no job has come, or none for long, or the runner does not run
    STARTING = "starting"  # or ending
    READY = "ready"
    WAITING = "waiting"  # for the next try after a failed start


class _Restart:
    """A command: replace the engine."""


# One loop (`_keep_engine`) owns the engine's life: wait until it is wanted, run one process to its end,
# decide what that end means. Commands come by a mailbox and are carried out by another task, so a
# `submit` never waits for an engine that starts or ends.
#
# Two counters keep a broken engine from being started in a tight loop. `_failures` counts starts in a row
# that never got ready; `_BROKEN_AFTER` of them, or one that says why it can never start, make the engine
# broken, and its jobs fail at once. `_early_ends`
# counts engines that were ready and ended by themselves soon after, before they finished a job: a job
# that kills every engine looks like that. The first such end is followed by a start at once, later ones
# by a back-off.
class SparkRunner:
    """The `JobRunner` whose jobs run in Spark: supervisor of one engine, one process at a time.

    It never blocks the loop it runs on. The death of the engine's process, or of its JVM, ends its open jobs
    as lost and starts a fresh one. A listener is told about a job in order, and about its end once.

    Args:
        settings: of the engine.
        state: the service instance's folder; no other engine may use its `engine/<name>/`.
        service: the service's name.
        name: the engine's.
        is_shared: False: all jobs are isolated, and nothing is started before the first one.
        command: what to start as the host.
        back_off: seconds before the next start, by failed starts in a row; the last one repeats.
        archive: makes the manager of the archive of Java's classes.

    Attributes:
        max_running: how many jobs should be submitted at a time.
    """

    def __init__(
        self,
        settings: EngineSettings,
        state: Path,
        service: str,
        name: str = "default",
        *,
        is_shared: bool = True,
        command: Sequence[str] = HOST_COMMAND,
        back_off: Sequence[float] = BACK_OFF,
        archive: Callable[[EngineSettings, Callable[[], float]], ClassArchive] = ClassArchive,
    ) -> None:
        self._settings, self._is_shared, self._back_off = settings, is_shared, back_off
        self._archive = archive(settings, self._idle_seconds)
        self._plan = EnginePlan(
            settings,
            service,
            name,
            folder=state.absolute() / "engine" / name,
            results=EnginePlan.results_of(state),
            notes=notes_of(state.absolute()),
            command=command,
            archives=self._archive.folder,
        )
        # Before any engine runs: afterwards unfinished outputs may be those of a job.
        self._plan.clean()
        self.max_running = settings.max_running
        # Commands go through a mailbox, so that a listener is never called from within `submit`.
        self._commands = Mailbox[JobTask | Key | _Restart]()
        self._table: JobTable | None = None
        self._slot: EngineSlot | None = None
        self._isolated: IsolatedRuns | None = None
        self._has_work, self._wants_restart = anyio.Event(), anyio.Event()
        self._state = EngineState.STOPPED
        self._stuck_since: float | None = None
        self._idle_since = math.inf
        self._broken: str | None = None
        self._failing: str | None = None
        # Starts; of those the last ones in a row that failed, and those that ended before they were of use.
        self._starts = self._failures = self._early_ends = 0
        self._ready_since = math.inf

    @property
    def is_broken(self) -> str | None:
        """Why no job can run now, as a sentence, or None. The start is still tried, so it may become None."""
        return self._broken or (self._isolated.is_broken if self._isolated else None)

    @property
    def failing(self) -> str | None:
        """See `JobRunner`: the last start failed, or the engine ended by itself; none is ready yet."""
        return self._failing or (self._isolated.failing if self._isolated else None)

    @property
    def state(self) -> EngineState:
        """What the shared engine is doing."""
        is_ready = self._slot is not None and self._slot.takes_jobs
        return EngineState.READY if is_ready else self._state

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
        """What `engine.status` replies: plain values, None for what is not known now."""
        slot = self._slot
        return {
            "state": str(self.state),
            "broken": self.is_broken,
            "last_end": slot.last_end if slot else None,
            "starts": self._starts,
            **status_of(self._settings, slot.process if slot else None),
            "archive": self._archive.state,
            "jobs": self._table.counts() if self._table else {},
            "isolated": self._isolated.status() if self._isolated else [],
        }

    async def run(self, listener: JobListener, *, started: Started | None = None) -> None:
        """Take jobs and keep an engine until cancelled. No child process lives when this returns.

        Args:
            listener: hears about the jobs, on this loop, never from within `submit` or `cancel`.
            started: set as soon as jobs are taken; the engine may need seconds more.
        """
        table = self._table = JobTable(listener)
        slot = self._slot = EngineSlot(self._plan, table)
        isolated = self._isolated = IsolatedRuns(
            self._plan,
            listener,
            self._back_off,
            lambda line, suspects: self._archive.hear(line, suspects_it=suspects),
        )
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._take_commands, table, slot, isolated, group)
                group.start_soon(self._archive.run)
                if started is not None:
                    started.set()
                await self._keep_engine(table, slot)
        finally:
            self._state = EngineState.STOPPED

    # --- jobs ---

    async def _take_commands(
        self, table: JobTable, slot: EngineSlot, isolated: IsolatedRuns, group: TaskGroup
    ) -> None:
        while True:
            match await self._commands.take():
                case _Restart():
                    self._wants_restart.set()
                    isolated.try_again()
                    slot.look()
                case JobTask(isolation="process") as task:
                    isolated.begin(task, group)
                case JobTask() as task:
                    table.add(task)
                    # Busy from now on: the idle policy must not end the engine before it has the job.
                    self._idle_since = math.inf
                    self._has_work.set()
                    # A broken engine may stay so until a person acts, so its jobs fail at once.
                    if self._broken:
                        table.refuse_waiting(self._broken)
                    slot.hand_over()
                case key:
                    if not isolated.cancel(key):
                        slot.cancel(key)

    def _hear(self, line: lines.Line, table: JobTable, slot: EngineSlot) -> None:
        service, engine = self._plan.service, self._plan.name
        match line:
            case lines.Ready():
                self._archive.hear(line, suspects_it=slot.suspects_archive)
                # A successful start clears everything: earlier failures say nothing about this engine.
                self._failures, self._broken, slot.suspects_archive = 0, None, False
                self._failing, self._ready_since = None, monotonic()
                facts = {"spark": line.spark, "java": line.java, "seconds": line.seconds}
                _log.info("engine ready", service=service, engine=engine, archive=line.archive_state, **facts)
                slot.hand_over()
            case lines.Broken():
                if self._broken != line.reason:
                    self._log_broken(line.reason)
                self._broken = line.reason
            case lines.Done():
                # The engine works, so early ends before it no longer count.
                self._early_ends = 0
                table.hear(line)
            case _:
                table.hear(line)

    # --- the engine ---

    async def _keep_engine(self, table: JobTable, slot: EngineSlot) -> None:
        # A cold engine is started by its first job.
        waits_for_job = not self._settings.warm or not self._is_shared
        while True:
            if waits_for_job:
                await self._until_wanted(table)
            self._state, self._wants_restart = EngineState.STARTING, anyio.Event()
            self._stuck_since, self._idle_since = None, math.inf
            self._starts += 1
            began = monotonic()
            process = await slot.run(
                lambda line: self._hear(line, table, slot), lambda now: self._why_end(table, slot, now)
            )
            end = process.end if process is not None else None
            # Without `ready` the start has failed, unless it was ended to be restarted.
            if process is None or end is None or not (process.ready or self._wants_restart.is_set()):
                # Once tried it is tried again, job or not: nothing else would find out that it was mended.
                waits_for_job = False
                await self._after_failure(table, slot, monotonic() - began)
            else:
                is_wanted = self._settings.warm and self._is_shared and not end.is_idle
                # After a failure the next one starts even if no job waits, to find out whether it can.
                waits_for_job = not (is_wanted or end.is_failure)
                await self._after_end(end, slot)

    async def _until_wanted(self, table: JobTable) -> None:
        self._state = EngineState.STOPPED
        while not table.has_waiting:
            self._has_work = anyio.Event()
            await self._has_work.wait()

    async def _after_failure(self, table: JobTable, slot: EngineSlot, seconds: float) -> None:
        self._failures += 1
        self._state = EngineState.WAITING
        # A cluster that does not reply takes Spark's own minute each time: more of them would be silence.
        is_slow = seconds > _SLOW_SECONDS and not self._settings.master.startswith("local")
        if (self._failures >= _BROKEN_AFTER or is_slow) and self._broken is None:
            where = self._plan.folder / ERRORS
            self._broken = f"Spark's engine cannot start, {slot.last_end}; see {where}"
            self._log_broken(self._broken)
        self._failing = self._broken or f"Spark's engine did not start, {slot.last_end}"
        if self._broken:
            table.refuse_waiting(self._broken)
        await self._wait_for_next_start(self._failures)

    async def _after_end(self, end: End, slot: EngineSlot) -> None:
        """An engine has ended that had been ready: the next one follows at once, unless they end early."""
        # After an end that was wanted (idle, recycled, restarted) there is no pause.
        if not end.is_failure:
            return
        self._failing = f"Spark's engine has ended, {slot.last_end}"
        is_early = monotonic() - self._ready_since < _STEADY_SECONDS
        self._early_ends = self._early_ends + 1 if is_early else 0
        if self._early_ends > 1:
            self._state = EngineState.WAITING
            await self._wait_for_next_start(self._early_ends - 1)

    async def _wait_for_next_start(self, failures: int) -> None:
        # A request for a restart shortens the wait: its sender has mended something.
        with anyio.move_on_after(self._back_off[min(failures, len(self._back_off)) - 1]):
            await self._wants_restart.wait()

    def _log_broken(self, reason: str) -> None:
        _log.error("engine broken", service=self._plan.service, engine=self._plan.name, reason=reason)

    # --- why it ends ---

    # Called twice a second for as long as the engine lives, so it must be cheap.
    def _why_end(self, table: JobTable, slot: EngineSlot, now: float) -> End | None:
        # From here on a thread is lost for good: Python cannot end one from outside.
        self._stuck_since = (self._stuck_since or now) if table.has_stuck else None
        if self._wants_restart.is_set():
            return End("the engine was restarted by request")
        # Jobs next to the stuck one are given some time to end: replacing the engine would lose them.
        if self._stuck_since and (
            not table.has_open or now - self._stuck_since > self._settings.replace_after
        ):
            return End("the engine was replaced: the code of a cancelled job did not stop", is_hung=True)
        if slot.process is None or slot.process.ready is None or not table.is_idle:
            self._idle_since = math.inf
            return None
        self._idle_since = min(self._idle_since, now)
        return self._why_end_idle(slot.process, now)

    def _why_end_idle(self, process: EngineProcess, now: float) -> End | None:
        idle = Idle(
            seconds=now - self._idle_since,
            age=now - process.began,
            jobs=process.handed_over,
            rss_bytes=process.beat.rss_bytes if process.beat else 0,
        )
        if reason := why_stop(self._settings, idle):
            return End(reason, is_idle=True)
        if reason := why_recycle(self._settings, idle):
            return End(reason)
        return None

    def _idle_seconds(self) -> float:
        """How long the engine has had nothing to do; 0 where it has, or is about to start."""
        isolated = self._isolated.idle_seconds if self._isolated else 0.0
        # A stopped engine is idle, and the archive may be made then.
        if self._state is EngineState.STOPPED:
            return isolated
        if self.state is not EngineState.READY:
            return 0.0
        return min(isolated, max(0.0, monotonic() - self._idle_since))
