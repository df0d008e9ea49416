"""Jobs that a responder declares, and their `JobService` while it runs."""

from __future__ import annotations

import inspect
import re
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from nebula.rpc.contract.context import Request, Surroundings
from nebula.rpc.contract.job_runner import JobMiddleware, JobRunner
from nebula.rpc.contract.signature import Arguments
from nebula.rpc.jobs.local.runner import LocalRunner
from nebula.rpc.jobs.model.limits import JobLimits
from nebula.rpc.jobs.registry.state_folder import StateFolder, project_of
from nebula.rpc.jobs.registry.unfinished import notes_of
from nebula.rpc.jobs.service.engine_verbs import SERVICE_ENGINE
from nebula.rpc.jobs.service.job_statistics import JobStatistics
from nebula.rpc.jobs.service.service import JobService
from nebula.rpc.jobs.verb import JobVerb
from nebula.rpc.service.job_storage import JobStorage
from nebula.rpc.wire.envelope import dump_json
from nebula.rpc.wire.reply_body import ReplyBody, success

DEFAULT_ENGINE: Final = "default"

# It becomes a folder's name, and a word in a command.
_ENGINE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


# `nebula.rpc` does not import Spark: this is all that a service has to know about an engine.
class Engine(Protocol):
    """What a service declares of an engine, `nebula.spark.Spark` for one: plain values until it runs."""

    @property
    def operators(self) -> Collection[str] | None:
        """The principals that may restart it; None: all, where the broker vouches for no principal."""
        ...

    @property
    def can_isolate(self) -> bool:
        """Whether a run can have an engine of its own, which ends with it."""
        ...

    def runner(self, state: Path, service: str, name: str, *, is_shared: bool) -> JobRunner:
        """What runs jobs on it, for one instance of a service with its state folder.

        Args:
            state: the instance's folder.
            service: its name.
            name: the engine's, which no other engine of the service has.
            is_shared: whether there are verbs that run next to others; else each run is isolated.
        """
        ...


def engines_of(service: str, spark: Engine | Mapping[str, Engine] | None) -> dict[str, Engine]:
    """The engines of a service by their names.

    Raises:
        ValueError: a name that cannot be used.
    """
    if spark is None:
        return {}
    engines = dict(spark) if isinstance(spark, Mapping) else {DEFAULT_ENGINE: spark}
    for name in engines:
        if not _ENGINE_NAME.fullmatch(name) or name == SERVICE_ENGINE:
            raise ValueError(
                f"service {service!r}: an engine's name has letters, digits, - and _, and is not "
                f"{SERVICE_ENGINE!r}; {name!r} does not do"
            )
    return engines


class JobEndpoint:
    """The verb that a job is for its callers: its reply says that the job was accepted."""

    is_async: Final = True
    streams: Final = False
    # Made when the job runs, see `LocalRunner`, and not when it is accepted.
    plan: Final = None

    def __init__(self, job: JobVerb, jobs: DeclaredJobs, allow: frozenset[str] | None) -> None:
        self.name = job.name
        self.signature = job.signature
        # The early `success` (docs/decisions/0006) says that the job was accepted. `job.result` has its
        # result.
        self.response = "success"
        self.queue = None
        # Accepting is quick; what jobs may run at once is their engine's affair.
        self.concurrency = None
        self.errors = ()
        self._job = job
        self._jobs = jobs
        self.allow = allow

    async def invoke(self, arguments: Arguments, request: Request) -> ReplyBody:
        """Have the job recorded; the reply is an early `success` that says where to look for it."""
        accepted = await self._jobs.service.accept(request, self._job, arguments)
        return success(dump_json(accepted), "accepted")

    def describe(self) -> dict[str, Any]:
        """The contract: of the result, what `job.result` gives."""
        return {
            "verb": self.name,
            "description": inspect.getdoc(self._job.function) or "",
            "parameters": self.signature.parameters_schema(),
            "result": self.signature.result_schema(),
            "response": self.response,
            "job": True,
            **self.signature.marks(),
        }


