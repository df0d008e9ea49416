"""`POST /call/SERVICE/VERB`: calls and streams over HTTP.

Each principal that calls has its own client here, so a call has that principal's rights and carries it as
`sender`, as a call by STOMP does. Clients are kept for a while: an inbox is made once, not for each call.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qs, unquote

import anyio
from pydantic_core import from_json

from nebula.broker.server.http_posts import JSON_TYPE, Posted, Response, Streamed, problem, too_large
from nebula.errors import ConnectionLost, NebulaError, NoResponder, Rejected
from nebula.headers import TIMEOUT
from nebula.host.http_streams import Form, HttpStream, form_of
from nebula.host.pipe import AppEnd, join
from nebula.logs import get_logger
from nebula.milliseconds import seconds_of
from nebula.rpc.client.client import Client
from nebula.rpc.client.open_stream import new_stream
from nebula.rpc.http_problems import problem_of
from nebula.rpc.streams.reading import Stream
from nebula.rpc.wire.envelope import ascii_json, dump_json, encode

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from nebula.broker.assembly import Assembly
    from nebula.broker.server.server import Server
    from nebula.stomp.client.link import Link

PATH: Final = "/call/"

_T = TypeVar("_T")

_log = get_logger("nebula.host")

# Clients get a link, so the address in the environment, which may be another broker's, is not used.
_NO_ADDRESS: Final = "stomp://localhost"

_DEFAULT_SECONDS: Final = 30.0
# A waiting caller holds a connection, and their number is limited.
_MOST_SECONDS: Final = 300.0
_MOST_CHARACTERS: Final = 255

# Items in flight or unread per stream: a stalled reader may hold this many of the largest.
_CREDIT: Final = 64

_STOPPING: Final = problem(HTTPStatus.SERVICE_UNAVAILABLE, "stopping", "calls are not taken now")

# Time to keep an unused client: its inbox costs a connection and a subscription.
_IDLE_SECONDS: Final = 60.0
_SWEEP_SECONDS: Final = 10.0
_MOST_IDLE: Final = 64
# Time for replies and acknowledgements that are still under way when a client leaves.
_LEAVING_SECONDS: Final = 0.5

# The rest of a request's body, without parameters and verb.
_ENVELOPE_BYTES: Final = 64
MOST_FIELDS: Final = 20


@dataclass(frozen=True, slots=True)
class Call:
    """What a request asks for.

    Attributes:
        service: its name.
        verb: its name.
        parameters: as JSON in ASCII; None: no parameters.
        seconds: the time limit; may be infinite.
    """

    service: str
    verb: str
    parameters: bytes | None
    seconds: float


class BadCall(Exception):
    """It cannot be read; says why."""


class _TooLarge(Exception):
    """The body is so large that the broker would close the connection, which other callers share."""


class Stopping(Exception):
    """Calls are not taken now."""


def http_calls(assembly: Assembly) -> list[HttpCalls]:
    """The app that serves HTTP calls, if a listener takes them. Call this before the broker starts."""
    if not assembly.takes_calls:
        return []
    # Handlers of requests run on the broker's loop, but calls run on the loop of this app, so that a slow
    # JSON body does not delay the broker.
    calls = HttpCalls(assembly.server)
    assembly.server.posts[PATH] = calls.reply
    # A reload may have removed the principal of a client that is kept.
    assembly.server.renewals.append(calls.renew)
    return [calls]


class HttpCalls:
    """Replies to posted calls. Host it with the services; a listener calls its `reply`.

    Args:
        server: the broker, not started yet or started.

    Attributes:
        name: its own; no principal has it.
    """

    def __init__(self, server: Server) -> None:
        self.name = "http"
        self._server = server
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: TaskGroup | None = None
        self._callers: dict[str, _Caller] = {}
        self._streams: set[HttpStream] = set()
        self._calls = 0
        # A call notes the number of reloads at its begin; if it differs at the end, the client is dropped.
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
        """Answer until cancelled; then calls under way have `grace` seconds, and streams are ended."""
        self._loop = asyncio.get_running_loop()
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            if started is not None:
                started.set()
            try:
                # This task only sweeps; calls are tasks of the loop (`run_coroutine_threadsafe`).
                while True:
                    await anyio.sleep(_SWEEP_SECONDS)
                    self._part_from_idle()
            finally:
                # First, so that no further call begins.
                self._is_stopping = True
                for stream in self._streams:
                    stream.end_with(_STOPPING)
                # Shielded from the cancellation that ends this task: calls that were sent may have had an
                # effect, so their replies are waited for.
                with anyio.CancelScope(shield=True), anyio.move_on_after(grace):
                    while self._calls:
                        # A new event, because anyio's cannot be cleared.
                        self._idle = anyio.Event()
                        await self._idle.wait()
                for caller in self._callers.values():
                    # Their tasks are in the task group, which waits for them.
                    caller.leave()

    async def reply(self, posted: Posted) -> Response | Streamed:
        """Reply to a request, on the broker's loop. Cancellation withdraws the call."""
        form = form_of(posted.accept)
        try:
            if form is None:
                return await self.on_loop(partial(self._reply, posted, self._reloads))
            return await self._stream_of(posted, form).begin()
        except Stopping:
            return _STOPPING

    async def on_loop(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run work on the loop of the calls, from the broker's loop; cancellation ends it.

        Raises:
            Stopping: calls are not taken now.
        """
        # Cancelling this future cancels the task on the other loop, which withdraws the call.
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._running_loop()))

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._is_stopping:
            raise Stopping
        return self._loop

    def _stream_of(self, posted: Posted, form: Form) -> HttpStream:
        return HttpStream(
            self._running_loop(), form, partial(self._opened, posted, self._reloads), self._problem_of
        )

    def renew(self) -> None:
        """Files were read again: drop the clients, because their principals may no longer be valid.

        Runs on the broker's loop. The listener ends calls in progress; their clients end with them.
        """
        self._reloads += 1
        # At the end of the program our loop may already be closed.
        with contextlib.suppress(RuntimeError):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._drop_idle_callers)

    def _drop_idle_callers(self) -> None:
        # `_asking` drops the others after their last call.
        for caller in [each for each in self._callers.values() if not each.calls]:
            self._drop_caller(caller)

    async def _reply(self, posted: Posted, reloads: int) -> Response:
        # Counted before anything can wait, or `run` could end in between.
        try:
            with self._counted():
                call = self._read(posted, _DEFAULT_SECONDS)
                async with self._asking(posted.principal, reloads) as client:
                    value = await client.ask(call)
                return Response(HTTPStatus.OK, dump_json(value) + b"\n", JSON_TYPE)
        except (BadCall, _TooLarge, NebulaError) as error:
            return self._problem_of(error)

    @asynccontextmanager
    async def _opened(self, posted: Posted, reloads: int, reader: HttpStream) -> AsyncIterator[Stream[Any]]:
        """The requested stream, not started; closed with the block."""
        with self._counted():
            # Streams have no time limit unless the request sets one.
            call = self._read(posted, math.inf)
            # Before the check, so that a stop in between finds it in the set.
            self._streams.add(reader)
            if self._is_stopping:
                reader.end_with(_STOPPING)
            try:
                async with self._asking(posted.principal, reloads) as client, client.open(call) as stream:
                    yield stream
            finally:
                self._streams.discard(reader)

    def _problem_of(self, error: Exception) -> Response:
        match error:
            case BadCall():
                return problem(HTTPStatus.BAD_REQUEST, "bad-request", str(error))
            case _TooLarge():
                return too_large(self._server.limits.max_body_bytes)
            case NebulaError():
                return failure_reply(error)
            case _:
                _log.error("stream failed", exc_info=error)
                return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "the log says why")

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count work that `run` waits for when it stops."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    def _read(self, posted: Posted, seconds: float) -> Call:
        call = read_call(posted, seconds)
        # As JSON: a character such as an emoji takes twelve bytes (two `\u` escapes).
        most = self._server.limits.max_body_bytes - _ENVELOPE_BYTES - len(dump_json(call.verb))
        if call.parameters is not None and len(call.parameters) > most:
            raise _TooLarge
        return call

    async def ask(self, principal: str, call: Call) -> Any:
        """Call as a principal, on the loop of the calls; counts as a call in flight.

        Raises:
            NebulaError: as `Client.call`.
        """
        with self._counted():
            async with self._asking(principal, self._reloads) as client:
                return await client.ask(call)

    @asynccontextmanager
    async def _asking(self, principal: str, reloads: int) -> AsyncIterator[_Client]:
        """The client of a principal, kept at least as long as the block."""
        # No `await` between finding the caller and counting the call, so it cannot be dropped in between.
        caller = self._caller_of(principal)
        caller.calls += 1
        try:
            yield await caller.client()
        finally:
            caller.calls -= 1
            # The sweep compares this time.
            caller.since = time.monotonic()
            # A principal that was admitted before a reload may no longer be valid.
            if caller.is_lost or (reloads != self._reloads and not caller.calls):
                self._drop_caller(caller)

    def _caller_of(self, principal: str) -> _Caller:
        caller = self._callers.get(principal)
        if caller is None:
            assert self._tasks is not None
            # Only idle ones make room, so there may be more than this while their principals call.
            if len(self._callers) >= _MOST_IDLE:
                self._part_from_oldest()
            caller = self._callers[principal] = _Caller(self._server, principal)
            self._tasks.start_soon(caller.run, name=f"calls of {principal}")
        return caller

    def _part_from_idle(self) -> None:
        until = time.monotonic() - _IDLE_SECONDS
        for caller in [each for each in self._callers.values() if not each.calls and each.since <= until]:
            self._drop_caller(caller)

    def _part_from_oldest(self) -> None:
        idle = [each for each in self._callers.values() if not each.calls]
        if idle:
            self._drop_caller(min(idle, key=lambda each: each.since))

    def _drop_caller(self, caller: _Caller) -> None:
        # A new one may have replaced a lost one.
        if self._callers.get(caller.principal) is caller:
            del self._callers[caller.principal]
        caller.leave()


# Each principal has a client, so that the broker checks its rights and stamps its name, see
# docs/decisions/0025.
class _Client(Client):
    """Hands parameters on as they came."""

    async def ask(self, call: Call) -> Any:
        """As `call` does."""
        # The service validates the parameters; here they are known to be JSON.
        body = encode(JSON_TYPE, call.verb, call.parameters)
        destination = f"/queue/{call.service}"
        return await self._calls.ask(call.verb, destination, body, call.seconds, self._rules, None)

    def open(self, call: Call) -> Stream[Any]:
        """As `stream` does."""
        body = encode(JSON_TYPE, call.verb, call.parameters)
        destination = f"/queue/{call.service}"
        return new_stream(
            self._calls, call.verb, destination, body, timeout=call.seconds, credit=_CREDIT, read=None
        )


class _Caller:
    """The client of one principal, and the task that keeps it connected.

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
        """Its connection is lost: the next call needs another one."""
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
        """Disconnect."""
        self._leaving.set()

    async def run(self) -> None:
        """Be connected until `leave`. After cancellation, calls in progress may still end."""
        # Shielded, because at a stop the calls in progress end first; then `leave` ends this.
        with anyio.CancelScope(shield=True) as scope:
            try:
                async with _Client(_NO_ADDRESS, link=self._open_link) as client:
                    self._client = client
                    self._ready.set()
                    await self._leaving.wait()
                    # A broker that does not reply must not delay the disconnect.
                    scope.deadline = anyio.current_time() + _LEAVING_SECONDS
            except NebulaError as error:
                self._failure = error
            except Exception:
                # One caller's bug must not end the others', and the broker with them.
                _log.exception("caller failed", principal=self.principal)
                self._failure = ConnectionLost("the log says why")
            finally:
                # Calls that wait for the client get the failure.
                self._ready.set()

    async def _open_link(self) -> AppEnd:
        return join(self._server, self.principal)


def read_call(posted: Posted, seconds: float = _DEFAULT_SECONDS) -> Call:
    """What a request asks for.

    Args:
        posted: the request.
        seconds: its time limit, unless it sets one.

    Raises:
        BadCall: it cannot be read.
    """
    names = [unquote(name) for name in posted.path.removeprefix(PATH).split("/")]
    # `unquote` first: `is_name` has to see an escaped slash.
    if len(names) != 2 or not all(is_name(name) for name in names):
        raise BadCall(f"post to {PATH}SERVICE/VERB")
    return Call(names[0], names[1], _parameters_of(posted.body), timeout_of(posted, seconds))


def _parameters_of(body: bytes) -> bytes | None:
    if not body:
        return None
    try:
        # Only checked, not kept: a tree of small lists is 25 times as large as its text.
        from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise BadCall(f"the body is not JSON: {error}") from error
    return ascii_json(body)


def is_name(text: str) -> bool:
    # A slash would make a deeper name of `/queue/SERVICE`, with rights of its own.
    return 0 < len(text) <= _MOST_CHARACTERS and text.isprintable() and "/" not in text


def timeout_of(posted: Posted, default: float = _DEFAULT_SECONDS) -> float:
    """The time limit of a call: the header, else the query, in milliseconds as on STOMP's wire."""
    text = posted.timeout
    try:
        text = text or parse_qs(posted.query, max_num_fields=MOST_FIELDS).get(TIMEOUT, [""])[-1]
    except ValueError as error:
        raise BadCall(f"a query may have {MOST_FIELDS} fields") from error
    if not text:
        return default
    seconds = seconds_of(text)
    if seconds is None or not 0 < seconds <= _MOST_SECONDS:
        raise BadCall(f"{TIMEOUT} is a number of milliseconds, {_MOST_SECONDS * 1000:g} at most")
    return seconds


def failure_reply(error: NebulaError) -> Response:
    """The reply to a call that failed."""
    told = problem_of(error)
    if isinstance(error, Rejected) and error.near is not None:
        told = replace(told, message=f"{told.message}; did you mean {error.near!r}?")
    # The path names the service, so a missing one is 404.
    status = HTTPStatus.NOT_FOUND if isinstance(error, NoResponder) else told.status
    return Response(status, dump_json(told.body) + b"\n", JSON_TYPE)
