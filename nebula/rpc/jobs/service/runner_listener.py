"""Listener of the runners: passes their events to the scheduler, with the time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import anyio

from nebula.logs import get_logger
from nebula.rpc.contract.job_runner import (
    ENGINE_LOST,
    JobFailure,
    JobListener,
    JobOutput,
    JobRunner,
    Progress,
)
from nebula.rpc.jobs.model.record import whose
from nebula.rpc.jobs.scheduler.actions import Moment
from nebula.rpc.jobs.scheduler.scheduler import Scheduler

__all__ = ["RunnerListener"]

_log = get_logger(__name__)


# In each event the scheduler decides, then `settle` posts its actions, within one call on the loop: so
# actions are written in the order of the decisions.
class RunnerListener(JobListener):
    """The `JobListener` of a service's runners.

    Args:
        scheduler: gets the events.
        now: the time.
        settle: called after each event, as the scheduler may have actions.
    """

    def __init__(self, scheduler: Scheduler, now: Callable[[], Moment], settle: Callable[[], None]) -> None:
        self._scheduler, self._now, self._settle = scheduler, now, settle

    async def run(
        self,
        runners: Mapping[str | None, JobRunner],
        are_up: Mapping[str | None, anyio.Event],
        is_over: anyio.Event,
        stop: Callable[[], None],
    ) -> None:
        """Run the runners until it is over. A cancellation reaches them late enough not to be given more.

        Args:
            runners: by name.
            are_up: by the same names; each is set when its runner takes jobs.
            is_over: ends this.
            stop: called before they are cancelled: they are given nothing any more.
        """
        # Shielded, because a cancellation of the service would otherwise reach the runners before `stop`: the
        # scheduler would see slots come free, and begin waiting jobs in runners that are ending.
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                for engine, runner in runners.items():
                    run = partial(runner.run, self, started=are_up[engine])
                    tasks.start_soon(run, name=f"jobs of {engine or 'the service'}")
                await is_over.wait()
                stop()
                tasks.cancel_scope.cancel()

    def on_starting(self, job: str, attempt: int, incarnation: str) -> None:
        """See `JobListener`."""
        # Not settled: watchers need not know the engine process, and the next change writes it.
        self._scheduler.starting((job, attempt), incarnation)

    def on_started(self, job: str, attempt: int) -> None:
        """See `JobListener`."""
        self._scheduler.started((job, attempt), self._now())
        self._settle()

    def on_progress(self, job: str, attempt: int, progress: Progress) -> None:
        """See `JobListener`."""
        self._scheduler.progress((job, attempt), progress, self._now())
        self._settle()

    def on_done(self, job: str, attempt: int, result: JobOutput) -> None:
        """See `JobListener`."""
        self._scheduler.done((job, attempt), result, self._now())
        self._settle()

    def on_failed(self, job: str, attempt: int, failure: JobFailure) -> None:
        """See `JobListener`."""
        self._scheduler.failed((job, attempt), failure, self._now())
        self._settle()

    def on_cancelled(self, job: str, attempt: int, *, slots_free: bool) -> None:
        """See `JobListener`."""
        self._scheduler.cancelled((job, attempt), self._now(), slots_free=slots_free)
        self._settle()

    def on_slots_free(self, job: str, attempt: int) -> None:
        """See `JobListener`."""
        self._scheduler.slots_free((job, attempt), self._now())
        self._settle()

    def on_lost(self, job: str, attempt: int, reason: str, *, code: str = ENGINE_LOST) -> None:
        """See `JobListener`."""
        # None for a job that has ended, whose loss does not matter any more.
        record = self._scheduler.running((job, attempt))
        if record is not None:
            _log.warning(
                "job lost",
                job=job,
                verb=record.verb,
                attempt=attempt,
                code=code,
                reason=reason,
                **whose(record),
            )
        self._scheduler.lost((job, attempt), reason, self._now(), code=code)
        self._settle()

    def on_log(self, job: str, attempt: int, text: str) -> None:
        """See `JobListener`."""
        self._scheduler.log((job, attempt), text, self._now())
        self._settle()
