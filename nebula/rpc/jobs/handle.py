"""Handle of a job: status, end, result and log, as its caller sees them.

A handle keeps nothing open. It goes on over lost connections and over the end of the instance that runs the
job: it listens for statuses and asks where none comes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import fields as dataclass_fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, Unpack, overload

import anyio
from pydantic import ValidationError
from pydantic_core import from_json
from typing_extensions import TypeVar as DefaultTypeVar

from nebula.errors import CallTimeout, JobEnded, NebulaError, NoResponder
from nebula.rpc.contract.job_runner import JobOutput
from nebula.rpc.contract.start_options import StartOptions
from nebula.rpc.errors import UnexpectedReply
from nebula.rpc.jobs.holder import JobClient, JobHolder, Message, is_away
from nebula.rpc.jobs.model.identifiers import unqualified
from nebula.rpc.jobs.model.record import LogLine
from nebula.rpc.jobs.model.states import JobState
from nebula.rpc.jobs.model.status import JobStatus, status_destination
from nebula.rpc.jobs.results.fetching import arrow_of, each_page, require, rows_of
from nebula.rpc.jobs.results.tables import Form
from nebula.rpc.wire.brokers import brand_of
from nebula.rpc.wire.replies import reader_of, reading
from nebula.stomp.client import AckMode

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # nor does it
    import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

__all__ = ["JobHandle"]

_U = TypeVar("_U")
_T = DefaultTypeVar("_T", default=Any)

# Statuses may be lost, with a connection or with the service that would have told them.
_ASK_AFTER: Final = 10.0

# Multiples of that time: other instances look every 20 s for folders that no instance uses any more.
_TAKEN_OVER_AFTER: Final = 6

# Between two requests to a service that is away, or that keeps no caller waiting.
_PAUSE_SECONDS: Final = 1.0

# The longest that a log's follower waits for a line, unless its own timeout is shorter.
_FOLLOW_SECONDS: Final = 20.0

# A job that ends in this time costs one request.
_SHORT_SECONDS: Final = 1.0

# For the reply to that.
_REPLY_SECONDS: Final = 5.0

# Brokers of MaXaM's profile do not answer the SUBSCRIBE that they do not permit.
_LISTEN_SECONDS: Final = 10.0


def _has_moved(told: JobStatus, last: JobStatus) -> bool:
    """Whether a status that was told, perhaps before the last one was asked for, is newer than that."""
    if told.seq != last.seq or told.position is None or last.position is None:
        return told.seq > last.seq
    # A lower position is news; a higher one may be an older status that comes late.
    return told.position < last.position


def _lines(reply: Any) -> list[LogLine]:
    return [LogLine(float(one["at"]), str(one["text"]), int(one["number"])) for one in reply["lines"]]


# A handle has no state on the wire: every method can be repeated on another client with the same id.
# `watch` combines two sources. The job's destination tells changes at once, and may lose them (a service
# that is killed tells nothing); `job.status` tells the truth, and costs a request. So it listens, and
# asks after `ask_after` seconds of silence.
class JobHandle(Generic[_T]):
    """A handle to one job of one service. Handles are cheap: nothing is open except while a method runs.

    Each method may raise what `Client.call` does: `RemoteError` (`not-found`: the service does not know the
    job, or no longer; `not-allowed`), `NoResponder`, `CallTimeout`, `ConnectionLost`; and `UnexpectedReply`
    if the reply does not describe a job.

    Args:
        client: to ask with.
        job: `<service>/<ulid>`.
        via: the queue of the instance that holds the job, if known: one of the service's own queues.
        ask_after: seconds without news after which `watch` asks.
        read: converts the result to what the job's function returns; by default it is plain JSON. Raises
            pydantic's ValidationError.

    Attributes:
        id: `<service>/<ulid>`.
    """

    def __init__(
        self,
        client: JobClient,
        job: str,
        *,
        via: str | None = None,
        ask_after: float = _ASK_AFTER,
        read: Callable[[Any], _T] | None = None,
    ) -> None:
        service, ulid = unqualified(job)
        if service is None:
            raise ValueError(f"{job!r} does not say whose job it is: reports/{ulid} would")
        self.id = job
        self._reader = read
        self._client, self._ask_after = client, ask_after
        self._pause = min(_PAUSE_SECONDS, ask_after)
        self._service, self._ulid = service, ulid
        self._holder = JobHolder(client, job, service, via, self._pause)

    async def status(self) -> JobStatus:
        """The job's current status."""
        return self._read(await self._holder.ask("job.status"))

    def watch(self) -> AsyncGenerator[JobStatus]:
        """The job's current status, and each newer one as it comes; the last one is its end.

        It may skip statuses and never goes back. Two statuses can have the same `seq` while the job waits: a
        new position, or a new reason to wait, is not a new state. The generator ends when the job has ended,
        in any way, and also if the job had ended before. If no status arrives for a while, it asks the
        service, so a lost message does not matter. After the first status it continues while the service is
        away.

        Raises:
            NoResponder: the service is away at first; or the instance that holds the job is, for a minute.
            Refused: the broker does not allow reading the statuses, or does not answer.
        """
        return self._watch(is_known=False)

    async def _watch(self, *, is_known: bool) -> AsyncGenerator[JobStatus]:
        # Subscribed before asked: what happens between the two is seen twice rather than not at all. And
        # with ACKs: a watcher that is slow gets the last status (B.5), not all that there were.
        async with self._events() as events:
            status = await self._first_status(is_known=is_known)
            yield status
            while not status.is_final:
                newer = await self._next(events, status)
                if newer is not None:
                    status = newer
                    yield status

    async def _first_status(self, *, is_known: bool) -> JobStatus:
        if is_known:
            return self._read(await self._holder.ask_again("job.status"))
        until = anyio.current_time() + _TAKEN_OVER_AFTER * self._ask_after
        while True:
            try:
                return await self.status()
            except NoResponder:
                if self._holder.is_home or anyio.current_time() >= until:
                    raise
            # Others know who had it. If that one is dead it is theirs soon, unless it had ended.
            await anyio.sleep(self._pause)

    def _events(self) -> AbstractAsyncContextManager[AsyncIterator[Message]]:
        brand = brand_of(self._client.stomp.server)
        destination = status_destination(brand.job_prefix, self._service, self._ulid)
        is_eager = brand.has_last_values
        return self._client.subscribe(
            destination, ack=AckMode.CLIENT_INDIVIDUAL, eager=is_eager, timeout=_LISTEN_SECONDS
        )

    async def wait(self) -> JobStatus:
        """The job's last status, once it has ended. Use an anyio scope to limit the wait."""
        return await self._wait(is_known=False)

    async def _wait(self, *, is_known: bool) -> JobStatus:
        async for status in self._watch(is_known=is_known):
            last = status
        return last

    @overload
    async def result(self) -> _T: ...
    @overload
    async def result(self, as_: type[_U]) -> _U: ...
    async def result(self, as_: Any = None) -> Any:
        """What the job returned, once it has ended.

        Args:
            as_: the type to read the value as; by default what the function that was started returns, or
                plain JSON for a job that was started by name.

        Returns:
            the value; if it is kept in a file, a `JobOutput` that says where it is and how large (for type
            checkers, write `result(JobOutput)`).

        Raises:
            JobEnded: it ended in a state other than done.
            UnexpectedReply: the value is not of that type.
        """
        fields, is_known = await self._result_of_short_job()
        if fields is None:
            status = await self._wait(is_known=is_known)
            if status.state != JobState.DONE:
                raise self._ended(status)
            fields = await self._holder.ask_again("job.result")
        with reading(f"the result of {self.id}"):
            output = JobOutput(**{one.name: fields.get(one.name) for one in dataclass_fields(JobOutput)})
        if output.path is not None:
            return output
        read = self._reader if as_ is None else reader_of(as_)
        if read is None:
            return output.value
        try:
            return read(output.value)
        except ValidationError as error:
            raise UnexpectedReply(f"the result of {self.id} is not what was asked for: {error}") from None

    async def rows(self) -> AsyncGenerator[dict[str, Any]]:
        """Iterate over the rows of the job's table, or the items of its list, once the job has ended.

        `async for row in job.rows()` yields dicts with Python types (dates, timestamps, Decimals, bytes), in
        the order of the table. Pages are fetched as they are read, even across restarts of the service. Only
        the job's owner can read them.

        Raises:
            JobEnded: the job ended in a state other than done.
            RemoteError: `result-gone`, the files no longer exist; `result-unreadable`, the service has no
                pyarrow; `no-rows`, the result is neither a table nor a list.
        """
        pages = self.pages()
        async with aclosing(pages):
            async for page in pages:
                for row in rows_of(page):
                    yield row

    async def to_arrow(self) -> pa.Table:
        """The job's whole table as an Arrow table in memory, once the job has ended.

        Raises:
            SettingsError: pyarrow is not installed here.
            JobEnded, RemoteError: as `rows`.
        """
        require("pyarrow", "to_arrow()")
        return await arrow_of(self.pages("arrow"))

    async def to_pandas(self) -> pd.DataFrame:
        """The job's whole table as a pandas DataFrame, once the job has ended. Raises as `to_arrow`."""
        for package in ("pandas", "pyarrow"):
            require(package, "to_pandas()")
        return (await self.to_arrow()).to_pandas()

    def pages(self, form: Form = "json") -> AsyncGenerator[dict[str, Any]]:
        """The replies of `job.result` for each page of the table. Raises as `rows`.

        Args:
            form: of each page's `data`.
        """
        return each_page(self._first_page, partial(self._holder.ask_again, "job.result"), form=form)

    async def _first_page(self, wanted: Mapping[str, Any]) -> Any:
        reply = await self._holder.ask("job.result", {**wanted, "timeout": 0.0})
        with reading(f"the result of {self.id}"):
            if "state" not in reply:
                return reply
        status = self._read(reply)
        if not status.is_final:
            status = await self._wait(is_known=True)
        if status.state != JobState.DONE:
            raise self._ended(status)
        return await self._holder.ask_again("job.result", wanted)

    async def _result_of_short_job(self) -> tuple[Any, bool]:
        """What it returned, if it does so soon, or None; and whether the service knew it."""
        # One question that waits at the service: to listen, to ask and to be told is three times as long. Of
        # the instance alone: at the service's own queue it would keep others waiting.
        if self._holder.is_home:
            return None, False
        parameters = {"timeout": _SHORT_SECONDS}
        try:
            reply = await self._holder.ask("job.result", parameters, timeout=_REPLY_SECONDS)
        except CallTimeout:
            # Such a broker reports a queue without a listener: the instance that took the request is gone.
            return None, brand_of(self._client.stomp.server).has_last_values
        except NebulaError:
            return None, False
        with reading(f"the result of {self.id}"):
            if "state" not in reply:
                return reply, True
        if (status := self._read(reply)).is_final:
            raise self._ended(status)
        return None, True

    async def cancel(self) -> JobStatus:
        """End the job. Returns at once, usually with `cancelling`; `wait` returns when the job has ended."""
        return self._read(await self._holder.ask("job.cancel"))

    async def show(self, lines: int = 10) -> dict[str, Any]:
        """All that is known about the job, as JSON; for its owner only.

        `state`, `progress`, `note`, `error` and the other fields of a status; `verb`, `owner`, `parameters`,
        `steps` (number, total, name, started_at, ended_at), `accepted_at`, `started_at`, `ended_at` (seconds
        since the epoch), `result`, `rerun_of` and the end of its `log`.

        Args:
            lines: of the log.
        """
        known: dict[str, Any] = await self._holder.ask("job.show", {"lines": lines})
        return known

    async def rerun(self, **options: Unpack[StartOptions]) -> JobHandle[_T]:
        """Start a new job with the parameters of this one, which are checked again. Returns its handle.

        This job stays as it is. Only its owner may do this, if the verb still allows them.

        Args:
            **options: of the new job; this one's are not taken over.

        Raises:
            RemoteError: the service refused, as `Client.start`; there is no new job.
        """
        # The job's holder has its parameters. A request that no instance takes would be stored.
        await self.status()
        started: JobHandle[_T] = await self._client.start_on(
            self._holder.queue, self._service, "job.rerun", {"job": self.id}, options
        )
        started._reader = self._reader
        return started

    @overload
    def log(self, limit: int = 100) -> Awaitable[list[str]]: ...
    @overload
    def log(self, *, follow: Literal[True], after: int = 0) -> AsyncGenerator[LogLine]: ...
    def log(
        self, limit: int = 100, *, follow: bool = False, after: int = 0
    ) -> Awaitable[list[str]] | AsyncGenerator[LogLine]:
        """The last lines of the job's log, the oldest first; or all of them as they come, to its end.

        With `follow`, each line is returned once, in order, and following continues while the service is
        away. A job keeps its last 1,000 lines: a reader that starts late, or is slow, notices from the line
        numbers that some are gone.

        Args:
            limit: the number of lines, at most 1,000.
            follow: `async for line in job.log(follow=True)`: lines with `number`, `at` and `text`.
            after: the number of the last line that is known already.
        """
        return self._follow_log(after) if follow else self._last_lines(limit)

    async def log_lines(self, limit: int = 100, *, after: int | None = None) -> list[LogLine]:
        """Lines of the job's log, the oldest first: the last ones, or those that follow a number."""
        reply = await self._holder.ask("job.log", {"limit": limit, "after": after})
        with reading(f"the log of {self.id}"):
            return _lines(reply)

    async def _last_lines(self, limit: int) -> list[str]:
        return [line.text for line in await self.log_lines(limit)]

    async def _follow_log(self, after: int) -> AsyncGenerator[LogLine]:
        ask: Callable[..., Awaitable[Any]] = self._holder.ask
        is_over = False
        while not is_over:
            began = anyio.current_time()
            reply = await ask("job.log", {"after": after, "timeout": _FOLLOW_SECONDS})
            ask = self._holder.ask_again
            with reading(f"the log of {self.id}"):
                lines = _lines(reply)
                after, is_over = int(reply["next"]), bool(reply["is_over"])
            for line in lines:
                yield line
            if not (lines or is_over) and anyio.current_time() < began + self._pause:
                # The service limits the number of callers that it keeps waiting.
                await anyio.sleep(self._pause)

    def __repr__(self) -> str:
        return f"JobHandle({self.id!r})"

    async def _next(self, events: AsyncIterator[Message], last: JobStatus) -> JobStatus | None:
        """A newer status than the last one, where there is one."""
        with anyio.move_on_after(self._ask_after):
            async for message in events:
                message.ack()
                # An empty one says that the service is away, not that the job has ended.
                if message.body:
                    with reading(f"a status of {self.id}"):
                        told = JobStatus.from_json(from_json(message.body))
                    return told if _has_moved(told, last) else None
        try:
            asked = await self.status()
        except NebulaError as error:
            if not is_away(error):
                raise
            return None
        return asked if asked.seq > last.seq or (asked.seq == last.seq and asked != last) else None

    def _read(self, status: Any) -> JobStatus:
        with reading(f"the status of {self.id}"):
            return JobStatus.from_json(status)

    def _ended(self, status: JobStatus) -> JobEnded:
        error = status.error
        code, message = (
            (error.code, error.message) if error else (status.state.replace("_", "-"), status.note)
        )
        return JobEnded(self.id, status.state, code=code, message=message)
