"""Job table of an engine: which jobs wait, which the process has, and what their listener is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from nebula.rpc.contract.job_runner import (
    ENGINE_LOST,
    OUT_OF_MEMORY,
    JobFailure,
    JobListener,
    JobOutput,
    JobTask,
    Progress,
    StageCounts,
    TaskCounts,
)
from nebula.spark import lines

# An attempt: the id of its job, and its number.
Key = tuple[str, int]


@dataclass(slots=True)
class _Open:
    task: JobTask
    is_cancelling: bool = False
    has_starved: bool = False


# The promise to the listener (each job has one end, told once) is kept by membership alone: an end is
# told by the code that takes the job out of `_open`. A host's `Done` that crosses a `Cancel`, or comes while
# its process is being given up, finds nothing there.
class JobTable:
    """Jobs on their way through an engine, and the listener that hears of each step, once, in order.

    A job waits until the host takes it (`hand_over`), is open until its one end, and a cancelled one
    may hold task slots for some seconds more (`settling`). A line about a job that is in no
    list is late and is dropped.
    """

    def __init__(self, listener: JobListener) -> None:
        self._listener = listener
        self._waiting: dict[Key, JobTask] = {}
        self._open: dict[Key, _Open] = {}
        self._settling: set[Key] = set()
        self._stuck: set[Key] = set()
        self._ended: Counter[str] = Counter()

    @property
    def has_waiting(self) -> bool:
        """Whether a job waits for the host."""
        return bool(self._waiting)

    @property
    def has_open(self) -> bool:
        """Whether the host runs a job whose end has not been told."""
        return bool(self._open)

    @property
    def has_stuck(self) -> bool:
        """Whether a cancelled job's code does not end."""
        return bool(self._stuck)

    @property
    def is_idle(self) -> bool:
        """Whether there is no job at all, and none that still holds anything."""
        return not (self._waiting or self._open or self._settling or self._stuck)

    def held(self) -> list[Key]:
        """What the host has, ended or not."""
        return [*self._open, *self._settling]

    def counts(self) -> dict[str, int]:
        """How many jobs are in each list now, and how many have ended in each way so far."""
        return {
            "waiting": len(self._waiting),
            "open": len(self._open),
            "settling": len(self._settling),
            "stuck": len(self._stuck),
            **{end: self._ended[end] for end in ("done", "failed", "cancelled", "lost")},
        }

    def add(self, task: JobTask) -> None:
        """A job was submitted."""
        self._waiting[task.job, task.attempt] = task

    def hand_over(self, incarnation: str) -> Iterator[JobTask]:
        """The waiting jobs, first come first; each counts as given to the host when it is yielded."""
        while self._waiting:
            # Dictionaries keep the order of insertion.
            key = next(iter(self._waiting))
            task = self._waiting.pop(key)
            self._open[key] = _Open(task)
            # Before the host hears of it, so that its first line about the job finds it known.
            self._listener.on_starting(*key, incarnation)
            yield task

    def cancel(self, key: Key) -> bool:
        """A cancel came. True: the host has the job, tell it; a waiting job ends here."""
        if self._waiting.pop(key, None) is not None:
            self._ended["cancelled"] += 1
            self._listener.on_cancelled(*key, slots_free=True)
        opened = self._open.get(key)
        if opened is None or opened.is_cancelling:
            return False
        # A second cancel is not sent: the host would have nothing to do for it.
        opened.is_cancelling = True
        return True

    def refuse_waiting(self, message: str) -> None:
        """The engine cannot start: what waits for it fails now, since silence would be worse."""
        # Emptied first, as in `lose_all`: the listener may submit anew.
        waiting, self._waiting = self._waiting, {}
        self._ended["failed"] += len(waiting)
        for key in waiting:
            failure = JobFailure(code="engine-unavailable", message=message, sqlstate=None, trace="")
            self._listener.on_failed(*key, failure)

    def lose_all(self, reason: str) -> None:
        """The host is gone, with everything that it had."""
        # Emptied before the listener hears about it: a listener may submit the next attempt at once.
        opened, self._open = self._open, {}
        settling, self._settling = self._settling, set()
        self._stuck.clear()
        for key, job in opened.items():
            # The canceller has what it asked for: the job runs no more.
            self._ended["cancelled" if job.is_cancelling else "lost"] += 1
            if job.is_cancelling:
                self._listener.on_cancelled(*key, slots_free=True)
            else:
                self._listener.on_lost(*key, reason, code=OUT_OF_MEMORY if job.has_starved else ENGINE_LOST)
        for key in settling:
            self._listener.on_slots_free(*key)

    def hear(self, line: lines.Line) -> None:
        """Pass on a line of the host about a job."""
        match line:
            case lines.SlotsFree():
                self._settle((line.job, line.attempt))
            case lines.Stuck():
                self._stuck.add((line.job, line.attempt))
                self._listener.on_log(line.job, line.attempt, "cancelled, but its code does not stop")
            case lines.Starved():
                if (starved := self._open.get((line.job, line.attempt))) is not None:
                    starved.has_starved = True
            case lines.Started() | lines.Progressed() | lines.Logged():
                if (line.job, line.attempt) in self._open:
                    self._hear_running(line)
            case lines.Done() | lines.Failed() | lines.Cancelled():
                # A late line, about an attempt that has ended, is dropped.
                if self._open.pop((line.job, line.attempt), None) is not None:
                    self._hear_end(line)
            case lines.Hello() | lines.Ready() | lines.Broken() | lines.Beat() | lines.Bye():
                pass  # About the engine.
            case lines.Configure() | lines.Submit() | lines.Cancel() | lines.Stop():
                pass  # For the host.
            case _:
                assert_never(line)

    def _hear_running(self, line: lines.Started | lines.Progressed | lines.Logged) -> None:
        job, attempt = line.job, line.attempt
        match line:
            case lines.Started():
                self._listener.on_started(job, attempt)
            case lines.Logged():
                self._listener.on_log(job, attempt, line.text)
            case lines.Progressed():
                stages = tuple(StageCounts(*stage) for stage in line.stages)
                tasks = None if line.tasks is None else TaskCounts(*line.tasks, stages)
                progress = Progress(line.fraction, line.note, line.step, tasks, line.counters, line.at)
                self._listener.on_progress(job, attempt, progress)
            case _:
                assert_never(line)

    def _hear_end(self, line: lines.Done | lines.Failed | lines.Cancelled) -> None:
        key = (line.job, line.attempt)
        self._ended[type(line).__name__.lower()] += 1
        match line:
            case lines.Done():
                output = JobOutput(line.value, line.path, line.rows, line.bytes, line.schema, line.preview)
                self._listener.on_done(*key, output)
            case lines.Failed():
                failure = JobFailure(
                    code=line.code, message=line.message, sqlstate=line.sqlstate, trace=line.trace
                )
                self._listener.on_failed(*key, failure)
            case lines.Cancelled():
                if not line.slots_free:
                    self._settling.add(key)
                self._listener.on_cancelled(*key, slots_free=line.slots_free)
            case _:
                assert_never(line)

    # If its host died meanwhile, `lose_all` has told so, and nothing is left to settle.
    def _settle(self, key: Key) -> None:
        self._stuck.discard(key)
        if key in self._settling:
            self._settling.remove(key)
            self._listener.on_slots_free(*key)
