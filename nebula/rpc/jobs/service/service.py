"""Job service: the jobs of one instance of a service, from acceptance to their end."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio

from nebula.logs import get_logger
from nebula.private import free_bytes_at
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.job_runner import JobRunner
from nebula.rpc.contract.signature import Arguments
from nebula.rpc.contract.verbs import refuse_reserved
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.model.identifiers import RANDOM_BYTES, new_ulid, qualified
from nebula.rpc.jobs.model.limits import JobLimits
from nebula.rpc.jobs.model.record import JobRecord
from nebula.rpc.jobs.model.status import JobStatus
from nebula.rpc.jobs.registry.capacity import Capacity
from nebula.rpc.jobs.registry.errors import RegistryFull
from nebula.rpc.jobs.registry.registry import JobRegistry
from nebula.rpc.jobs.registry.shared import SharedDatabase
from nebula.rpc.jobs.registry.state_folder import StateFolder
from nebula.rpc.jobs.registry.writer import RegistryWriter
from nebula.rpc.jobs.results.pages import ResultPages
from nebula.rpc.jobs.scheduler.scheduler import Scheduler
from nebula.rpc.jobs.service.action_runner import ActionRunner
from nebula.rpc.jobs.service.admission import Admission
from nebula.rpc.jobs.service.clock import Clock
from nebula.rpc.jobs.service.draft import draft_of, earlier_of, require_same
from nebula.rpc.jobs.service.housekeeping import Housekeeping
from nebula.rpc.jobs.service.instance_context import InstanceContext
from nebula.rpc.jobs.service.job_statistics import EndedJobs, JobStatistics
from nebula.rpc.jobs.service.notices import Deliver, Notices, posting
from nebula.rpc.jobs.service.other_instances import OtherInstances
from nebula.rpc.jobs.service.queries import JobQueries
from nebula.rpc.jobs.service.registry_access import RegistryAccess
from nebula.rpc.jobs.service.runner_listener import RunnerListener
from nebula.rpc.jobs.service.shared_queue import SharedQueue
from nebula.rpc.jobs.service.status_publisher import Publish, StatusPublisher, publish_nothing
from nebula.rpc.jobs.verb import JobVerb
from nebula.rpc.wire.brokers import NEBULA, Brand, instance_queue

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
        runners: run jobs, by the names of engines that verbs use; None stands for the service itself.
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
        runners: Mapping[str | None, JobRunner],
        operators: Mapping[str, Collection[str] | None] | None = None,
        limits: JobLimits | None = None,
        clock: Clock | None = None,
        new_id: Callable[[], str] | None = None,
        connect: Callable[..., sqlite3.Connection] = sqlite3.connect,
        database: SharedDatabase | None = None,
        free_bytes: Callable[[Path], int] = free_bytes_at,
    ) -> None:
        self.name, self._brand = service, NEBULA
        self.instance, self.folder = state.instance, state.path
        # Where they are shared, any instance replies for all of them.
        self.via = instance_queue(service, state.instance) if database is None else f"/queue/{service}"
        is_shared = database is not None
        self._others = OtherInstances(service, state, is_shared=is_shared)
        self.limits, self.operators = limits or JobLimits(), operators or {}
        self._clock = clock or Clock()
        self._new_id = new_id or self._random_id
        # All parts share this dict, which `declare` fills later, before `run`.
        self._verbs: dict[str, JobVerb] = {}
        self._context = context = InstanceContext(
            service, state, self._verbs, self.limits, self._clock, Capacity(service, self.limits)
        )
        self._access = RegistryAccess(
            state.path,
            connect=connect,
            free_bytes=free_bytes,
            database=database,
            service=service,
            instance=state.instance,
            lease=self.limits.lease,
        )
        # While it runs, if jobs are shared.
        self._shared_queue: SharedQueue | None = None
        self._allowed: dict[str, frozenset[str] | None] = {}
        self.runners = dict(runners)
        self._scheduler = Scheduler(
            self._verbs,
            lambda engine: self.runners[engine].max_running,
            cancel_grace=self.limits.cancel_grace,
            instance=state.instance,
            left_to_others=self._left_to_others,
            is_shared=is_shared,
        )
        self.pages = ResultPages()
        self.queries = JobQueries(context, self.read, self._scheduler.open_record, self._flush, self._others)
        # `run` replaces it when there is a connection, and the broker's brand is known.
        publisher = StatusPublisher(service, self.via, publish_nothing)
        self._actions = ActionRunner(self._scheduler, self.runners, self.queries.waiters, publisher)
        self._ended = EndedJobs(self._verbs)
        self._actions.on_end = self._ended.add
        self.housekeeping = Housekeeping(context, self._scheduler, self._actions, self._others)
        self._admission = Admission(
            context, self._scheduler, self._actions, self._left_to_others, self.housekeeping.make_room
        )

    # --- declaring ---

    def declare(self, verb: JobVerb, allow: frozenset[str] | None = None) -> None:
        """Add a job verb. Before `run`: a recorded job whose verb is missing then is given up.

        Args:
            verb: its contract.
            allow: the principals that may call it; None: all of them. `accept` does not check it.

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

        # First the others: the request may be a repetition of one that another instance accepted, before
        # its reply was lost. Looking costs nothing where this instance is the only one.
        found = await self._others.find(find)
        if found is not None:
            return self._receipt(require_same(found.record, draft), None, found.via)
        # Before the check, which may take seconds, or may now refuse what it accepted then: a repeated
        # request gets its job. Without a check the look-up in `Admission.admit` is enough.
        if verb.check is not None or earlier is not None:
            known = await self.read(find)
            if known is not None:
                return self._receipt(
                    require_same(known, draft), self._scheduler.waiting_state(known.id).position, self.via
                )
            if verb.check is not None:
                await verb.run_check(arguments, self.limits.check_timeout)
        try:
            record, waiting = await self._admission.take_on(request, draft, verb)
        except RegistryFull as error:
            raise _stopping() from error
        return self._receipt(record, waiting.position, self.via)

    def _receipt(self, record: JobRecord, position: int | None, via: str) -> dict[str, Any]:
        return {
            "job": qualified(self.name, record.id),
            "state": str(record.state),
            "position": position,
            "status": self._actions.publisher.destination(record.id),
            "via": via,
        }

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
            deliver: sends a message and waits until the broker has it; by default it does not wait.
            brand: of the broker that it sends to.
            started: set when jobs are taken.

        Raises:
            ExceptionGroup: the registry cannot be read or written, or a runner failed: nothing goes on.
        """
        actions, self._brand = self._actions, brand
        actions.publisher = StatusPublisher(self.name, self.via, publish, brand)
        sends = deliver or posting(publish)
        publisher = actions.publisher
        notices = actions.notices = Notices(
            actions.do, publisher.notice, sends, self._clock.wall, publisher.until_released
        )
        registry = await self._open()
        writer = actions.writer = RegistryWriter(registry)
        try:
            async with anyio.create_task_group() as tasks:
                # This group has only the writer, which outlives the runners in the group of `_live`.
                tasks.start_soon(writer.run, name="job registry")
                try:
                    await self.housekeeping.recover()
                    await self._live(notices, started)
                finally:
                    # Only now: how the last runs ended has been posted.
                    writer.close()
        finally:
            await self._access.close(registry)

    async def _open(self) -> JobRegistry:
        database = self._access.database
        if database is None:
            return await self._access.open_file()
        registry = await self._access.open_shared(database)
        self._shared_queue = self.housekeeping.shared_queue = SharedQueue(
            self._context,
            database,
            registry,
            scheduler=self._scheduler,
            actions=self._actions,
            working=self._working,
            republish=self.republish,
        )
        return registry

    async def _live(self, notices: Notices, started: anyio.Event | None) -> None:
        is_over = anyio.Event()
        # All runners have to be up before jobs are taken: `started` is what a service waits for before
        # its first request.
        are_up = {engine: anyio.Event() for engine in self.runners}
        async with anyio.create_task_group() as tasks:
            listener = RunnerListener(self._scheduler, self._clock.now, self.settle)
            run = partial(listener.run, self.runners, are_up, is_over, self._scheduler.stop)
            tasks.start_soon(run, name="job runners")
            tasks.start_soon(self.housekeeping.run, name="job housekeeping")
            tasks.start_soon(notices.run, name="job notices")
            tasks.start_soon(self.pages.run, name="pages of results")
            if self._shared_queue is not None:
                tasks.start_soon(self._shared_queue.run, name="shared jobs")
            try:
                for one in are_up.values():
                    await one.wait()
                if started is not None:
                    started.set()
                await self._keep_time()
            finally:
                # Runners end before the writer is closed: how their last runs ended is still recorded.
                is_over.set()

    async def _keep_time(self) -> None:
        while True:
            self.advance()
            moved = self._actions.moved = anyio.Event()
            # One timer for all jobs. `moved` interrupts it when a decision may have changed what is due
            # next.
            due = self._scheduler.next_due()
            seconds = None if due is None else max(0.0, due - self._clock.steady())
            with anyio.move_on_after(seconds):
                await moved.wait()

    def advance(self) -> None:
        """Do what is due by now. The service's timer calls it; so does a test that moves the clock."""
        self._scheduler.advance(self._clock.now())
        self.settle()

    def settle(self) -> None:
        """Carry out the actions of the scheduler: write, then publish, then act."""
        self._actions.settle()

    def republish(self) -> None:
        """Tell the status of each open job again, and what is owed: for the time after a reconnect."""
        self._actions.tell_owed()
        for record in self._scheduler.open_records():
            # Ephemeral values went with the old connection (G.ephemeral), so each open job is told again.
            self._actions.publisher.tell(record, self._scheduler.waiting_state(record.id))

    def statistics(self) -> JobStatistics:
        """Statistics of its jobs since the start, and of its engines."""
        engines = {name: runner.status() for name, runner in self.runners.items() if name is not None}
        return self._ended.statistics(self._scheduler.open_records(), engines)

    # --- for the management verbs ---

    def status(self, record: JobRecord) -> JobStatus:
        """A job's status now."""
        return self._actions.publisher.status(record, self._scheduler.waiting_state(record.id))

    def cancel(self, record: JobRecord) -> None:
        """End a job as its caller wishes. Its states tell the rest."""
        is_ours = self._scheduler.cancel(record.id, self._clock.now())
        if not is_ours and self._shared_queue is not None and not record.has_ended:
            self._shared_queue.ask_to_cancel(record)
        self.settle()

    async def read(self, read: Callable[[JobRegistry], _T]) -> _T:
        """Read the registry, after all decisions so far have been written.

        Raises:
            VerbError: `busy`, because the service is stopping.
        """
        try:
            return await self._actions.do(read)
        except RegistryFull as error:
            raise _stopping() from error

    # --- inside ---

    def _flush(self, ulid: str) -> None:
        self._scheduler.flush_log(ulid)
        self.settle()

    def _working(self) -> list[str]:
        """The verbs that can be run here now."""
        return [name for name, verb in self._verbs.items() if not self.runners[verb.engine].is_broken]

    def _left_to_others(self) -> Collection[str]:
        """The verbs that cannot be run here now, and can by another instance."""
        if self._shared_queue is None:
            return ()
        return self._shared_queue.working.difference(self._working())

    def _random_id(self) -> str:
        return new_ulid(int(self._clock.wall() * 1000), secrets.token_bytes(RANDOM_BYTES))


def _stopping() -> VerbError:
    # The reason concerns the operator: the service ends with it.
    return VerbError("busy", "the service is stopping, try again")
