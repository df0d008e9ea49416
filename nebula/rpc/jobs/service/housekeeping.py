"""Housekeeping of jobs: recovery at the start, takeover from instances that died, removal of old ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NoReturn

import anyio
import anyio.to_thread

from nebula.logs import get_logger
from nebula.rpc.jobs.model.record import JobRecord
from nebula.rpc.jobs.model.states import JobState
from nebula.rpc.jobs.registry.capacity import Wanted
from nebula.rpc.jobs.registry.registry import JobRegistry
from nebula.rpc.jobs.registry.retention import forget_for_room, forget_old_jobs
from nebula.rpc.jobs.registry.unfinished import sweep_all
from nebula.rpc.jobs.scheduler.scheduler import Scheduler
from nebula.rpc.jobs.service.action_runner import ActionRunner
from nebula.rpc.jobs.service.clock import every
from nebula.rpc.jobs.service.instance_context import InstanceContext
from nebula.rpc.jobs.service.other_instances import OtherInstances
from nebula.rpc.jobs.service.shared_queue import GONE, RESTARTED, SharedQueue

__all__ = ["Housekeeping"]

_log = get_logger(__name__)

_PRUNE_EVERY: Final = 3600.0


class Housekeeping:
    """Recovers the jobs of one instance at its start, and cleans up at intervals.

    Args:
        context: the instance.
        scheduler: of the instance.
        actions: does what the scheduler decides.
        others: the other instances.

    Attributes:
        shared_queue: while it runs, if the registry is shared with other instances.
    """

    def __init__(
        self,
        context: InstanceContext,
        scheduler: Scheduler,
        actions: ActionRunner,
        others: OtherInstances,
    ) -> None:
        self._context, self._scheduler, self._actions, self._others = context, scheduler, actions, others
        self.shared_queue: SharedQueue | None = None

    async def recover(self) -> None:
        """Go on with what an earlier process left: in the registry, or in a folder that has none any more."""
        if self.shared_queue is not None:
            await self.shared_queue.join()
        await self.prune()
        found = await self._actions.do(JobRegistry.open_jobs)
        if self.shared_queue is not None:
            self._tell_waiting(found)
            await self.take_over()
            return
        # Others took over these jobs from an earlier process of this folder, but died before they removed
        # them here. They must not run twice; see `registry.takeover`.
        moved = await self._others.taken_over(found)
        await self._actions.do(lambda registry: registry.forget(moved))
        self._take_in([record for record in found if record.id not in moved], RESTARTED)
        await self._warn_of_others()

    async def run(self) -> NoReturn:
        """Do the periodic work until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(every, _PRUNE_EVERY, self.prune, name="job retention")
            tasks.start_soon(every, self._context.limits.adopt_every, self.take_over, name="job adoption")
        raise AssertionError("unreachable")

    async def prune(self) -> None:
        """Forget old jobs, and remove unfinished outputs of killed runs."""
        context, tell = self._context, self._actions.publisher.forget
        now = context.clock.wall()
        await forget_old_jobs(self._actions.do, tell, context.state.path, context.limits, now)
        await self.make_room(None)
        # In a thread, because it reads folders and removes whole trees.
        await anyio.to_thread.run_sync(sweep_all, context.state.path)

    async def make_room(self, wanted: Wanted | None) -> bool:
        """Remove ended jobs, for a new one or because there are too many. Returns whether any were
        removed."""
        context, tell = self._context, self._actions.publisher.forget
        return await forget_for_room(self._actions.do, tell, context.state.path, context.capacity, wanted)

    async def take_over(self) -> None:
        """Take over the open jobs of instances that died and have not come back."""

        async def add(add_to: Callable[[JobRegistry], list[JobRecord]]) -> None:
            await self._actions.do(add_to, lambda added: self._take_in(added, GONE))

        await self._others.take_over(self._scheduler.verbs(), add)
        # Jobs that have ended are taken over with their owed notices. They are not in `added`, and nothing
        # else would send these notices.
        self._actions.tell_owed()

    def _take_in(self, found: Sequence[JobRecord], reason: str) -> None:
        now = self._context.clock.now()
        for record in found:
            self._scheduler.recover(record, now, reason)
        self._tell_waiting(found)
        if found:
            _log.info("open jobs found", service=self._context.service, jobs=len(found))
        # `advance` and not `dispatch`: jobs that expired while no process had them must not begin.
        self._scheduler.advance(now)
        self._actions.settle()

    def _tell_waiting(self, found: Sequence[JobRecord]) -> None:
        # Their last reports went with their process. The new states of the other jobs are told when written.
        for record in found:
            if record.state is JobState.QUEUED:
                self._actions.publisher.tell(record, self._scheduler.waiting_state(record.id))

    async def _warn_of_others(self) -> None:
        """Warn if exclusive keys and limits of verbs do not hold over other running instances."""
        bound = [name for name, verb in self._context.verbs.items() if verb.exclusive or verb.max_running]
        running = await self._others.running() if bound else []
        if running:
            _log.warning(
                "jobs not excluded across instances",
                service=self._context.service,
                verbs=bound,
                other_instances=running,
                advice="exclusive and max_running hold within one instance; keep the jobs in PostgreSQL "
                "(NEBULA_JOBS) to have them hold over all",
            )
