"""`GET /jobs/SERVICE/ID/result`: results of jobs over HTTP.

Pages are fetched by `job.result` with the rights of the requesting principal, each after the one before it
has been read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote

import anyio.to_thread

from nebula.broker.server.http_posts import CutOff, Posted, Response, Streamed, preferences, problem
from nebula.errors import NebulaError, RemoteError, SettingsError
from nebula.host import http_openapi
from nebula.host.http_calls import (
    MOST_FIELDS,
    BadCall,
    Call,
    HttpCalls,
    Stopping,
    failure_reply,
    http_calls,
    is_name,
    timeout_of,
)
from nebula.rpc.jobs.model.identifiers import is_ulid, own_queue
from nebula.rpc.jobs.results.formats import (
    CONTENT_TYPES,
    NotRows,
    form_of,
    writer_of,
)
from nebula.rpc.jobs.results.types import ResultFormat
from nebula.rpc.wire.envelope import dump_json
from nebula.rpc.wire.replies import reading

if TYPE_CHECKING:
    from nebula.broker.assembly import Assembly

__all__ = ["PATH", "HttpResults", "calls_and_results", "format_of"]

PATH: Final = "/jobs/"

# Maximum rows of a page, which is in memory until its reader has it.
_ROWS: Final = 5000

# Each holds a few megabytes. One principal may have half of them.
_MOST_PARQUET: Final = 8

_BY_TYPE: Final[Mapping[str, ResultFormat]] = {
    "application/x-ndjson": ResultFormat.NDJSON,
    "application/ndjson": ResultFormat.NDJSON,
    "application/jsonl": ResultFormat.NDJSON,
    "text/csv": ResultFormat.CSV,
    "application/vnd.apache.parquet": ResultFormat.PARQUET,
    "application/x-parquet": ResultFormat.PARQUET,
    "application/*": ResultFormat.NDJSON,
    "text/*": ResultFormat.CSV,
    "*/*": ResultFormat.NDJSON,
}


def calls_and_results(assembly: Assembly) -> list[HttpCalls]:
    """Hosted services for calls, results and documents over HTTP. Call it before the broker starts."""
    hosted = http_calls(assembly)
    for calls in hosted:
        assembly.server.reads[PATH] = HttpResults(calls).reply
        assembly.server.reads[http_openapi.PATH] = http_openapi.HttpOpenApi(calls).reply
    return hosted


class NotAcceptable(Exception):
    """No acceptable format is available; says why."""


class HttpResults:
    """Serves results on a listener that also serves calls.

    Args:
        calls: makes the calls to services, on its own loop.
    """

    def __init__(self, calls: HttpCalls) -> None:
        self._calls = calls
        # Number of Parquet results in progress, by principal.
        self._parquet = Counter[str]()

    async def reply(self, posted: Posted) -> Response | Streamed:
        """Reply to a request, on the broker's loop; cancellation withdraws it."""
        # Releases the slot after a failure; `pop_all` hands it to the pieces.
        with ExitStack() as stack:
            try:
                result = _Result(self._calls, posted, format_of(posted.accept, posted.query))
                if result.to is ResultFormat.PARQUET:
                    stack.enter_context(self._parquet_slot(posted.principal))
                # Read before the status is sent, so that a job that does not exist is an error instead of an
                # empty file.
                first = await self._calls.on_loop(result.begin)
            except _Busy:
                return problem(HTTPStatus.SERVICE_UNAVAILABLE, "busy", "many results go out as Parquet now")
            except (BadCall, NotAcceptable, NotRows, SettingsError, Stopping, NebulaError) as error:
                return _refusal_of(error)
            name = f'attachment; filename="{result.job}.{result.to}"'
            pieces = _Pieces(self._calls, result, first, stack.pop_all())
            return Streamed(CONTENT_TYPES[result.to], pieces, [("content-disposition", name)])

    @contextmanager
    def _parquet_slot(self, principal: str) -> Iterator[None]:
        if self._parquet.total() >= _MOST_PARQUET or self._parquet[principal] >= _MOST_PARQUET // 2:
            raise _Busy
        self._parquet[principal] += 1
        try:
            yield
        finally:
            # `Counter` subtraction removes names that reach zero.
            self._parquet -= Counter([principal])


class _Busy(Exception):
    """There is no room for one more."""


def _refusal_of(error: Exception) -> Response:
    match error:
        case BadCall():
            return problem(HTTPStatus.BAD_REQUEST, "bad-request", str(error))
        case NotAcceptable() | NotRows() | SettingsError():
            return problem(HTTPStatus.NOT_ACCEPTABLE, "not-acceptable", str(error))
        case NebulaError():
            return failure_reply(error)
        case _:
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, "stopping", "calls are not taken now")


