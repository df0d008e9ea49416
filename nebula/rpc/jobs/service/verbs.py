"""Management verbs: `job.*`, by which callers look at jobs, cancel them and run them again.

Only `job.wait` waits for a job, and `job.result` and `job.log` if they get a `timeout`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import Field

from nebula.rpc.contract.context import Request
from nebula.rpc.contract.verbs import Verb, VerbOptions, is_open_to
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.model.identifiers import unqualified
from nebula.rpc.jobs.model.record import MAX_LOG_LINES, JobRecord
from nebula.rpc.jobs.model.states import JobState
from nebula.rpc.jobs.model.status import listed_job, result_of, shown
from nebula.rpc.jobs.registry.job_filter import JobFilter
from nebula.rpc.jobs.results.pages import MOST_ROWS
from nebula.rpc.jobs.results.tables import Form
from nebula.rpc.jobs.service.engine_verbs import EngineVerbs
from nebula.rpc.jobs.service.service import JobService
from nebula.rpc.wire.envelope import SUCCESS

__all__ = ["management_verbs"]

# Below the 30 s of `Client(timeout=…)`, so that the reply comes in time.
_LONGEST_WAIT: Final = 25.0
_MOST_LISTED: Final = 200
_PAGE_ROWS: Final = 1000

# Characters of a ULID, see `identifiers`.
_PREFIX: Final = "^[0-7][0-9A-HJKMNP-TV-Z]{0,25}$"

_KEBAB_CASE: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def management_verbs(service: JobService) -> list[Verb]:
    """`job.*` and `engine.*` for one instance."""
    jobs = _JobVerbs(service)
    named: dict[str, Callable[..., Any]] = {
        "job.status": jobs.status,
        "job.list": jobs.list_,
        "job.owners": jobs.owners,
        "job.result": jobs.result,
        "job.cancel": jobs.cancel,
        "job.log": jobs.log,
        "job.wait": jobs.wait,
        "job.show": jobs.show,
        "job.rerun": jobs.rerun,
        **EngineVerbs(service).named(),
    }
    # A job that is run again gets the same reply as a new one.
    responses = {"job.rerun": SUCCESS}
    return [
        Verb(function, VerbOptions(name=name, response=responses.get(name)))
        for name, function in named.items()
    ]


class _JobVerbs:
    def __init__(self, service: JobService) -> None:
        self._service = service

    async def show(
        self, job: str, request: Request, lines: Annotated[int, Field(ge=0, le=MAX_LOG_LINES)] = 10
    ) -> dict[str, Any]:
        """Give all that is known of a job: parameters, steps, times, result or error, last log lines.

        Args:
            job: its id.
            lines: of its log, the last ones.
        """
        ulid = (await self._find(job, request)).id
        # 0 seconds: the log as it is, without waiting for a line.
        record, log = await self._service.queries.log(ulid, lines, None, 0.0)
        status = self._service.status(record)
        return shown(self._service.name, record, status, log)

    async def rerun(self, job: str, request: Request) -> dict[str, Any]:
        """Run a job again: a new job with its parameters, whose options are this request's own."""
        return await _rerun(self._service, request, await self._find(job))

    async def status(self, job: str) -> dict[str, Any]:
        """Tell how a job is: state, progress, note, position in the queue, error."""
        return self._service.status(await self._find(job)).to_json()

    async def list_(
        self,
        state: JobState | list[JobState] | None = None,
        verb: str | None = None,
        owner: str | None = None,
        since: float | None = None,
        until: float | None = None,
        text: str | None = None,
        limit: Annotated[int, Field(ge=1, le=_MOST_LISTED)] = 50,
        before: str | None = None,
        prefix: Annotated[str, Field(pattern=_PREFIX)] | None = None,
    ) -> dict[str, Any]:
        """List jobs, the last accepted first; `next`, if it is not null, as `before` gives the page after it.

        Args:
            state: or states, any of which will do.
            verb: what was asked for.
            owner: the principal that asked.
            since: only those accepted at this time or later, in seconds since the epoch.
            until: only those accepted before this time.
            text: only those whose note or error, as they were written, have it; A to Z in either case.
            limit: how many at most.
            before: a job; only those accepted before it.
            prefix: the first characters of their ULIDs.
        """
        states = tuple(state) if isinstance(state, list) else None if state is None else (state,)
        chosen = JobFilter(states, verb, owner, since, until, text, prefix)
        ulid = None if before is None else self._ulid(before)
        # Raises for an unknown job, which would give an empty page, like that after the last one.
        if ulid is not None:
            await self._service.queries.find(ulid)
        # One more, by which is known whether there are more.
        records = await self._service.read(lambda registry: registry.page(chosen, limit + 1, ulid))
        name, status = self._service.name, self._service.status
        listed = [listed_job(name, record, status(record)) for record in records[:limit]]
        return {"jobs": listed, "next": listed[-1]["job"] if len(records) > limit else None}

    async def owners(self, limit: Annotated[int, Field(ge=1, le=_MOST_LISTED)] = 20) -> dict[str, Any]:
        """List the owners of jobs with their jobs and bytes in the registry, the largest first.

        `held_bytes` are those of jobs that cannot be removed for others: open ones, and ended ones whose
        notice has not been delivered yet.

        Args:
            limit: the maximum number of owners.
        """
        read = self._service.read
        owners, stored = await read(lambda registry: (registry.owners(limit), registry.stored_bytes()))
        most = self._service.limits.max_stored_bytes
        told = [one._asdict() for one in owners]
        return {"stored_bytes": stored, "max_stored_bytes": most, "owners": told}

    async def result(
        self,
        job: str,
        request: Request,
        timeout: Annotated[float, Field(ge=0)] | None = None,
        rows: Annotated[int, Field(ge=1, le=MOST_ROWS)] | None = None,
        page: str | None = None,
        form: Form = "json",
    ) -> dict[str, Any]:
        """Return the result of a job: its `value`, or the `path` and details of a table; or its rows.

        Args:
            job: its id.
            timeout: seconds to wait for its end, 25 at most. With it a job without a result, or none yet, is
                replied to with its status, which has a `state`; without it that is an error.
            rows: maximum number of rows of a table or list to return, fewer if they are large: `data`, their
                `schema`, the `total` number of rows, and `next`.
            page: `next` of the previous reply, for the following rows; null on the last page.
            form: of `data`: `json`, or `arrow` for an Arrow IPC stream in base64.
        """
        record = await self._service.queries.ended(
            self._ulid(job),
            _in_time(request, timeout or 0.0),
            # A caller without the right to it hears that at once.
            lambda found: not found.is_open_to(request.principal),
        )
        _require_open(record, request)
        if record.output is not None:
            if rows is None and page is None:
                return result_of(record.output)
            return await self._service.pages.page(
                record.output, page, rows or _PAGE_ROWS, form, asker=request.principal
            )
        if timeout is not None:
            return self._service.status(record).to_json()
        details = {"state": str(record.state)}
        if (error := record.error) is None:
            message = f"the job is {record.state}, it has no result yet"
            raise VerbError("not-ended", message, details=details, retryable=True)
        # What a job's own code calls its error may not be fit for the wire.
        code = error.code if _KEBAB_CASE.fullmatch(error.code) else "job"
        raise VerbError(code, error.message, details=details, retryable=False)

    async def cancel(self, job: str, request: Request) -> dict[str, Any]:
        """End a job. The reply is its status now: `cancelling`, or how it has ended."""
        record = await self._find(job, request)
        # This only decides. `find` waits for the write, so the reply has the new state.
        self._service.cancel(record)
        return self._service.status(await self._service.queries.find(record.id)).to_json()

    async def log(
        self,
        job: str,
        request: Request,
        limit: Annotated[int, Field(ge=1, le=MAX_LOG_LINES)] = 100,
        after: Annotated[int, Field(ge=0)] | None = None,
        timeout: Annotated[float, Field(ge=0)] = 0.0,
    ) -> dict[str, Any]:
        """Give lines of a job's log, the oldest first: number, time, text. A job keeps its last 1,000.

        Args:
            job: its id.
            limit: how many at most.
            after: the number of a line: those that follow it, by `next` of the reply again. Without it the
                last lines.
            timeout: seconds to wait, 25 at most, where there is no line yet and the job goes on. `is_over` of
                the reply: it has ended, and there is no line after these.
        """
        ulid = (await self._find(job, request)).id
        found = await self._service.queries.log(ulid, limit, after, _in_time(request, timeout))
        lines = found.lines
        return {
            "lines": [line._asdict() for line in lines],
            "next": lines[-1].number if lines else after or 0,
            # If as many lines came as were asked for, there may be more.
            "is_over": found.record.has_ended and (after is None or len(lines) < limit),
        }

    async def wait(
        self, job: str, request: Request, timeout: Annotated[float, Field(ge=0)] = _LONGEST_WAIT
    ) -> dict[str, Any]:
        """Reply with a job's status once it has ended, or after `timeout` seconds (25 at most)."""
        record = await self._service.queries.ended(self._ulid(job), _in_time(request, timeout))
        return self._service.status(record).to_json()

    def _ulid(self, job: str) -> str:
        try:
            service, ulid = unqualified(job)
        except ValueError as error:
            raise VerbError("bad-parameters", str(error)) from None
        if service not in (None, self._service.name):
            raise VerbError("not-found", f"{job} is no job of {self._service.name}")
        return ulid

    async def _find(self, job: str, request: Request | None = None) -> JobRecord:
        """The record of a job; with a request, only for the principal that started it."""
        record = await self._service.queries.find(self._ulid(job))
        if request is not None:
            _require_open(record, request)
        return record


