"""Admission of new jobs: each is recorded once, and begins with the same commit if a slot is free."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager

from nebula.logs import get_logger
from nebula.rpc.contract.context import Request
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.model.record import JobRecord, whose
from nebula.rpc.jobs.registry.capacity import NoRoom, Wanted
from nebula.rpc.jobs.registry.registry import JobRegistry
from nebula.rpc.jobs.scheduler.order import WaitingState
from nebula.rpc.jobs.scheduler.scheduler import Reserved, Scheduler
from nebula.rpc.jobs.service.action_runner import ActionRunner, keep
from nebula.rpc.jobs.service.draft import require_same
from nebula.rpc.jobs.service.instance_context import InstanceContext
from nebula.rpc.jobs.verb import JobVerb

__all__ = ["Admission"]

_log = get_logger(__name__)


class Admission:
    """Takes new jobs on.

    Args:
        context: the instance.
        scheduler: of the instance.
        actions: writes, tells and does what it decides.
        left_to_others: the verbs that cannot be run here now, and can by another instance.
        make_room: removes ended jobs from the registry; returns whether any were removed.
    """

    def __init__(
        self,
        context: InstanceContext,
        scheduler: Scheduler,
        actions: ActionRunner,
        left_to_others: Callable[[], Collection[str]],
        make_room: Callable[[Wanted], Awaitable[bool]],
    ) -> None:
        self._scheduler, self._actions, self._clock = scheduler, actions, context.clock
        self._capacity, self._limits = context.capacity, context.limits
        self._left_to_others, self._make_room = left_to_others, make_room
        self._accepting = 0

    async def take_on(
        self, request: Request, draft: JobRecord, verb: JobVerb
    ) -> tuple[JobRecord, WaitingState]:
        """Record a job, after the removal of ended ones where the registry is full.

        Args:
            request: which asks for it; its `after_reply` lets `notify` hear of the job.
            draft: the job as it is asked for.
            verb: of the job.

        Returns, and raises, as `admit`; `NoRoom` only if no ended job could be removed.
        """
        # Requests that are being recorded count as queued: a burst would otherwise pass the limit
        # together.
        self._accepting += 1
        try:
            with self._told_after_reply(request, draft.id):
                try:
                    return await self.admit(draft, self._refusal(verb, draft.owner))
                except NoRoom as lacking:
                    if not await self._make_room(lacking.wanted):
                        raise
                return await self.admit(draft, self._refusal(verb, draft.owner))
        finally:
            self._accepting -= 1

    async def admit(self, draft: JobRecord, refusal: VerbError | None) -> tuple[JobRecord, WaitingState]:
        """Record a job. When this returns it is on the disk, also for a caller that is gone by then.

        Args:
            draft: the job as it is asked for.
            refusal: why no new one is taken on; one that is known already is found all the same.

        Returns:
            the job as it was recorded, and where it stood; or as it is, if it was known.

        Raises:
            NoRoom: ended jobs have to be removed first; nothing was recorded.
            VerbError: the job is refused, a known one has another owner, or there is no room; nothing
                was recorded.
            Exception: the database failed.
        """
        # The slot is taken before the commit (docs/decisions/0036), so every way out ends the reservation:
        # `enter` after the commit, `give_back` if the job was known or `insert` raised.
        reserved = None if refusal else self._scheduler.reserve(draft, self._clock.now())
        waiting: WaitingState | None = None

        def insert(registry: JobRegistry) -> tuple[JobRecord, bool]:
            # Search and insert under one lock, because the broker may have delivered one request to two
            # instances.
            registry.lock()
            found = registry.find_same(draft)
            if found is None:
                if refusal is not None:
                    raise refusal
                self._capacity.require(registry, draft)
                registry.insert(draft)
            # Or written already, by a commit whose reply was lost on the way.
            elif reserved is None or found != reserved.begin.record:
                return require_same(found, draft), False
            return draft, reserved is not None and keep(reserved.begin, registry)

        def enter(inserted: tuple[JobRecord, bool]) -> None:
            nonlocal waiting
            # `insert` returns the draft itself only if it is new, or was begun by this reservation.
            if inserted[0] is draft:
                waiting = self._enter(draft, reserved)
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
        return record, waiting or self._scheduler.waiting_state(record.id)

    def _enter(self, draft: JobRecord, reserved: Reserved | None) -> WaitingState:
        # On the loop, at the commit.
        _log.info("job accepted", job=draft.id, verb=draft.verb, **whose(draft))
        if reserved is not None:
            # Published as queued although it has a slot: `begin` publishes `starting`.
            self._scheduler.begun(reserved)
            self._actions.publisher.tell(draft, reserved.waiting)
            return reserved.waiting
        now = self._clock.now()
        self._scheduler.add(draft, now)
        waiting = self._scheduler.waiting_state(draft.id)
        self._actions.publisher.tell(draft, waiting)
        self._scheduler.dispatch(now)
        self._actions.settle()
        return waiting

    @contextmanager
    def _told_after_reply(self, request: Request, ulid: str) -> Iterator[None]:
        """Keep a job's statuses from `notify` until its request gets its reply, or is refused."""
        release = self._actions.publisher.hold(ulid)
        try:
            yield
        # Also when the request is cancelled: without a release the statuses would be kept for ever.
        except BaseException:
            release()
            raise
        request.after_reply = release

    def _refusal(self, verb: JobVerb, owner: str | None) -> VerbError | None:
        """Why no new job is taken on now. A request for a known one is not refused."""
        reason = self._actions.runners[verb.engine].is_broken
        if reason is not None and verb.name not in self._left_to_others():
            return VerbError("engine-unavailable", reason)
        if self._scheduler.queued + self._accepting > self._limits.max_queued:
            return VerbError("busy", f"{self._scheduler.queued} jobs are queued, try later")
        share = max(1, int(self._limits.max_queued * self._limits.owner_share))
        # Count one owner's jobs only if there are that many jobs in all.
        if self._scheduler.queued >= share and (own := self._scheduler.queued_by(owner)) >= share:
            return VerbError(
                "busy", f"{own} jobs of {owner or 'all callers'} are queued, their share; try later"
            )
        return None