class _Pieces:
    """The pieces of a result. None of the formats can report an error after the first piece."""

    def __init__(self, calls: HttpCalls, result: _Result, first: bytes, held: ExitStack) -> None:
        self._calls, self._result, self._ahead, self._held = calls, result, first, held

    async def next(self) -> bytes:
        ahead, self._ahead = self._ahead, b""
        try:
            return ahead or await self._calls.on_loop(self._result.more)
        except Stopping:
            raise CutOff("the broker is shutting down") from None
        except (NebulaError, NotRows) as error:
            raise CutOff(str(error)) from error

    def failed(self, error: Response) -> None:
        pass

    def close(self) -> None:
        self._held.close()


class _Result:
    """One result on its way.

    Raises:
        BadCall: its path or time cannot be read.
        SettingsError: a package for the format is not installed.
    """

    def __init__(self, calls: HttpCalls, posted: Posted, to: ResultFormat) -> None:
        self._calls, self._principal, self._seconds = calls, posted.principal, timeout_of(posted)
        self._service, ulid = _job_of(posted.path)
        self.job, self.to = ulid, to
        # Made here, so that a missing package is an error instead of a response that breaks off.
        self._writer = writer_of(to)
        self._id = f"{self._service}/{ulid}"
        self._wanted = {"job": self._id, "rows": _ROWS, "form": form_of(to)}
        self._next: str | None = None
        self._is_over = False

    async def begin(self) -> bytes:
        """The bytes of the first page. Raises if the job has no result."""
        try:
            page = await self._ask(self._wanted)
        except RemoteError as error:
            # A single value has no rows: NDJSON writes it as one line, CSV and Parquet cannot represent it.
            if error.code != "no-rows" or self.to is not ResultFormat.NDJSON:
                raise
            return await self._whole()
        return await self._written(page)

    async def more(self) -> bytes:
        """The bytes of the next page that yields any; empty at the end."""
        while not self._is_over:
            if self._next is None:
                self._is_over = True
                # In a thread, as packing the rest takes time.
                return await anyio.to_thread.run_sync(self._writer.end)
            # A page may yield nothing: Parquet gathers rows until a group of them is worth writing.
            data = await self._written(await self._ask({**self._wanted, "page": self._next}))
            if data:
                return data
        return b""

    async def _whole(self) -> bytes:
        """A value without rows as a single row."""
        told = await self._ask({"job": self._id})
        with reading("a result"):
            return dump_json(told.get("value")) + b"\n"

    async def _written(self, page: Any) -> bytes:
        with reading("a page of a result"):
            self._next = page["next"]
        return await anyio.to_thread.run_sync(self._writer.add, page)

    async def _ask(self, parameters: Mapping[str, Any]) -> Any:
        body = dump_json(parameters)
        try:
            return await self._calls.ask(self._principal, self._call(body))
        except RemoteError as error:
            if error.code != "elsewhere" or not isinstance(error.details, Mapping):
                raise
            # Ask the instance that holds the job; only once, or two instances could redirect us forever.
            with reading(f"where {self._id} is"):
                via = own_queue(self._service, str(error.details["via"]))
            self._service = via.removeprefix("/queue/")
        return await self._calls.ask(self._principal, self._call(body))

    def _call(self, body: bytes) -> Call:
        return Call(self._service, "job.result", body, self._seconds)


def _job_of(path: str) -> tuple[str, str]:
    """Service and job of a path. Raises BadCall."""
    names = [unquote(name) for name in path.removeprefix(PATH).split("/")]
    if len(names) != 3 or names[2] != "result" or not is_name(names[0]) or not is_ulid(names[1]):
        raise BadCall(f"get {PATH}SERVICE/ID/result")
    return names[0], names[1]


def format_of(accept: str, query: str) -> ResultFormat:
    """The requested format: the query's `format`, or the best match of `Accept`.

    Raises:
        BadCall: the query cannot be read.
        NotAcceptable: the format is unknown.
    """
    try:
        named = parse_qs(query, max_num_fields=MOST_FIELDS).get("format", [""])[-1]
    except ValueError as error:
        raise BadCall(f"a query may have {MOST_FIELDS} fields") from error
    if named:
        try:
            return ResultFormat(named)
        except ValueError:
            raise NotAcceptable(f"format is one of {', '.join(ResultFormat)}") from None
    # No `Accept` means anything (RFC 9110, 12.5.1).
    for kind in preferences(accept) if accept.strip() else ["*/*"]:
        if kind in _BY_TYPE:
            return _BY_TYPE[kind]
    raise NotAcceptable("available: application/x-ndjson, text/csv and application/vnd.apache.parquet")
