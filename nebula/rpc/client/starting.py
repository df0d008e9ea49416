"""What a client does with jobs: has a service begin one, and holds those that were begun."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, TypeVarTuple, Unpack, overload

from nebula.errors import CallTimeout
from nebula.headers import JOB_ID, PERSISTENT
from nebula.rpc.client.calling import request_body
from nebula.rpc.client.messaging import Messaging
from nebula.rpc.contract.job_context import Job
from nebula.rpc.contract.options import require_named
from nebula.rpc.contract.resolving import destination_of, resolve
from nebula.rpc.contract.start_options import StartOptions, start_headers
from nebula.rpc.contract.unfitting import Unfitting
from nebula.rpc.contract.verbs import Target
from nebula.rpc.errors import UnexpectedReply
from nebula.rpc.jobs.handle import JobHandle
from nebula.rpc.jobs.model.identifiers import RANDOM_BYTES, new_ulid, qualified, unqualified
from nebula.rpc.middleware.chain import Call
from nebula.rpc.wire.envelope import JSON_TYPE
from nebula.rpc.wire.replies import read_value, reading

__all__ = ["Starting"]

P = ParamSpec("P")
Ts = TypeVarTuple("Ts")
T = TypeVar("T")

_OPTIONS: Final = frozenset({"timeout", *StartOptions.__annotations__})


class Starting(Messaging):
    """A part of `Client`."""

    @overload
    async def start(
        self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[T]: ...
    @overload
    async def start(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[T]: ...
    @overload
    async def start(
        self, function: Callable[Concatenate[Job, P], Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[T]: ...
    @overload
    async def start(
        self, function: Callable[Concatenate[Job, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[T]: ...
    # For messages alone, see `Unfitting`.
    @overload
    async def start(self, function: Callable[[Unpack[Ts]], object], /, *args: *Ts) -> JobHandle[object]: ...
    @overload
    async def start(self, function: Unfitting, /, *args: Any, **kwargs: Any) -> JobHandle[Any]: ...
    @overload
    async def start(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        timeout: float | None = None,
        **options: Unpack[StartOptions],
    ) -> JobHandle[Any]: ...
    async def start(self, target: Any, /, *args: Any, **kwargs: Any) -> JobHandle[Any]:  # type: ignore[misc]  # mypy: of no `*Ts`
        """Have a service begin a job. Returns once the job is accepted, long before it is done.

        The request is stored: if the service is away, the job begins when it comes. If no answer comes in
        time a handle is returned all the same, as the id is ours; its `status` tells whether the service
        knows the job by then.

        Args:
            target: a function that a service declared with `job`, followed by its arguments; or the name of
                a service, followed by verb and parameters, see `call`.
            timeout: seconds to wait for the early answer; it does not limit the job.
            **options: of the job, see `StartOptions`; else, and always for a function, those of
                `with_options`.

        Returns:
            The handle; of a function's job it has the type of what the function returns.

        Raises:
            RemoteError: the service refused: `bad-parameters`, `busy`, …; there is no job.
            Rejected: the broker refused; there is no job.
            UnexpectedReply: the verb is not a job.
            ConnectionLost, ServerError: the connection ended again and again, or there was none in time;
                there may be a job.
        """
        if isinstance(target, str):
            require_named("start", target, args, kwargs, _OPTIONS)
            return await self._start_named(target, *args, **kwargs)
        known, contract = resolve(target, self._service, as_job=True)
        parameters = contract.pack(args, kwargs, "start")
        return await self._start(known, parameters, None, self._start_options, contract.load)

    async def _start_named(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        timeout: float | None = None,
        **options: Unpack[StartOptions],
    ) -> JobHandle[Any]:
        target = Target(service.removeprefix("/queue/"), destination_of(service), verb)
        return await self._start(target, parameters, timeout, {**self._start_options, **options})

    async def _start(
        self,
        target: Target,
        parameters: Any,
        timeout: float | None,
        options: StartOptions,
        read: Callable[[Any], Any] | None = None,
    ) -> JobHandle[Any]:
        job = new_ulid(int(time.time() * 1000), secrets.token_bytes(RANDOM_BYTES))
        headers = {"content-type": JSON_TYPE, PERSISTENT: "true", JOB_ID: job}
        headers |= start_headers(options, self._caller.brand)
        seconds = self._timeout if timeout is None else timeout
        body = request_body(target.verb, parameters)

        async def work(call: Call) -> JobHandle[Any]:
            queue = call.destination
            # Outside: where the time is over before anything was sent, there will be no job.
            seconds = self._caller.seconds(call.timeout)
            try:
                answer = await self._caller.ask_stored(queue, body, {**call.headers, **headers}, seconds)
            except CallTimeout:
                # The id is ours, so the job can be asked about even if its service was away all the time.
                return JobHandle(self, qualified(target.service, job), via=queue, read=read)
            return self._started(target, read_value(answer, None), read)

        started: JobHandle[Any] = await self._through("start", target.destination, target.verb, seconds, work)
        return started

    async def start_on(
        self, queue: str, service: str, verb: str, parameters: Any, options: StartOptions
    ) -> JobHandle[Any]:
        """`start` by name, at a queue where a service or one of its instances listens.

        For verbs of jobs, such as `job.rerun`. Args and Raises as for `start`.
        """
        return await self._start(Target(service, queue, verb), parameters, None, options)

    def _started(self, target: Target, early: Any, read: Callable[[Any], Any] | None) -> JobHandle[Any]:
        """The handle of the job that an early answer tells of."""
        if not isinstance(early, dict) or "job" not in early:
            raise UnexpectedReply(
                f"{target.verb!r} of {target.destination} is not a job: it answered at once"
            )
        via = early.get("via")
        with reading(f"the answer of {target.destination}"):
            service, _ = unqualified(early["job"])
            # Asked at the queue of one instance, `reports.a`, or at its service's. A handle for a job of
            # another service would send there in our name.
            if not f"{target.service}.".startswith(f"{service}."):
                raise ValueError("the job is one of another service")
            return JobHandle(self, early["job"], via=None if via is None else str(via), read=read)

    def job(self, job: str) -> JobHandle[Any]:
        """The handle of a job that was started before, here or elsewhere, by its id `<service>/<ulid>`.

        Raises:
            ValueError: that is no job's id.
        """
        return JobHandle(self, job)