def _require_open(record: JobRecord, request: Request) -> None:
    if not record.is_open_to(request.principal):
        raise VerbError("not-allowed", f"{record.id} belongs to another principal")


def _in_time(request: Request, timeout: float) -> float:
    """How long a caller that would wait `timeout` may be kept waiting."""
    seconds = min(timeout, _LONGEST_WAIT)
    # A reply that comes after the deadline is lost.
    return seconds if request.remaining is None else min(seconds, request.remaining * 0.9)


async def _rerun(service: JobService, request: Request, record: JobRecord) -> dict[str, Any]:
    """Take on a job with the parameters of a known one, validated and checked again, for its owner.

    Its options are the request's own: nothing but the parameters is taken over. The owner of a job can read
    its parameters, so no principal gets a job with those of another.

    Returns:
        as `JobService.accept`.

    Raises:
        VerbError: as `JobService.accept`; `unknown-verb`, `not-allowed`.
    """
    declared = service.declared(record.verb)
    if declared is None:
        raise VerbError("unknown-verb", f"{service.name} has no job {record.verb!r} any more")
    # `job.rerun` may be open to all when its verb is not, so the verb's rights are checked as well.
    (verb, allow), asker = declared, request.principal
    if not is_open_to(allow, asker):
        raise VerbError("not-allowed", f"{asker or 'an unknown principal'} may not call {verb.name}")
    if not record.is_open_to(asker):
        raise VerbError("not-allowed", f"job {record.id} belongs to another principal")
    # Bound again, because the verb's annotations may have changed since the job was recorded.
    return await service.accept(request, verb, verb.signature.bind(record.parameters), rerun_of=record.id)
