"""Shared queue: one instance among those that share a registry of jobs (docs/decisions/0034).

Each instance schedules the whole queue and begins what it can. The registry arbitrates: several may decide to
begin the same job, one write is accepted, and the others are refused (`refuse`) and look again.

- What others change is read from the registry (`sync`): when a notification comes, and once per beat without
  one. Notifications may be lost; rows are not.
- An instance holds a lease and renews it with each beat, six times in its duration. The lease of an instance
  that is not heard of ends, and its jobs are given to the next instance that beats.
- An instance fences itself before the others do. After two thirds of the lease without a reply from the
  database the writer's deadline is over: `run` raises, and all runs end. The others take over after the whole
  lease. So a job that must not run twice at a time does not, as long as clocks measure durations alike.
- The deadline counts from before the database was asked: the lease cannot have begun earlier.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, NoReturn, TypeVar

import anyio

from nebula.logs import get_logger
from nebula.rpc.jobs.model.record import JobRecord
from nebula.rpc.jobs.model.states import JobState
from nebula.rpc.jobs.registry.errors import RegistryAway
from nebula.rpc.jobs.registry.shared import Changes, Heard, SharedDatabase, SharedRegistry
from nebula.rpc.jobs.scheduler.actions import Action, Submit
from nebula.rpc.jobs.scheduler.scheduler import Scheduler
from nebula.rpc.jobs.service.action_runner import ActionRunner
from nebula.rpc.jobs.service.instance_context import InstanceContext
from nebula.rpc.jobs.service.waiters import News
from nebula.threads import call_in_daemon

__all__ = ["GONE", "RESTARTED", "SharedQueue"]

_log = get_logger(__name__)

_T = TypeVar("_T")

# Parts of the lease: between two signs of life, and without a reply before it gives itself up.
_BEAT: Final = 1 / 6
_GIVE_UP: Final = 2 / 3

# Leases to wait for an instance with a verb that none has now: an older or newer version may restart.
_DESERTED: Final = 10

# Between two tries to listen.
_RETRY_SECONDS: Final = 1.0

RESTARTED: Final = "the service was restarted"
GONE: Final = "the instance that ran it is gone"


# The lease, on one time line, for a lease of 30 s:
#
# 0 s    `beat`: the database says that the instance lives for another 30 s.
# 5 s    the next `beat`, and so on, every sixth of the lease: some may fail.
# 20 s   no reply since 0 s: the instance ends its runs (`RegistryWriter.deadline`).
# 30 s   the others take its jobs over.
#
# The 10 s in between are for runs that do not end at once. Instance and database measure with clocks of
# their own, and times of two machines are never compared, only durations: a clock that is set wrong does
# no harm. A machine that was suspended sleeps through its deadline; what it writes then is refused, as
# its lease is gone (`Fenced`).
class SharedQueue:
    """Keeps the scheduler of an instance in step with the registry that it shares with others.

    Args:
        context: our instance.
        database: of the registry.
        registry: the opened one, used through `actions.do` alone.
        scheduler: ours.
        actions: does what the scheduler decides; its runners end what is no longer ours, its waiters hear of
            ends elsewhere.
        working: the verbs that can be run here now.
        republish: tells the statuses of the open jobs again.

    Attributes:
        working: the verbs that some instance, known to live, can run.
    """

    def __init__(
        self,
        context: InstanceContext,
        database: SharedDatabase,
        registry: SharedRegistry,
        *,
        scheduler: Scheduler,
        actions: ActionRunner,
        working: Callable[[], Collection[str]],
        republish: Callable[[], None],
    ) -> None:
        self._database, self._registry, self._instance = database, registry, context.state.instance
        self._scheduler, self._actions, self._clock = scheduler, actions, context.clock
        self._lease, self._ours_working, self._republish = context.limits.lease, working, republish
        self.working: frozenset[str] = frozenset()
        self._joined_at = 0.0
        self._seen: int | None = None
        self._again: set[str] = set()
        self._bell = anyio.Event()
        actions.refused = self.refuse

    async def join(self) -> None:
        """Become one of the instances, and know the queue.

        Raises:
            RegistryLost: the database does not reply.
        """
        incarnation = secrets.token_hex(8)
        began = self._joined_at = anyio.current_time()
        self._extend_deadline(began)
        await self._do(
            lambda registry: registry.join(self._instance, incarnation, self._lease),
            lambda left: self._recover(left, RESTARTED),
        )
        await self.beat()
        await self.sync()

    async def run(self) -> NoReturn:
        """Stay one of them until cancelled.

        Raises:
            Fenced, RegistryLost: it is none any more; what it runs has to end now.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._beat_often, name="sign of life")
            tasks.start_soon(self._listen, name="news of jobs")
            while True:
                # What is heard may be lost; what is in the table is not.
                with anyio.move_on_after(self._lease * _BEAT):
                    await self._bell.wait()
                self._bell = anyio.Event()
                await self.sync()
        raise AssertionError("unreachable")

    def ask_to_cancel(self, record: JobRecord) -> None:
        """Have the instance that runs this job end it; one that waits for other instances ends here."""
        if record.state is JobState.QUEUED and record.verb not in self._scheduler.verbs():
            now = self._clock.now()
            self._scheduler.add(record, now)
            self._scheduler.cancel(record.id, now)
            return
        assert self._actions.writer is not None
        self._actions.writer.post(lambda _registry: self._registry.ask_to_cancel(record.id))

    # --- signs of life ---

    async def beat(self) -> None:
        """Renew the lease, and take over the jobs of instances that no longer do."""
        began = anyio.current_time()
        verbs, patience = self._scheduler.verbs(), self._lease * _DESERTED
        # Only after that time here is it known which verbs no other instance has.
        unseen = patience if began > self._joined_at + patience else None
        working = self._ours_working()
        await self._do(
            lambda registry: registry.beat(self._lease, verbs, working=working, unseen=unseen),
            partial(self._take_over, began=began),
        )

    async def _beat_often(self) -> None:
        while True:
            await anyio.sleep(self._lease * _BEAT)
            await self.beat()

    def _extend_deadline(self, began: float) -> None:
        # From before it was asked: the lease cannot have begun earlier.
        assert self._actions.writer is not None
        self._actions.writer.deadline = began + self._lease * _GIVE_UP

    def _take_over(self, heard: Heard, *, began: float) -> None:
        # Here, as what comes next is begun with the new deadline then.
        self._extend_deadline(began)
        self.working = heard.working
        if heard.orphans:
            _log.warning("jobs without an instance taken over", jobs=len(heard.orphans))
        self._recover(heard.orphans, GONE)
        if heard.has_lost_others:
            # The last values that they told went with their connections.
            self._republish()

    def _recover(self, records: Collection[JobRecord], reason: str) -> None:
        now = self._clock.now()
        known = {one.id: one.seq for one in self._scheduler.open_records()} if records else {}
        for record in records:
            # It was seen before that was written which we have made of it already.
            if known.get(record.id, 0) <= record.seq:
                self._scheduler.recover(record, now, reason)
        self._scheduler.dispatch(now)
        self._actions.settle()

    # --- the queue ---

    async def sync(self) -> None:
        """Learn what others have changed since the last time."""
        # Jobs that the registry refused to us: the notification about them may have come before our write
        # was refused.
        again, self._again = self._again, set()

        def look(registry: SharedRegistry) -> tuple[Changes, list[JobRecord]]:
            found = [record for job in again if (record := registry.find(job)) is not None]
            return registry.changes(self._seen), found

        await self._do(look, lambda seen: self._learn(*seen))

    def _learn(self, changes: Changes, again: Collection[JobRecord]) -> None:
        now = self._clock.now()
        self._seen = changes.last
        for record in (*again, *changes.records):
            self._scheduler.learn(record, now)
            if record.id in changes.unwanted:
                self._scheduler.cancel(record.id, now)
            self._actions.waiters.tell(record.id, News.LINES)
            if record.has_ended:
                self._actions.waiters.tell(record.id, News.END, record)
        self._scheduler.keep_only(changes.ids)
        self._scheduler.dispatch(now)
        self._actions.settle()

    def refuse(self, action: Action) -> None:
        """Another instance was quicker: look what it did."""
        record = action.record
        self._scheduler.withdraw(action)
        if JobState.CANCELLED in (record.state, record.ends_as):
            self.ask_to_cancel(record)
        elif not isinstance(action.then, Submit) and record.holder == self._instance:
            # Others have taken over what is still running here.
            for runner in self._actions.runners.values():
                runner.cancel(record.id, record.attempt, reason="cancelled")
        self._again.add(record.id)
        self._bell.set()

    async def _listen(self) -> None:
        while True:
            try:
                listen = partial(self._database.listener, self._registry)
                with await call_in_daemon(listen) as listener:
                    # What came before that was not heard.
                    self._bell.set()
                    while True:
                        told = await listener.wait()
                        for job in told.grown:
                            self._actions.waiters.tell(job, News.LINES)
                        if told.has_changes:
                            self._bell.set()
            except RegistryAway as error:
                _log.info("news of jobs not heard", error=str(error))
            await anyio.sleep(_RETRY_SECONDS)

    async def _do(self, do: Callable[[SharedRegistry], _T], then: Callable[[_T], None]) -> None:
        await self._actions.do(lambda _registry: do(self._registry), then)
