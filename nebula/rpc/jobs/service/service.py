"""Jobs of one instance of a service: accepted, recorded, handed to what runs them, told, kept."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from nebula.extras.postgres import Database
from nebula.logs import get_logger
from nebula.private import free_bytes_at
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.job_runner import JobRunner
from nebula.rpc.contract.signature import Arguments
from nebula.rpc.contract.verbs import Verb, refuse_reserved
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.local.runner import LocalRunner
from nebula.rpc.jobs.model.identifiers import RANDOM_BYTES, new_ulid, qualified
from nebula.rpc.jobs.model.limits import Clock, JobLimits
from nebula.rpc.jobs.model.options import draft_of, earlier_of, require_same
from nebula.rpc.jobs.model.record import JobRecord
from nebula.rpc.jobs.model.states import JobStatus
from nebula.rpc.jobs.model.status_messages import Publish, Teller, nobody_listens
from nebula.rpc.jobs.registry.registry import JobRegistry, RegistryFull
from nebula.rpc.jobs.registry.sqlite import REGISTRY_FILE, SqliteJobRegistry
from nebula.rpc.jobs.registry.state_folder import StateFolder
from nebula.rpc.jobs.registry.unfinished import notes_of
from nebula.rpc.jobs.registry.writer import RegistryWriter
from nebula.rpc.jobs.results.pages import ResultPages
from nebula.rpc.jobs.scheduler.actions import Effects
from nebula.rpc.jobs.scheduler.admission import Admission
from nebula.rpc.jobs.scheduler.board import JobBoard
from nebula.rpc.jobs.scheduler.board_listener import BoardListener
from nebula.rpc.jobs.scheduler.capacity import NoRoom, Room
from nebula.rpc.jobs.scheduler.notices import Deliver, Notices, posting
from nebula.rpc.jobs.scheduler.queries import Inquiries
from nebula.rpc.jobs.scheduler.waiting import Standing
from nebula.rpc.jobs.service.housekeeping import Housekeeping
from nebula.rpc.jobs.service.job_statistics import EndedJobs, JobStatistics
from nebula.rpc.jobs.service.other_instances import OtherInstances
from nebula.rpc.jobs.service.shared_queue import Sharing
from nebula.rpc.jobs.service.verb import JobVerb
from nebula.rpc.jobs.service.verbs import management_verbs
from nebula.rpc.wire.brokers import NEBULA, Brand, instance_queue
from nebula.threads import call_in_daemon

__all__ = ["JobService"]

_log = get_logger(__name__)

_T = TypeVar("_T")


class JobService:
    """The jobs of one instance of a service.

    A job is recorded before it is accepted, and each change of its state before it is told or acted upon.
    It runs at most once, unless its verb says that a lost one may run again.

    Args:
        service: the service's name.
        state: the instance's folder, for as long as this lives. The caller closes it.
        runners: what runs jobs, by the names that verbs use. For None there is a `LocalRunner` anyway.
        operators: who may restart them, by the same names; see `Spark.operators`.
        limits: numbers.
        clock: the time.
        new_id: makes ULIDs for requests that bring none.
        connect: opens the registry's file.
        database: keeps the jobs instead of the folder, and lets other instances share them.
        free_bytes: returns the free space on the disk of a folder.
    """

    def __init__(
        self,
        service: str,
        *,
        state: StateFolder,
        runners: Mapping[str | None, JobRunner] | None = None,
        operators: Mapping[str, Collection[str] | None] | None = None,
        limits: JobLimits | None = None,
        clock: Clock | None = None,
        new_id: Callable[[], str] | None = None,
        connect: Callable[..., sqlite3.Connection] = sqlite3.connect,
        database: Database | None = None,
        free_bytes: Callable[[Path], int] = free_bytes_at,
    ) -> None:
        self.name, self._free_bytes = service, free_bytes
        self._brand = NEBULA
        self.instance, self.folder = state.instance, state.path
        # Where they are shared, any instance answers for all of them.
        self.via = instance_queue(service, state.instance) if database is None else f"/queue/{service}"
        self._others = OtherInstances(service, state, is_shared=database is not None)
        self._database = database
        self._sharing: Sharing | None = None
        self.limits, self.operators = limits or JobLimits(), operators or {}
        self._state, self._clock, self._connect = state, clock or Clock(), connect
        self._new_id = new_id or self._random_id
        self._verbs: dict[str, JobVerb] = {}
        self._allowed: dict[str, frozenset[str] | None] = {}
        self.runners: dict[str | None, JobRunner] = {
            None: LocalRunner(self._verbs, notes=notes_of(state.path)),
            **(runners or {}),
        }
        self._board = JobBoard(
            self._verbs,
            lambda engine: self.runners[engine].max_running,
            cancel_grace=self.limits.cancel_grace,
            instance=state.instance,
            left_to_others=self._left_to_others,
            is_shared=database is not None,
        )
        self._accepting = 0
        self.pages = ResultPages()
        self.inquiries = Inquiries(
            service, self.read, self._board.open_record, self._flush, self._others, self.limits
        )
        teller = Teller(service, self.via, nobody_listens)
        self._effects = Effects(self._board, self.runners, self.inquiries.callers, teller)
        self._ended = EndedJobs(self._verbs)
        self._effects.on_end = self._ended.add
        room = Room(service, self.limits)
        self._admission = Admission(self._board, self._effects, self._clock, room)
        self.housekeeping = Housekeeping(
            service,
            state,
            self._verbs,
            self._board,
            self._effects,
            self._others,
            self._clock,
            self.limits,
            room,
        )

    # --- declaring ---

    def declare(self, verb: JobVerb, allow: frozenset[str] | None = None) -> None:
        """Add a job verb. Before `run`: a recorded job whose verb is missing then is given up.

        Args:
            verb: its contract.
            allow: the principals that may call it, None: everybody; `accept` does not look.

        Raises:
            ValueError: the name is reserved or taken, or there is no such engine.
        """
        refuse_reserved(verb.name)
        if verb.name in self._verbs:
            raise ValueError(f"job {verb.name!r} is declared twice")
        if verb.engine not in self.runners:
            raise ValueError(
                f"job {verb.name!r} runs in an engine that the service has not; "
                "give the Responder one, or declare the job with engine=None"
            )
        self._verbs[verb.name], self._allowed[verb.name] = verb, allow

    def declared(self, name: str) -> tuple[JobVerb, frozenset[str] | None] | None:
        """The verb of this name, and who may call it."""
        return (self._verbs[name], self._allowed[name]) if name in self._verbs else None

    def verbs(self) -> Sequence[Verb]:
        """`job.status` and its like: for the registry of the service and for the instance's own queue."""
        return management_verbs(self)

    # --- accepting ---

    async def accept(
        self, request: Request, verb: JobVerb, arguments: Arguments, *, rerun_of: str | None = None
    ) -> dict[str, Any]:
        """Take a job on. When this returns it is on the disk and will run, or wait for its turn.

        The caller sends what this returns as `success`, calls `request.after_reply`, before which nothing
        is told at `neb-job-notify`, then ACKs the request. Whatever fails on the way,
        the request comes again and gets the same job: by its `neb-job-dedupe`, else its `neb-job-id`,
        else its `message-id`, for one owner and verb, while the job is remembered. Where message-ids do not
        last, a request that the broker says is delivered again gets the last job with the same reply
        destination, reply id and parameters.

        Args:
            request: as it came.
            verb: the one it asks for.
            arguments: as `verb.signature.bind` gave them.
            rerun_of: the job whose parameters they are.

        Returns:
            the parameters of the early `success`: job, state, position, status, via.

        Raises:
            VerbError: `bad-parameters`, `not-allowed`, `busy`, `engine-unavailable`; nothing was recorded.
                If the disk is full, the service ends.
            sqlite3.Error: the disk failed; the service ends.
        """
        now = self._clock.now()
        draft = draft_of(request, verb, arguments, now, self._new_id, self._brand)
        draft = replace(draft, rerun_of=rerun_of)
        earlier = earlier_of(draft, request)

        def find(registry: JobRegistry) -> JobRecord | None:
            return registry.find_same(draft) if earlier is None else registry.find_alike(draft, earlier)

        found = await self._others.find(find)
        if found is not None:
            return self._receipt(require_same(found.record, draft), None, found.via)
        if verb.check is not None or earlier is not None:
            known = await self.read(find)
            if known is not None:
                return self._receipt(
                    require_same(known, draft), self._board.standing(known.id).position, self.via
                )
            if verb.check is not None:
                await verb.run_check(arguments, self.limits.check_timeout)
        self._accepting += 1
        try:
            with self._told_after_reply(request, draft.id):
                record, standing = await self._admit(draft, verb)
            return self._receipt(record, standing.position, self.via)
        except RegistryFull as error:
            raise _stopping() from error
        finally:
            self._accepting -= 1

    @contextmanager
    def _told_after_reply(self, request: Request, ulid: str) -> Iterator[None]:
        """Keep a job's statuses from `notify` until its request is answered, or is not taken."""
        release = self._effects.teller.hold(ulid)
        try:
            yield
        except BaseException:
            release()
            raise
        request.after_reply = release

    async def _admit(self, draft: JobRecord, verb: JobVerb) -> tuple[JobRecord, Standing]:
        try:
            return await self._admission.admit(draft, self._refusal(verb, draft.owner))
        except NoRoom as lacking:
            if not await self.housekeeping.make_room(lacking.wanted):
                raise
        return await self._admission.admit(draft, self._refusal(verb, draft.owner))

    def _receipt(self, record: JobRecord, position: int | None, via: str) -> dict[str, Any]:
        return {
            "job": qualified(self.name, record.id),
            "state": str(record.state),
            "position": position,
            "status": self._effects.teller.destination(record.id),
            "via": via,
        }

    def _refusal(self, verb: JobVerb, owner: str | None) -> VerbError | None:
        """Why a new job is not taken on now. One that is known already is answered all the same."""
        reason = self.runners[verb.engine].is_broken
        if reason is not None and verb.name not in self._left_to_others():
            return VerbError("engine-unavailable", reason)
        if self._board.queued + self._accepting > self.limits.max_queued:
            return VerbError("busy", f"{self._board.queued} jobs are queued, try later")
        share = max(1, int(self.limits.max_queued * self.limits.owner_share))
        # Count one owner's jobs only if there are that many jobs in all.
        if self._board.queued >= share and (own := self._board.queued_by(owner)) >= share:
            return VerbError(
                "busy", f"{own} jobs of {owner or 'all callers'} are queued, their share; try later"
            )
        return None

    # --- living ---

    async def run(
        self,
        publish: Publish,
        *,
        deliver: Deliver | None = None,
        brand: Brand = NEBULA,
        started: anyio.Event | None = None,
    ) -> None:
        """Keep jobs going until cancelled.

        First what an earlier process left: waiting jobs wait on; of the others, those that may run twice
        wait again, and the rest are lost. When cancelled, runs that are under way end, as lost or to be
        run again; nothing that a runner started is alive when this returns.

        Args:
            publish: sends a message at once; it may raise a `NebulaError` where there is no connection.
            deliver: sends a message and waits until the broker has it; by default nobody waits.
            brand: of the broker that it sends to.
            started: set when jobs are taken.

        Raises:
            ExceptionGroup: the registry cannot be read or written, or a runner failed: nothing goes on.
        """
        effects, self._brand = self._effects, brand
        effects.teller = Teller(self.name, self.via, publish, brand)
        sends = deliver or posting(publish)
        teller = effects.teller
        notices = effects.notices = Notices(
            effects.do, teller.notice, sends, self._clock.wall, teller.until_released
        )
        registry = await self._open()
        writer = effects.writer = RegistryWriter(registry)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(writer.run, name="job registry")
                try:
                    await self.housekeeping.recover()
                    await self._live(notices, started)
                finally:
                    # Only now: how the last runs ended has been posted.
                    writer.close()
        finally:
            await self._close(registry)

    async def _open(self) -> JobRegistry:
        if self._database is None:
            path = self._state.path / REGISTRY_FILE
            opened = partial(SqliteJobRegistry, path, connect=self._connect, free_bytes=self._free_bytes)
            return await anyio.to_thread.run_sync(opened)
        # Only who uses it has to have it installed.
        from nebula.extras.postgres_registry import PostgresJobRegistry

        # A database may take the connection and say nothing: a service that shall stop does not wait for it.
        # What is opened too late is nobody's, and closed as such.
        registry = await call_in_daemon(
            partial(PostgresJobRegistry, self._database, self.name, self.instance, patience=self._patience)
        )
        self._sharing = self.housekeeping.sharing = Sharing(
            self._database,
            registry,
            instance=self.instance,
            board=self._board,
            effects=self._effects,
            clock=self._clock,
            lease=self.limits.lease,
            working=self._working,
            republish=self.republish,
        )
        return registry

    async def _close(self, registry: JobRegistry) -> None:
        patience = None if self._database is None else self._patience
        with anyio.move_on_after(patience, shield=True) as in_time:
            await call_in_daemon(registry.close)
        if in_time.cancelled_caught:
            # The others get what waits when the lease is over.
            registry.abort()

    @property
    def _patience(self) -> float:
        """Seconds for which a shared database may say nothing."""
        return self.limits.lease / 3

    async def _live(self, notices: Notices, started: anyio.Event | None) -> None:
        is_over = anyio.Event()
        are_up = {engine: anyio.Event() for engine in self.runners}
        async with anyio.create_task_group() as tasks:
            listener = BoardListener(self._board, self._clock.now, self.settle)
            run = partial(listener.run, self.runners, are_up, is_over, self._board.stop)
            tasks.start_soon(run, name="job runners")
            tasks.start_soon(self.housekeeping.run, name="job housekeeping")
            tasks.start_soon(notices.run, name="job notices")
            tasks.start_soon(self.pages.run, name="pages of results")
            if self._sharing is not None:
                tasks.start_soon(self._sharing.run, name="shared jobs")
            try:
                for one in are_up.values():
                    await one.wait()
                if started is not None:
                    started.set()
                await self._keep_time()
            finally:
                is_over.set()

    async def _keep_time(self) -> None:
        while True:
            self.advance()
            moved = self._effects.moved = anyio.Event()
            due = self._board.next_due()
            seconds = None if due is None else max(0.0, due - self._clock.steady())
            with anyio.move_on_after(seconds):
                await moved.wait()

    def advance(self) -> None:
        """Do what is due by now. The service's own timer does it; who moves the clock by hand does it too."""
        self._board.advance(self._clock.now())
        self.settle()

    def settle(self) -> None:
        """Do what the board has decided: write it, and when that is on the disk, tell it and act upon it."""
        self._effects.settle()

    def republish(self) -> None:
        """Tell the status of each open job again, and what is owed: for the time after a reconnect."""
        self._effects.tell_owed()
        for record in self._board.open_records():
            self._effects.teller.tell(record, self._board.standing(record.id))

    def statistics(self) -> JobStatistics:
        """Statistics of its jobs since the start, and of its engines."""
        engines = {name: runner.status() for name, runner in self.runners.items() if name is not None}
        return self._ended.statistics(self._board.open_records(), engines)

    # --- for the management verbs ---

    def status(self, record: JobRecord) -> JobStatus:
        """What is told of a job now."""
        return self._effects.teller.status(record, self._board.standing(record.id))

    def cancel(self, record: JobRecord) -> None:
        """End a job as its caller wishes. Its states tell the rest."""
        is_ours = self._board.cancel(record.id, self._clock.now())
        if not is_ours and self._sharing is not None and not record.has_ended:
            self._sharing.ask_to_cancel(record)
        self.settle()

    async def read(self, read: Callable[[JobRegistry], _T]) -> _T:
        """Read the registry, after all decisions so far have been written.

        Raises:
            VerbError: `busy`, because the service is stopping.
        """
        try:
            return await self._effects.do(read)
        except RegistryFull as error:
            raise _stopping() from error

    # --- inside ---

    def _flush(self, ulid: str) -> None:
        self._board.flush_log(ulid)
        self.settle()

    def _working(self) -> list[str]:
        """The verbs that can be run here now."""
        return [name for name, verb in self._verbs.items() if not self.runners[verb.engine].is_broken]

    def _left_to_others(self) -> Collection[str]:
        """The verbs that cannot be run here now, and can by another instance."""
        if self._sharing is None:
            return ()
        return self._sharing.working.difference(self._working())

    def _random_id(self) -> str:
        return new_ulid(int(self._clock.wall() * 1000), secrets.token_bytes(RANDOM_BYTES))


def _stopping() -> VerbError:
    # The reason concerns the operator: the service ends with it.
    return VerbError("busy", "the service is stopping, try again")