class DeclaredJobs:
    """The jobs that a responder declares.

    Args:
        around: the service, for its jobs.
        engines: what jobs may run in, by name, besides the service itself.
        root: where state is kept; see `StateFolder`.
        middleware: of the responder; what of it is `JobMiddleware` stands around jobs, too.
        limits: numbers that bound what jobs may cost.
        database: URL of the database that keeps them; by default that of `NEBULA_JOBS`.
    """

    def __init__(
        self,
        around: Surroundings,
        engines: Mapping[str, Engine],
        root: Path | None,
        middleware: Sequence[object] = (),
        limits: JobLimits | None = None,
        database: str | None = None,
    ) -> None:
        self._storage = JobStorage(root, database)
        self._middleware = [one for one in middleware if isinstance(one, JobMiddleware)]
        self._name, self._around = around.service, around
        self._engines = engines
        self._limits = limits
        self._jobs: list[JobVerb] = []
        self._allowed: dict[str, frozenset[str] | None] = {}
        self._service: JobService | None = None

    @property
    def service(self) -> JobService:
        """What takes the jobs. While the responder runs."""
        assert self._service is not None
        return self._service

    def failing_engines(self) -> list[str]:
        """The engines, while the responder runs, that could run nothing when they last tried."""
        runners = {} if self._service is None else self._service.runners
        return [f"engine {name}" for name, runner in runners.items() if runner.failing]

    def statistics(self) -> JobStatistics | None:
        """See `JobService.statistics`; None before the responder ever ran, and without jobs."""
        return None if self._service is None else self._service.statistics()

    def declare(self, job: JobVerb, allow: frozenset[str] | None) -> JobEndpoint:
        """Add one.

        Raises:
            ValueError: it wants an engine that the service has not, or more of it than it can do.
        """
        if job.engine is not None and job.engine not in self._engines:
            raise ValueError(self._no_engine(job.name, job.engine))
        if job.isolation == "process" and job.engine and not self._engines[job.engine].can_isolate:
            raise ValueError(
                f"job {job.name!r} wants isolation='process', and the engine {job.engine!r} is a Connect "
                "server that all jobs share: leave it out, or give the job an engine with a driver of its own"
            )
        self._jobs.append(job)
        self._allowed[job.name] = allow
        return JobEndpoint(job, self, allow)

    def _no_engine(self, job: str, engine: str) -> str:
        if not self._engines:
            return (
                f"job {job!r} needs the engine {engine!r}: give its service one, "
                f"Responder({self._name!r}, spark=Spark()), or declare it with engine=None"
            )
        there = ", ".join(map(repr, self._engines))
        return (
            f"job {job!r} needs the engine {engine!r}, and service {self._name!r} has {there}: "
            "name one of these with engine=…, or add it to spark={…}"
        )

    @contextmanager
    def opened(self) -> Iterator[JobService | None]:
        """Take a state folder and make the service of this run on it; None if there are no jobs.

        Raises:
            SettingsError: no folder can be had, or `NEBULA_JOBS` names no database.
        """
        # No folder and no database for a service without jobs.
        if not self._jobs:
            yield None
            return
        # The module of the first job says which project this is, from whatever directory it is started
        # (docs/decisions/0049).
        project = project_of(self._jobs[0].function)
        root, database = self._storage.chosen()
        with StateFolder.take(self._name, _new_instance, root, project=project) as state:
            # An engine with only isolated jobs needs no shared process.
            shared = {job.engine for job in self._jobs if job.isolation == "shared"}
            runners: dict[str | None, JobRunner] = {
                name: engine.runner(state.path, self._name, name, is_shared=name in shared)
                for name, engine in self._engines.items()
            }
            runners[None] = LocalRunner(
                {one.name: one for one in self._jobs},
                around=self._around,
                middleware=self._middleware,
                notes=notes_of(state.path),
            )
            # In reverse, so that the first one is the outermost, as around requests.
            for one in reversed(self._middleware):
                runners = {name: one.around_runner(runner, self._name) for name, runner in runners.items()}
            operators = {name: engine.operators for name, engine in self._engines.items()}
            self._service = JobService(
                self._name,
                state=state,
                runners=runners,
                operators=operators,
                limits=self._limits,
                database=database,
            )
            for job in self._jobs:
                self._service.declare(job, self._allowed[job.name])
            yield self._service


def _new_instance() -> str:
    return secrets.token_hex(4)
