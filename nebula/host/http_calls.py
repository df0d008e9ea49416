"""`POST /call/SERVICE/VERB`: a call for who has nothing but HTTP, `curl` for one.

Each principal that asks has a client of its own here, so that a call has that principal's rights and bears
it as its `sender`, as if it had come by STOMP. Clients are kept for a while: an inbox is made once, not per
call.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qs, unquote

import anyio
from pydantic_core import from_json

from nebula.broker.http_posts import JSON_TYPE, Answer, Posted, problem, too_large
from nebula.errors import CallTimeout, ConnectionLost, NebulaError, NoResponder, Rejected, RemoteError
from nebula.headers import REJECTED_FULL, REJECTED_UNAUTHORISED, TIMEOUT
from nebula.host.pipe import AppEnd, join
from nebula.logs import get_logger
from nebula.rpc.client import Client
from nebula.rpc.envelope import ascii_json, dump_json, encode
from nebula.rpc.errors import CODES

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from nebula.broker.assembly import Assembly
    from nebula.broker.server import Server
    from nebula.stomp.link import Link

PATH: Final = "/call/"

_T = TypeVar("_T")

_log = get_logger("nebula.host")

# The link is given: an address from the environment, which may be another broker's, is not asked for.
_NO_ADDRESS: Final = "stomp://localhost"

_DEFAULT_SECONDS: Final = 30.0
# Who waits holds a connection, of which there are so many.
_MOST_SECONDS: Final = 300.0
_MOST_DIGITS: Final = 10
_MOST_CHARACTERS: Final = 255

_IDLE_SECONDS: Final = 60.0
_SWEEP_SECONDS: Final = 10.0
_MOST_IDLE: Final = 64
_PARTING_SECONDS: Final = 0.5

# What stands around the parameters in the body of a request, beside the verb.
_ENVELOPE_BYTES: Final = 64
MOST_FIELDS: Final = 20

STATUSES: Final[Mapping[str, HTTPStatus]] = {
    "bad-request": HTTPStatus.BAD_REQUEST,
    "bad-parameters": HTTPStatus.UNPROCESSABLE_ENTITY,
    "not-allowed": HTTPStatus.FORBIDDEN,
    "unknown-verb": HTTPStatus.NOT_FOUND,
    "not-found": HTTPStatus.NOT_FOUND,
    "elsewhere": HTTPStatus.CONFLICT,
    "cancelled": HTTPStatus.CONFLICT,
    "streaming-only": HTTPStatus.NOT_ACCEPTABLE,
    "deadline-exceeded": HTTPStatus.GATEWAY_TIMEOUT,
    "bad-result": HTTPStatus.INTERNAL_SERVER_ERROR,
    "upstream-timeout": HTTPStatus.GATEWAY_TIMEOUT,
    "upstream-error": HTTPStatus.BAD_GATEWAY,
    "internal": HTTPStatus.INTERNAL_SERVER_ERROR,
    "too-many-attempts": HTTPStatus.INTERNAL_SERVER_ERROR,
    "not-ended": HTTPStatus.CONFLICT,
    "no-rows": HTTPStatus.NOT_ACCEPTABLE,
    "result-gone": HTTPStatus.GONE,
    "result-unreadable": HTTPStatus.INTERNAL_SERVER_ERROR,
    "result-too-large": HTTPStatus.INTERNAL_SERVER_ERROR,
    "error": HTTPStatus.INTERNAL_SERVER_ERROR,
}


def status_of(code: str, *, retryable: bool = False) -> HTTPStatus:
    """The status of an error code. Of what has none: 503 where the same call may succeed later, else 422."""
    known = CODES.get(code)
    if known is not None:
        retryable = known.is_retryable
    later = HTTPStatus.SERVICE_UNAVAILABLE if retryable else HTTPStatus.UNPROCESSABLE_ENTITY
    return STATUSES.get(code, later)


@dataclass(frozen=True, slots=True)
class Call:
    """What a request asks for.

    Attributes:
        service: its name.
        verb: its name.
        parameters: as JSON in ASCII; None: there are none.
        seconds: that it may take.
    """

    service: str
    verb: str
    parameters: bytes | None
    seconds: float


class BadCall(Exception):
    """It cannot be read; says why."""


class Stopping(Exception):
    """Calls are not taken now."""


def http_calls(assembly: Assembly) -> list[HttpCalls]:
    """What answers the calls of a broker, if it takes some: to be hosted. Ask before the broker starts."""
    if not assembly.takes_calls:
        return []
    calls = HttpCalls(assembly.server)
    assembly.server.posts[PATH] = calls.answer
    assembly.server.renewals.append(calls.renew)
    return [calls]


class HttpCalls:
    """Answers what is posted. Host it beside the services; its `answer` is the listener's.

    Args:
        server: the broker, not started yet or started.

    Attributes:
        name: its own; no principal ever bears it.
    """

    def __init__(self, server: Server) -> None:
        self.name = "http"
        self._server = server
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: TaskGroup | None = None
        self._callers: dict[str, _Caller] = {}
        self._calls = 0
        self._reloads = 0
        self._is_stopping = False
        self._idle = anyio.Event()

    async def run(
        self,
        url: str | None = None,  # noqa: ARG002 - the broker of this process
        *,
        link: Callable[[], Awaitable[Link]] | None = None,  # noqa: ARG002 - one for each principal
        started: anyio.Event | None = None,
        grace: float = 5.0,
    ) -> None:
        """Answer until cancelled; then calls under way have `grace` seconds."""
        self._loop = asyncio.get_running_loop()
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            if started is not None:
                started.set()
            try:
                while True:
                    await anyio.sleep(_SWEEP_SECONDS)
                    self._part_from_idle()
            finally:
                self._is_stopping = True
                with anyio.CancelScope(shield=True), anyio.move_on_after(grace):
                    while self._calls:
                        self._idle = anyio.Event()
                        await self._idle.wait()
                for caller in self._callers.values():
                    caller.leave()

    async def answer(self, posted: Posted) -> Answer:
        """Answer a request. On the broker's loop; who is cancelled takes its call back."""
        try:
            return await self.on_loop(partial(self._answer, posted, self._reloads))
        except Stopping:
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, "stopping", "calls are not taken now")

    async def on_loop(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Have some work done on the loop of the calls, by the broker's; who is cancelled ends it.

        Raises:
            Stopping: calls are not taken now.
        """
        if self._loop is None or self._is_stopping:
            raise Stopping
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._loop))

    def renew(self) -> None:
        """Files were read again: drop the clients, because their principals may no longer be valid.

        Runs on the broker's loop. The listener ends calls in progress; their clients end with them.
        """
        self._reloads += 1
        # At the end of the program our loop may already be closed.
        with contextlib.suppress(RuntimeError):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._part_from_those_without_calls)

    def _part_from_those_without_calls(self) -> None:
        for caller in [each for each in self._callers.values() if not each.calls]:
            self._part_from(caller)

    async def _answer(self, posted: Posted, reloads: int) -> Answer:
        self._calls += 1
        try:
            call = read_call(posted)
            if self._is_too_large(call):
                return too_large(self._server.limits.max_body_bytes)
            value = await self._ask(posted.principal, call, reloads)
            return Answer(HTTPStatus.OK, dump_json(value) + b"\n", JSON_TYPE)
        except BadCall as error:
            return problem(HTTPStatus.BAD_REQUEST, "bad-request", str(error))
        except NebulaError as error:
            return answer_to(error)
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    def _is_too_large(self, call: Call) -> bool:
        """Whether the broker would end the connection, which others share, over its body."""
        most = self._server.limits.max_body_bytes - _ENVELOPE_BYTES - 6 * len(call.verb)
        return call.parameters is not None and len(call.parameters) > most

    async def ask(self, principal: str, call: Call) -> Any:
        """Ask in the name of a principal, on the loop of the calls; it counts as a call under way.

        Raises:
            NebulaError: as `Client.call`.
        """
        self._calls += 1
        try:
            return await self._ask(principal, call, self._reloads)
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def _ask(self, principal: str, call: Call, reloads: int) -> Any:
        caller = self._caller_of(principal)
        caller.calls += 1
        try:
            client = await caller.client()
            return await client.ask(call)
        finally:
            caller.calls -= 1
            caller.since = time.monotonic()
            # A principal that was admitted before a reload may no longer be valid.
            if caller.is_lost or (reloads != self._reloads and not caller.calls):
                self._part_from(caller)

    def _caller_of(self, principal: str) -> _Caller:
        caller = self._callers.get(principal)
        if caller is None:
            assert self._tasks is not None
            if len(self._callers) >= _MOST_IDLE:
                self._part_from_oldest()
            caller = self._callers[principal] = _Caller(self._server, principal)
            self._tasks.start_soon(caller.run, name=f"calls of {principal}")
        return caller

    def _part_from_idle(self) -> None:
        until = time.monotonic() - _IDLE_SECONDS
        for caller in [each for each in self._callers.values() if not each.calls and each.since <= until]:
            self._part_from(caller)

    def _part_from_oldest(self) -> None:
        idle = [each for each in self._callers.values() if not each.calls]
        if idle:
            self._part_from(min(idle, key=lambda each: each.since))

    def _part_from(self, caller: _Caller) -> None:
        if self._callers.get(caller.principal) is caller:
            del self._callers[caller.principal]
        caller.leave()


class _Client(Client):
    """Hands parameters on as they came."""

    async def ask(self, call: Call) -> Any:
        """As `call` does."""
        body = encode(JSON_TYPE, call.verb, call.parameters)
        return await self._ask(call.verb, f"/queue/{call.service}", body, call.seconds, self._rules, None)


class _Caller:
    """Asks in the name of one principal.

    Attributes:
        principal: whose name that is.
        calls: under way.
        since: when the last one ended.
    """

    def __init__(self, server: Server, principal: str) -> None:
        self._server = server
        self.principal = principal
        self._client: _Client | None = None
        self._failure: NebulaError | None = None
        self._ready = anyio.Event()
        self._leaving = anyio.Event()
        self.calls = 0
        self.since = time.monotonic()

    @property
    def is_lost(self) -> bool:
        """It will have no more answers: another one has to be made."""
        return self._failure is not None

    async def client(self) -> _Client:
        """The client, once it has its inbox.

        Raises:
            NebulaError: it cannot have one, or has lost its connection.
        """
        await self._ready.wait()
        if self._client is None or self._failure is not None:
            assert self._failure is not None
            raise self._failure
        return self._client

    def leave(self) -> None:
        """Part from the broker."""
        self._leaving.set()

    async def run(self) -> None:
        """Be connected until `leave`; who is cancelled may still have calls to bring to their end."""
        with anyio.CancelScope(shield=True) as scope:
            try:
                async with _Client(_NO_ADDRESS, link=self._open_link) as client:
                    self._client = client
                    self._ready.set()
                    await self._leaving.wait()
                    scope.deadline = anyio.current_time() + _PARTING_SECONDS
            except NebulaError as error:
                self._failure = error
            except Exception:
                # One caller's bug must not end the others', and the broker with them.
                _log.exception("caller failed", principal=self.principal)
                self._failure = ConnectionLost("the log says why")
            finally:
                self._ready.set()

    async def _open_link(self) -> AppEnd:
        return join(self._server, self.principal)


def read_call(posted: Posted) -> Call:
    """What a request asks for.

    Raises:
        BadCall: it cannot be read.
    """
    names = [unquote(name) for name in posted.path.removeprefix(PATH).split("/")]
    if len(names) != 2 or not all(is_name(name) for name in names):
        raise BadCall(f"post to {PATH}SERVICE/VERB")
    return Call(names[0], names[1], _parameters_of(posted.body), seconds_of(posted))


def _parameters_of(body: bytes) -> bytes | None:
    if not body:
        return None
    try:
        # To be judged, not kept: a tree of small lists is 25 times as large as its octets.
        from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise BadCall(f"the body is not JSON: {error}") from error
    return ascii_json(body)


def is_name(text: str) -> bool:
    return 0 < len(text) <= _MOST_CHARACTERS and text.isprintable() and "/" not in text


def seconds_of(posted: Posted) -> float:
    """What a call may take: the header, else the query, in milliseconds as on STOMP's wire."""
    text = posted.timeout
    try:
        text = text or parse_qs(posted.query, max_num_fields=MOST_FIELDS).get(TIMEOUT, [""])[-1]
    except ValueError as error:
        raise BadCall(f"a query may have {MOST_FIELDS} fields") from error
    if not text:
        return _DEFAULT_SECONDS
    is_number = text.isascii() and text.isdigit() and len(text) < _MOST_DIGITS
    if not (is_number and 0 < int(text) <= _MOST_SECONDS * 1000):
        raise BadCall(f"{TIMEOUT} is a number of milliseconds, {_MOST_SECONDS * 1000:g} at most")
    return int(text) / 1000


def answer_to(error: NebulaError) -> Answer:
    """The answer to a call that has failed."""
    if isinstance(error, RemoteError):
        return _remote(error)
    if isinstance(error, NoResponder):
        return problem(HTTPStatus.NOT_FOUND, "no-responder", "nobody serves there", retryable=True)
    if isinstance(error, CallTimeout):
        return problem(HTTPStatus.GATEWAY_TIMEOUT, "timeout", "no answer came in time")
    if isinstance(error, Rejected):
        return _rejected(error)
    return problem(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "the broker takes no calls of yours now")


def _remote(error: RemoteError) -> Answer:
    fields = {"code": error.code, "message": error.message, "retryable": error.retryable}
    if error.details is not None:
        fields["details"] = error.details
    status = status_of(error.code, retryable=error.retryable)
    return Answer(status, dump_json(fields) + b"\n", JSON_TYPE)


def _rejected(error: Rejected) -> Answer:
    if error.verdict == REJECTED_UNAUTHORISED:
        return problem(HTTPStatus.FORBIDDEN, "not-allowed", "you may not call this service")
    if error.verdict == REJECTED_FULL:
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, "busy", "the service's queue is full")
    return problem(HTTPStatus.BAD_REQUEST, "bad-request", f"the broker has refused the call: {error.verdict}")
