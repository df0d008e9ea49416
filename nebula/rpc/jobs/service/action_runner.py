"""Action runner: writes the actions of the scheduler, then publishes them, then acts upon them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar, assert_never

import anyio

from nebula.logs import get_logger
from nebula.rpc.contract.job_runner import JobRunner
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.model.record import JobRecord, whose
from nebula.rpc.jobs.model.states import JobState
from nebula.rpc.jobs.registry.errors import RegistryClosed, Superseded
from nebula.rpc.jobs.registry.registry import JobRegistry
from nebula.rpc.jobs.registry.writer import RegistryWriter
from nebula.rpc.jobs.scheduler.actions import Action, Cancel, Ended, Keep, Submit
from nebula.rpc.jobs.scheduler.scheduler import Scheduler
from nebula.rpc.jobs.service.notices import Notices
from nebula.rpc.jobs.service.status_publisher import StatusPublisher
from nebula.rpc.jobs.service.waiters import News, Waiters

__all__ = ["ActionRunner", "keep"]

_log = get_logger(__name__)

_T = TypeVar("_T")

# Ends of jobs that failed and were not cancelled. A lost job is an error of its own.
_LEVELS: Final = {
    JobState.LOST: logging.ERROR,
    JobState.FAILED: logging.WARNING,
    JobState.TIMED_OUT: logging.WARNING,
    JobState.EXPIRED: logging.WARNING,
}


# Write, then publish, then act: `settle` posts the write, and `on_kept` does the rest when it is durable.
# The three happen in the order of the scheduler's decisions, for all jobs together, because the writer
# has one line. So statuses of one job never go back, and a runner is never given a job that a crash would
# make unknown.
class ActionRunner:
    """Carries out the actions of an instance's scheduler.

    Args:
        scheduler: decides.
        runners: by name; run jobs and end them.
        waiters: are told that there is news.
        publisher: tells statuses.

    Attributes:
        writer: of the registry, while the service runs.
        notices: sends the ends that are owed.
        on_end: hears of each job that has ended here.
        refused: gets an action that was not done because another instance has changed the job.
        moved: set after each decision of the scheduler, which may have changed when the next timer is due.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runners: Mapping[str | None, JobRunner],
        waiters: Waiters,
        publisher: StatusPublisher,
    ) -> None:
        self._scheduler, self.runners, self.waiters, self.publisher = scheduler, runners, waiters, publisher
        self.writer: RegistryWriter | None = None
        self.notices: Notices | None = None
        self.on_end: Callable[[JobRecord], None] = lambda _record: None
        self.refused: Callable[[Action], None] = lambda _action: None
        self.moved = anyio.Event()

    def settle(self) -> None:
        """Carry out the scheduler's actions: write them, then publish and act when they are on the disk."""
        for action in self._scheduler.take_actions():
            assert self.writer is not None, "the job service does not run"
            # `post` and not `do`, because no caller waits: an error is one of the disk or of Nebula, and ends
            # `RegistryWriter.run` and with it the service, which must not publish what is not recorded.
            self.writer.post(partial(keep, action), partial(self.on_kept, action))
        self.moved.set()

    def tell_owed(self) -> None:
        """Something is owed, or there is a connection again: send the ends that are owed."""
        if self.notices is not None:
            self.notices.look()

    async def do(
        self,
        do: Callable[[JobRegistry], _T],
        then: Callable[[_T], None] | None = None,
        otherwise: Callable[[], None] | None = None,
        afterwards: Callable[[_T], None] | None = None,
    ) -> _T:
        """Do something with the registry after all that was decided so far: see `RegistryWriter.do`.

        Raises:
            VerbError: `busy`, the service stops.
            Exception: what `do` raised, or the database.
        """
        assert self.writer is not None, "the job service does not run"
        try:
            return await self.writer.do(do, then, otherwise, afterwards)
        except RegistryClosed as error:
            raise VerbError("busy", "the service is stopping, try again") from error

    def on_kept(self, action: Action, is_kept: bool) -> None:
        """It is on the disk, as `keep` said, or refused: what follows is told and done, on the loop."""
        record = action.record
        if not is_kept:
            self.refused(action)
            return
        # The position now, not at the decision: jobs before it may have begun during the commit.
        if action.is_told:
            waiting = self._scheduler.waiting_state(record.id)
            self.publisher.tell(record, waiting, is_new=action.keep is Keep.RECORD)
        if record.is_owed:
            self.tell_owed()
        if action.lines:
            self.waiters.tell(record.id, News.LINES)
        match action.then:
            case Ended(job):
                self.on_end(record)
                _log_end(record)
                self.waiters.tell(job, News.END, record)
                self.waiters.tell(job, News.LINES)
            case Submit(engine, task):
                self.runners[engine].submit(task)
            case Cancel(engine, job, attempt, reason):
                self.runners[engine].cancel(job, attempt, reason=reason)
            case None:
                pass
            case then:
                assert_never(then)


def _log_end(record: JobRecord) -> None:
    level = _LEVELS.get(record.state, logging.INFO)
    code = {} if record.error is None else {"code": record.error.code}
    facts = {"job": record.id, "verb": record.verb, "state": str(record.state), **code, **whose(record)}
    _log.log(level, "job ended", **facts)


def keep(action: Action, registry: JobRegistry) -> bool:
    """Write what was decided: whether it was, and not refused as another instance has changed the job.

    Raises:
        LookupError: there is no such job.
    """
    record = action.record
    try:
        match action.keep:
            case Keep.NOTHING:
                pass
            case Keep.LINES:
                registry.add_lines(record.id, action.lines)
            case Keep.RELEASE:
                registry.release(record.id, record.note)
            case Keep.RECORD if isinstance(action.then, Submit):
                registry.begin(record, action.lines, most=action.then.most)
            case Keep.RECORD:
                registry.save(record, action.lines, held_by=action.held_by)
            case kept:
                assert_never(kept)
    except Superseded:
        return False
    except LookupError:
        # An end may be forgotten before the last of it is told; nothing else may.
        if not record.has_ended:
            raise
        return False
    return True
