"""What becomes of jobs that are found: those of an earlier process, of instances that died, and old ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn

import anyio
import anyio.to_thread

from nebula.logs import get_logger
from nebula.rpc.jobs.model.limits import Clock, JobLimits, every
from nebula.rpc.jobs.model.record import JobRecord
from nebula.rpc.jobs.model.states import JobState
from nebula.rpc.jobs.registry.registry import JobRegistry
from nebula.rpc.jobs.registry.retention import forget_for_room, forget_old_jobs
from nebula.rpc.jobs.registry.state_folder import StateFolder
from nebula.rpc.jobs.registry.unfinished import sweep_all
from nebula.rpc.jobs.scheduler.actions import Effects
from nebula.rpc.jobs.scheduler.board import JobBoard
from nebula.rpc.jobs.scheduler.capacity import Room, Wanted
from nebula.rpc.jobs.service.other_instances import OtherInstances
from nebula.rpc.jobs.service.shared_queue import GONE, RESTARTED, Sharing
from nebula.rpc.jobs.service.verb import JobVerb

__all__ = ["Housekeeping"]

_log = get_logger(__name__)

_PRUNE_EVERY: Final = 3600.0


class Housekeeping:
    """Puts the jobs of one instance in order, at its start and now and then.

    Args:
        service: its name.
        state: the instance's folder.
        verbs: by name.
        board: of the instance.
        effects: does what the board decides.
        others: the other instances.
        clock: the time of the board.
        limits: numbers.
        room: decides whether the registry has room.

    Attributes:
        sharing: the registry is shared with others.
    """

    def __init__(
        self,
        service: str,
        state: StateFolder,
        verbs: Mapping[str, JobVerb],
        board: JobBoard,
        effects: Effects,
        others: OtherInstances,
        clock: Clock,
        limits: JobLimits,
        room: Room,
    ) -> None:
        self._service, self._state, self._verbs, self._room = service, state, verbs, room
        self._board, self._effects, self._others = board, effects, others
        self._clock, self._limits = clock, limits
        self.sharing: Sharing | None = None

    async def recover(self) -> None:
        """Go on with what an earlier process left: in the registry, or in a folder that has none any more."""
        if self.sharing is not None:
            await self.sharing.join()
        await self.prune()
        found = await self._effects.do(JobRegistry.open_jobs)
        if self.sharing is not None:
            self._tell_waiting(found)
            await self.adopt()
            return
        moved = await self._others.have_adopted(found)
        await self._effects.do(lambda registry: registry.forget(moved))
        self._take_in([record for record in found if record.id not in moved], RESTARTED)
        await self._warn_of_others()

    async def run(self) -> NoReturn:
        """Do now and then what has to be done so, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(every, _PRUNE_EVERY, self.prune, name="job retention")
            tasks.start_soon(every, self._limits.adopt_every, self.adopt, name="job adoption")
        raise AssertionError("unreachable")

    async def prune(self) -> None:
        """Forget what need not be remembered any longer, and remove what killed runs left unfinished."""
        tell, now = self._effects.teller.forget, self._clock.wall()
        await forget_old_jobs(self._effects.do, tell, self._state.path, self._limits, now)
        await self.make_room(None)
        await anyio.to_thread.run_sync(sweep_all, self._state.path)

    async def make_room(self, wanted: Wanted | None) -> bool:
        """Remove ended jobs, for a new one or because there are too many. Returns whether any were
        removed."""
        tell = self._effects.teller.forget
        return await forget_for_room(self._effects.do, tell, self._state.path, self._room, wanted)

    async def adopt(self) -> None:
        """Take over the open jobs of instances that died and have not come back."""

        async def add(add_to: Callable[[JobRegistry], list[JobRecord]]) -> None:
            await self._effects.do(add_to, lambda added: self._take_in(added, GONE))

        await self._others.adopt(self._board.verbs(), add)
        self._effects.tell_owed()

    def _take_in(self, found: Sequence[JobRecord], reason: str) -> None:
        now = self._clock.now()
        for record in found:
            self._board.recover(record, now, reason)
        self._tell_waiting(found)
        if found:
            _log.info("open jobs found", service=self._service, jobs=len(found))
        self._board.advance(now)
        self._effects.settle()

    def _tell_waiting(self, found: Sequence[JobRecord]) -> None:
        # What was told of it went with its process. The others' new states are told when written.
        for record in found:
            if record.state is JobState.QUEUED:
                self._effects.teller.tell(record, self._board.standing(record.id))

    async def _warn_of_others(self) -> None:
        """Say so where keys and numbers of verbs hold for less than their author may think."""
        bound = [name for name, verb in self._verbs.items() if verb.exclusive or verb.max_running]
        running = await self._others.running() if bound else []
        if running:
            _log.warning(
                "jobs not excluded across instances",
                service=self._service,
                verbs=bound,
                other_instances=running,
                advice="exclusive and max_running hold within one instance; keep the jobs in PostgreSQL "
                "(NEBULA_JOBS) to have them hold over all",
            )
