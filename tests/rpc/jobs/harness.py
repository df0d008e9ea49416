"""A job service without a broker: a clock that is moved by hand, a runner that follows orders."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import anyio

from nebula import headers as names
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.job_context import Job
from nebula.rpc.contract.job_runner import JobListener, JobTask, Started
from nebula.rpc.jobs.local.runner import LocalRunner
from nebula.rpc.jobs.model.identifiers import new_ulid
from nebula.rpc.jobs.model.limits import JobLimits
from nebula.rpc.jobs.model.status import JobStatus
from nebula.rpc.jobs.registry.state_folder import StateFolder
from nebula.rpc.jobs.registry.unfinished import notes_of
from nebula.rpc.jobs.service.clock import Clock
from nebula.rpc.jobs.service.service import JobService
from nebula.rpc.jobs.service.status_publisher import Publish
from nebula.rpc.jobs.service.verbs import management_verbs
from nebula.rpc.jobs.verb import JobVerb
from nebula.rpc.wire.brokers import NEBULA
from nebula.rpc.wire.envelope import Envelope


def count(ctx: Job, up_to: int = 3) -> int:
    """A job's code, which the fake runner never runs."""
    return up_to


class FakeClock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.seconds, lambda: self.seconds)


class FakeRunner:
    """Takes jobs and leaves the rest to the test, which speaks to the service through `listener`."""

    is_broken: str | None = None
    failing: str | None = None

    def __init__(self, max_running: int = 2) -> None:
        self.max_running = max_running
        self.submitted: list[JobTask] = []
        self.cancels: list[tuple[str, int, str]] = []
        self.restarts = 0
        self.on_submit: Callable[[JobTask], None] = lambda _task: None
        self.on_stop: Callable[[], None] = lambda: None
        self._listener: JobListener | None = None
        self._changed = anyio.Event()

    @property
    def listener(self) -> JobListener:
        assert self._listener is not None
        return self._listener

    def submit(self, task: JobTask) -> None:
        self.submitted.append(task)
        self._changed.set()
        self.on_submit(task)

    def cancel(self, job: str, attempt: int, *, reason: Literal["cancelled", "timed-out"]) -> None:
        self.cancels.append((job, attempt, reason))
        self._changed.set()

    def status(self) -> Mapping[str, Any]:
        return {"state": "ready"}

    def restart(self) -> None:
        self.restarts += 1

    async def run(self, listener: JobListener, *, started: Started | None = None) -> None:
        self._listener = listener
        if started is not None:
            started.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.on_stop()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until calls of the service make this true."""
        while not is_so():
            self._changed = anyio.Event()
            await self._changed.wait()

    async def next_task(self, number: int = 1) -> JobTask:
        """The task that was submitted as the `number`th."""
        await self.until(lambda: len(self.submitted) >= number)
        return self.submitted[number - 1]


@dataclass
class Published:
    """The messages that the service sent, in order. `then` may make a delivery fail."""

    messages: list[tuple[str, JobStatus, Mapping[str, str]]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    changed: anyio.Event = field(default_factory=anyio.Event)
    prefix: str = names.JOB_PREFIX
    then: Publish = lambda _destination, _body, _headers: None
    # Called before the broker confirms a persistent message; it may raise.
    on_deliver: Callable[[str], Awaitable[None]] | None = None

    def __call__(self, destination: str, body: bytes, headers: Mapping[str, str]) -> None:
        if body:
            self.messages.append((destination, JobStatus.from_json(json.loads(body)), headers))
        else:
            self.deleted.append(destination)
        self.changed.set()
        self.then(destination, body, headers)

    async def deliver(self, destination: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Deliver like a broker that confirms."""
        if self.on_deliver is not None:
            await self.on_deliver(destination)
        self(destination, body, headers)

    def told(self, destination: str) -> list[JobStatus]:
        """The messages at a destination."""
        return [status for where, status, _ in self.messages if where == destination]

    async def until_told(self, destination: str, state: str, times: int = 1) -> None:
        """Wait until a destination has got this state a number of times."""
        while [status.state for status in self.told(destination)].count(state) < times:
            self.changed = anyio.Event()
            await self.changed.wait()

    def statuses(self, job: str) -> list[JobStatus]:
        """The statuses of a job, at its destination."""
        return [status for where, status, _ in self.messages if where == self.destination(job)]

    def kept(self, job: str) -> list[str]:
        """The states that the broker keeps after the service has gone."""
        own = [told for told in self.messages if told[0] == self.destination(job)]
        return [status.state for _, status, headers in own if names.EPHEMERAL not in headers]

    def destination(self, job: str) -> str:
        """Where a job's statuses go."""
        return f"{self.prefix}counting.{job.rpartition('/')[2]}"

    def states(self, job: str) -> list[str]:
        """Its states, each once."""
        return [state for state, _ in itertools.groupby(status.state for status in self.statuses(job))]

    async def until(self, job: str, state: str, progress: float | None = None) -> JobStatus:
        """Wait for this state of a job, and this progress if one is given."""
        while not (
            found := [
                one for one in self.statuses(job) if one.state == state and progress in (None, one.progress)
            ]
        ):
            self.changed = anyio.Event()
            await self.changed.wait()
        return found[-1]


