"""Engine slot: a place for one engine process at a time, with the jobs that it has.

The shared engine of a runner is one slot for as long as the service runs; each isolated job has a slot of
its own. The order at the end of a process matters: it is ended with all its descendants, then what its jobs
had begun to write is removed, and only then are its jobs lost. A listener may submit a job's next attempt at
once, and what the process still did must not overlap with that.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio

from nebula.environment import ServiceEnvironment
from nebula.logs import get_logger
from nebula.rpc.jobs.registry.unfinished import UNFINISHED, sweep
from nebula.spark import lines
from nebula.spark.engine_process import ERRORS, End, EngineProcess
from nebula.spark.job_table import JobTable, Key
from nebula.spark.settings import EngineSettings
from nebula.trace_context import trace_facts

_log = get_logger(__name__)

_SCRATCH = "scratch"
_RUNS = "runs"

# The errors of the last isolated process that was lost, or never began.
_LAST_ERRORS = f"isolated-{ERRORS}"


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """What all processes of one engine have in common.

    Attributes:
        settings: of the engine.
        service: the service's name.
        name: the engine's.
        folder: where a host writes; no other engine may use it.
        results: where jobs' results appear, those of the service's other engines too.
        notes: where attempts note what they have begun to write, see `nebula.rpc.jobs.registry.unfinished`.
        command: what to start as a host.
        archives: where archives of Java's classes are kept; None: the engine starts without.
        is_of_run: the folder is that of one isolated run, and goes with it.
    """

    settings: EngineSettings
    service: str
    name: str
    folder: Path
    results: Path
    notes: Path
    command: Sequence[str]
    archives: Path | None = None
    is_of_run: bool = False

    @staticmethod
    def results_of(state: Path) -> Path:
        """Where results of an instance appear: in its folder, or in one of that name in `NEBULA_RESULTS`."""
        root = ServiceEnvironment.read().results_root
        home = state.absolute() if root is None else root / state.parent.name / state.name
        return home / "results"

    def of_run(self, key: Key) -> EnginePlan:
        """The plan for a host that runs this attempt alone."""
        job, attempt = key
        return replace(self, folder=self.folder / _RUNS / f"{job}.{attempt}", is_of_run=True)

    def clean(self) -> None:
        """Remove what hosts that were killed left unfinished. Only before any engine of the service runs."""
        for unfinished in self.results.glob(f"*{UNFINISHED}*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        shutil.rmtree(self.folder / _RUNS, ignore_errors=True)

    def prepare(self) -> None:
        """Make the folders for the next host. Blocks; only while none runs there."""
        # What a JVM said last is worth most when its successor has just been started.
        said = self.folder / ERRORS
        if said.exists():
            said.replace(said.with_name(f"{ERRORS}.1"))
        shutil.rmtree(self.folder / _SCRATCH, ignore_errors=True)
        for folder in (self.folder / _SCRATCH, self.results):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def last_errors(self) -> Path:
        """Where the errors of an isolated process that did not do its work are kept."""
        return self.folder.parent.parent / _LAST_ERRORS

    def clean_up(self, keys: Iterable[Key], *, has_worked: bool) -> None:
        """Remove what a process has left behind. Blocks; after the end of that process.

        Args:
            keys: the attempts that may have begun to write.
            has_worked: its errors need not be kept.
        """
        for job, attempt in keys:
            # An attempt writes next to its target, under a name with the job and the attempt in it.
            for unfinished in self.results.glob(f"{job}*{UNFINISHED}{job}.{attempt}"):
                shutil.rmtree(unfinished, ignore_errors=True)
        sweep(self.notes)
        if self.is_of_run:
            if not has_worked:
                with suppress(OSError):
                    (self.folder / ERRORS).replace(self.last_errors)
            shutil.rmtree(self.folder, ignore_errors=True)

    def configuration(self, incarnation: str, *, with_archive: bool) -> lines.Configure:
        """The first line to a host."""
        settings = self.settings
        return lines.Configure(
            name=self.service,
            incarnation=incarnation,
            folder=str(self.folder),
            results=str(self.results),
            notes=str(self.notes),
            master=settings.master,
            memory=settings.memory,
            conf=dict(settings.conf),
            max_rows=settings.max_rows,
            max_result_bytes=settings.max_result_bytes,
            cancel_grace=settings.cancel_grace,
            remote=settings.remote,
            ui=settings.ui,
            archives=None if self.archives is None else str(self.archives),
            with_archive=with_archive,
        )


# The order at the end of a process is what callers rely on: first no process of it lives any more
# (`close`), then its unfinished outputs are removed, then its jobs are told as lost. A job's next attempt
# may begin the moment its listener hears of the loss, perhaps with the same output.
class EngineSlot:
    """One engine process after the other, and the job table that they share.

    Args:
        plan: what each process is started with.
        table: the jobs.
        job: the only job that the slot is for, for the log.

    Attributes:
        process: the one that runs now.
        suspects_archive: the last start failed with the archive of Java's classes, and maybe because of it.
        last_end: why the last process ended, or was not started.
    """

    def __init__(self, plan: EnginePlan, table: JobTable, *, job: str | None = None) -> None:
        self._plan, self._table, self._job = plan, table, job
        self.process: EngineProcess | None = None
        self.suspects_archive = False
        self.last_end: str | None = None

    @property
    def takes_jobs(self) -> bool:
        """Whether a process runs that a job can be given to."""
        return self.process is not None and self.process.takes_jobs

    def hand_over(self) -> None:
        """Give the process all jobs that wait. One that cannot be told to it has failed."""
        if self.process is None or not self.process.takes_jobs:
            # One that is about to go would take the job with it: the next one has it.
            return
        # `hand_over` marks each job as open as it is yielded, so that a failure below is told as its end.
        for task in self._table.hand_over(self.process.incarnation):
            if (failed := self.process.submit(task)) is not None:
                self._table.hear(failed)
                continue
            _log.info(
                "job handed to engine",
                service=self._plan.service,
                engine=self._plan.name,
                job=task.job,
                attempt=task.attempt,
                verb=task.verb,
                incarnation=self.process.incarnation,
                **trace_facts(task.trace),
            )

    def cancel(self, key: Key) -> None:
        """Cancel a job: one that waits ends here, the process hears about one that it has."""
        if self._table.cancel(key) and self.process is not None:
            self.process.say(lines.Cancel(*key))

    def look(self) -> None:
        """Have the process's `why_end` called now."""
        if self.process is not None:
            self.process.look()

    async def run(
        self, hear: Callable[[lines.Line], None], why_end: Callable[[float], End | None]
    ) -> EngineProcess | None:
        """Run one process from its start to its end: the process, or None if it was not started.

        Args:
            hear: gets each line that it says.
            why_end: see `EngineProcess.converse`.
        """
        plan = self._plan
        log = _log.bind(service=plan.service, engine=plan.name, **({"job": self._job} if self._job else {}))
        try:
            await anyio.to_thread.run_sync(plan.prepare)
            process = await EngineProcess.start(plan.command, plan.folder, plan.settings)
        except OSError as error:
            self.last_end = f"{plan.command[0]} was not started: {error}"
            log.warning("engine host not started", error=str(error))
            return None
        self.process = process
        log = log.bind(incarnation=process.incarnation)
        log.info("engine host started", pid=process.pid)
        configuration = plan.configuration(process.incarnation, with_archive=not self.suspects_archive)
        try:
            await process.converse(configuration, hear, why_end)
        finally:
            has_worked = process.ready is not None and not self._table.has_open
            # Shielded: the order at the end must hold in a cancelled service too.
            with anyio.CancelScope(shield=True):
                ended = await process.close()
                clean_up = partial(plan.clean_up, self._table.held(), has_worked=has_worked)
                await anyio.to_thread.run_sync(clean_up)
            self.process, self.last_end = None, ended.reason
            # The archive may be why Java died at its start. The next start leaves it out, and if that one
            # succeeds `ClassArchive.hear` sets the archive aside.
            self.suspects_archive |= process.ready is None and ended.status == lines.STATUS_SPARK_DIED
            (log.warning if ended.is_failure else log.info)("engine host ended", **ended.facts())
            self._table.lose_all(ended.reason)
        return process
