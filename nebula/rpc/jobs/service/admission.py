"""Jobs that come: recorded once each, and begun by the same commit where there is room for them."""

from __future__ import annotations

from nebula.logs import get_logger
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.model.record import JobRecord, whose
from nebula.rpc.jobs.registry.capacity import Capacity
from nebula.rpc.jobs.registry.registry import JobRegistry
from nebula.rpc.jobs.scheduler.order import Standing
from nebula.rpc.jobs.scheduler.scheduler import Reserved, Scheduler
from nebula.rpc.jobs.service.action_runner import ActionRunner, keep
from nebula.rpc.jobs.service.clock import Clock
from nebula.rpc.jobs.service.draft import require_same

__all__ = ["Admission"]

_log = get_logger(__name__)


class Admission:
    """Takes new jobs on.

    Args:
        board: of the instance.
        effects: writes, tells and does what it decides.
        clock: the time.
        room: decides whether the registry has room.
    """

    def __init__(self, scheduler: Scheduler, actions: ActionRunner, clock: Clock, room: Capacity) -> None:
        self._scheduler, self._actions, self._clock, self._room = scheduler, actions, clock, room

    async def admit(self, draft: JobRecord, refusal: VerbError | None) -> tuple[JobRecord, Standing]:
        """Record a job. When this returns it is on the disk, also for a caller that is gone by then.

        Args:
            draft: the job as it is asked for.
            refusal: why no new one is taken on; one that is known already is found all the same.

        Returns:
            the job as it was recorded, and where it stood; or as it is, if it was known.

        Raises:
            NoRoom: ended jobs have to be removed first; nothing was recorded.
            VerbError: the job is refused, a known one belongs to somebody else, or there is no room; nothing
                was recorded.
            Exception: the database failed.
        """
        reserved = None if refusal else self._scheduler.reserve(draft, self._clock.now())
        standing: Standing | None = None

        def insert(registry: JobRegistry) -> tuple[JobRecord, bool]:
            registry.lock()
            found = registry.find_same(draft)
            if found is None:
                if refusal is not None:
                    raise refusal
                self._room.require(registry, draft)
                registry.insert(draft)
            # Or written already, by a commit whose answer was lost on the way.
            elif reserved is None or found != reserved.begin.record:
                return require_same(found, draft), False
            return draft, reserved is not None and keep(reserved.begin, registry)

        def enter(inserted: tuple[JobRecord, bool]) -> None:
            nonlocal standing
            if inserted[0] is draft:
                standing = self._enter(draft, reserved)
            else:
                give_back()

        def begin(inserted: tuple[JobRecord, bool]) -> None:
            record, is_begun = inserted
            if record is draft and reserved is not None:
                self._actions.on_kept(reserved.begin, is_begun)

        def give_back() -> None:
            if reserved is not None:
                self._scheduler.give_back(reserved, self._clock.now())
                self._actions.settle()

        # Its caller hears of the job before that begins: it may end the process.
        record, _ = await self._actions.do(insert, enter, give_back, begin)
        return record, standing or self._scheduler.standing(record.id)

    def _enter(self, draft: JobRecord, reserved: Reserved | None) -> Standing:
        # On the loop, at the commit.
        _log.info("job accepted", job=draft.id, verb=draft.verb, **whose(draft))
        if reserved is not None:
            self._scheduler.begun(reserved)
            self._actions.publisher.tell(draft, reserved.standing)
            return reserved.standing
        now = self._clock.now()
        self._scheduler.add(draft, now)
        standing = self._scheduler.standing(draft.id)
        self._actions.publisher.tell(draft, standing)
        self._scheduler.dispatch(now)
        self._actions.settle()
        return standing