class House:
    """A service named `counting` with one job verb `count`, its folder, and what it is connected to."""

    def __init__(self, root: Path, instance: str = "i", **declaration: Any) -> None:
        self.root, self._instance = root, instance
        self.verb_name = "count"
        self.declaration: dict[str, Any] = {"function": count, "engine": "default"} | declaration
        self.time = FakeClock()
        self.clock = self.time.clock
        self.runner = FakeRunner()
        self.published = Published()
        self.limits = JobLimits()
        self.brand = NEBULA
        self.on_deliver: Callable[[str], Awaitable[None]] | None = None
        self.options: dict[str, Any] = {}
        self._ids = itertools.count(1)

    @property
    def registry_file(self) -> Path:
        """Of the first instance."""
        return next(self.root.glob("counting/*/jobs.sqlite"))

    def new_id(self) -> str:
        """ULIDs in order."""
        return new_ulid(1_000_000, f"{self._instance:.4}{next(self._ids):06}".rjust(10).encode())

    @asynccontextmanager
    async def living(self) -> AsyncIterator[JobService]:
        """The service, from its start to a cancellation."""
        self.runner = FakeRunner(self.runner.max_running)
        self.published = Published(prefix=self.brand.job_prefix, on_deliver=self.on_deliver)
        folder = StateFolder.take("counting", lambda: f"{self._instance}{next(self._ids)}", self.root)
        with folder:
            self.verb = JobVerb(self.verb_name, **self.declaration)
            local = LocalRunner({self.verb_name: self.verb}, notes=notes_of(folder.path))
            service = JobService(
                "counting",
                state=folder,
                runners={None: local, "default": self.runner},
                limits=self.limits,
                clock=self.clock,
                new_id=self.new_id,
                **self.options,
            )
            service.declare(self.verb)
            started = anyio.Event()
            with anyio.fail_after(20):
                async with anyio.create_task_group() as tasks:

                    async def run() -> None:
                        await service.run(
                            self.published,
                            deliver=self.published.deliver,
                            brand=self.brand,
                            started=started,
                        )

                    tasks.start_soon(run)
                    await started.wait()
                    yield service
                    tasks.cancel_scope.cancel()

    def pass_time(self, service: JobService, seconds: float) -> None:
        """Move the clock, and let the service look at it."""
        self.time.seconds += seconds
        service.advance()

    async def accept(self, service: JobService, parameters: Any = None, **headers: str) -> dict[str, Any]:
        """Ask for `count`; underscores of header names stand for hyphens."""
        asked = request(self.verb_name, parameters, **headers)
        receipt = await service.accept(asked, self.verb, self.verb.signature.bind(parameters))
        if asked.after_reply is not None:
            asked.after_reply()
        return receipt


def request(verb: str, parameters: Any = None, *, principal: str | None = None, **headers: str) -> Request:
    """A request as a responder makes it."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    envelope = Envelope(verb, parameters)
    return Request(envelope, named, destination="/queue/counting", principal=principal)


async def ask(service: JobService, verb: str, parameters: Any = None, principal: str | None = None) -> Any:
    """Ask a management verb, as a responder does."""
    known = {one.name: one for one in management_verbs(service)}[verb]
    asked = request(verb, parameters, principal=principal)
    return await known.invoke(known.signature.bind(parameters), asked)


REPLY = {names.REPLY_TO.replace("-", "_"): "/queue/nebula.inbox.1", names.REPLY_ID.replace("-", "_"): "r1"}

# The same request whenever it is delivered, as a broker says that keeps message-ids.
DELIVERY = {**REPLY, "message_id": "m-1"}
