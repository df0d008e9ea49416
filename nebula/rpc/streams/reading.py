"""Reading a stream: the caller's side, in flight and as an iterator (G.stream)."""

# Two halves, and why. `Incoming` belongs to the loop: the inbox hands it messages, and it talks back
# (credit, signs of life, cancel). `Stream` belongs to the reader. When a reader breaks out of `async for`
# only the garbage collector tells us, so none of our tables may hold a `Stream`: the inbox and the `Stream`
# hold `Incoming`, and `Stream.__del__` ends it.
#
# Deadlines: one number, `Incoming.deadline`, tells the inbox's sweep when to look next. It is the earliest
# of three: the end of the stream, the service's silence of 30 s, and our own sign of life after 10 s.
#
# Credit goes to an address that arrives in a header, with our own rights. A forged one could make us send
# to any queue that we may write to, so only the queue of an instance is believed (`Brand.service_of`).

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from nebula import headers as names
from nebula.errors import CallTimeout, LocalProtocolError, NebulaError, Rejected, RemoteError
from nebula.rpc.errors import NotAStream, StreamBroken, UnexpectedReply, VerbError, as_declared
from nebula.rpc.streams.credit import Inflow
from nebula.rpc.wire.brokers import NEBULA, Brand
from nebula.rpc.wire.digits import whole_number
from nebula.rpc.wire.envelope import JSON_TYPE, parse
from nebula.rpc.wire.replies import read_checked, read_value
from nebula.stomp.client.messages import Message
from nebula.waiter import Waiter, new_waiter

T_co = TypeVar("T_co", covariant=True)

DEFAULT_CREDIT: Final = 256

# A service tells every ten seconds that it is there, see `Responder`; one that has said nothing for this long
# is gone, or has all hands full.
_SILENCE: Final = 30.0

# Seconds between our own signs of life, while the reader does not get on.
_BEAT: Final = 10.0


class Line(Protocol):
    """What a stream speaks through: the inbox of its connection."""

    def post(self, destination: str, body: bytes, headers: Mapping[str, str]) -> None:
        """SEND at once."""

    def leave(self, number: str, *, cancel_at: str | None, seconds: float | None) -> None:
        """Expect nothing more, and cancel the request at this queue of the service, unless it is None."""


class Incoming:
    """One stream in flight: the messages that have come, and what is said back. Belongs to the loop's thread.

    Args:
        destination: where the request goes.
        credit: items that may be under way or unread.
        timeout: seconds for all of it, or None.
        brand: of the broker.

    Attributes:
        destination: where the request went.
        deadline: when it wants to be looked at, see `look`.
        awaited: what its inbox reads on for, see `StompClient.keep_reading`.
        on_end: called once when its reading has ended, with its error, or None; it must not raise.
    """

    def __init__(self, destination: str, credit: int, timeout: float | None, brand: Brand = NEBULA) -> None:
        now = monotonic()
        self.destination = destination
        self.awaited = ""
        self.on_end: Callable[[BaseException | None], None] | None = None
        self.flow = Inflow(credit)
        self._brand = brand
        self.is_dropped = False
        self._until = math.inf if timeout is None else now + timeout
        self._messages: deque[Message] = deque()
        self._arrival: Waiter[None] | None = None
        self._error: NebulaError | None = None
        self._is_complete = False
        self._line: Line | None = None
        self._number = ""
        self._peer: str | None = None
        self._has_items = False
        self._heard_at = self._told_at = now
        self.deadline = self._next_look()

    def begin(self, line: Line, number: str) -> None:
        """The request was sent, with this id."""
        self._line, self._number = line, number

    # --- for the inbox ---

    def set(self, message: Message) -> None:
        """Take a message of this stream."""
        if self._is_complete or self._error is not None:
            return
        self._heard_at = monotonic()
        headers = message.headers
        if headers.get(names.STREAM) != "true":
            self._is_complete = True  # one reply: an error, or all of it
        else:
            try:
                seq = headers.get(names.STREAM_SEQ)
                self._meet(headers.get(names.REPLY_TO), has_items=seq is not None)
                if seq is None:
                    # A sign of life. Only its sender knows how long it accepts our silence: it gets one, too.
                    self._tell_more(monotonic())
                    return
                is_end = headers.get(names.STREAM_END) == "true"
                self.flow.arrive(_number(seq), is_end=is_end)
            except StreamBroken as error:
                self.fail(error)
                return
            self._is_complete = is_end
        self._messages.append(message)
        self._wake()

    def _meet(self, peer: str | None, *, has_items: bool) -> None:
        """Learn where credit goes: to the sender of items; until there are items, to the last sender."""
        # The instance that spoke first may have died before it sent any, and the broker given the request to
        # another one.
        if self._has_items or not peer:
            return
        self._has_items = has_items
        if peer == self._peer:
            return
        # A stranger may have written it, and we send there with our own rights. Not only of the service of
        # the request's queue: a service may have queues of other names.
        if self._brand.service_of(peer) is None:
            raise StreamBroken(f"{self.destination} wants credit at {peer[:100]!r}, which is no instance's")
        self._peer = peer

    def fail(self, error: Exception) -> None:
        """End it with an error, after what has come."""
        if self._error is None and not self._is_complete:
            assert isinstance(error, NebulaError)
            self._error = error
            self.deadline = math.inf
            self._wake()

    def lose(self, error: NebulaError) -> None:
        """Its connection is at its end: the service is told, if that can be."""
        self._leave()
        self.fail(error)

    def look(self, now: float) -> None:
        """Its deadline is over: see what that means, and set the next one."""
        if self.is_dropped:
            self.close()
        elif now >= self._until:
            self.fail(CallTimeout(f"{self.destination}: the time for the stream is over"))
        elif self._is_complete or self._error is not None:
            self.deadline = math.inf
        elif now - self._heard_at >= _SILENCE:
            self.fail(CallTimeout(f"{self.destination} has said nothing for {_SILENCE:g} s"))
        else:
            if now - self._told_at >= _BEAT:
                self._tell_more(now)
            self.deadline = self._next_look()

    def _next_look(self) -> float:
        return min(self._until, self._heard_at + _SILENCE, self._told_at + _BEAT)

    # --- for the reader ---

    async def next(self) -> Message:
        """The next message, once it is there. Not after the last one.

        Raises:
            NebulaError: the stream is over before its end.
        """
        while not self._messages:
            if self._error is not None:
                raise self._error
            self._arrival = new_waiter()
            await self._arrival.wait()
        return self._messages.popleft()

    def consume(self, count: int) -> None:
        """The reader is done with that many items, and comes for more."""
        more = self.flow.consume(count)
        if more and not self._is_complete and self._error is None:
            self._told_at = monotonic()
            self._tell(more)

    def close(self, error: BaseException | None = None) -> None:
        """It is read no more: if it is not complete the service is told. Idempotent; raises nothing.

        Args:
            error: that ended its reading, for `on_end`.
        """
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end(error or self._error)
        self._leave()
        self.fail(LocalProtocolError("the stream was closed"))
        self._messages.clear()

    def _leave(self) -> None:
        line, self._line = self._line, None
        if line is None:
            return
        # A service or broker that refused the request runs nothing.
        is_open = not self._is_complete and not isinstance(self._error, Rejected)
        seconds = None if self._until == math.inf else max(0.0, self._until - monotonic())
        line.leave(self._number, cancel_at=self._service_queue() if is_open else None, seconds=seconds)

    def _service_queue(self) -> str:
        # An instance's own name has its service's in it, whatever queue the request went to.
        return self._peer if self._peer is not None and self._peer.startswith("/queue/") else self.destination

    def _tell_more(self, now: float) -> None:
        """Give what credit is owed; also none, which says that we are there."""
        self._told_at = now
        self._tell(self.flow.give())

    def _tell(self, more: int) -> None:
        if self._peer is None or self._line is None:
            return
        headers = {"content-type": JSON_TYPE, names.CREDIT: str(more), names.IN_REPLY_TO: self._number}
        # A connection that has ended ends the stream by itself.
        with suppress(NebulaError):
            self._line.post(self._peer, b"{}", headers)

    def _wake(self) -> None:
        if self._arrival is not None:
            self._arrival.set(None)


class Stream(AsyncIterator[T_co], Generic[T_co]):
    """What a verb yields, as it comes: `async for item in client.stream(…)`.

    Made by `Client.stream`. The request goes out when the first item is asked for. A slow reader slows the
    handler: no more items are in flight or unread than credit was given for. Leaving the loop (by `break`, by
    an error, or cancelled) tells the service that the stream is no longer read, and its handler is closed.
    That happens at once if nothing else refers to the stream; `async with client.stream(…) as items:` makes
    sure.

    It is read once, by one task at a time.

    Raises:
        RemoteError: the handler raised an error, or the request was refused; the items before it were
            delivered.
        Rejected: no service listens there; the broker refused the request.
        CallTimeout: the time for the stream is over, or its service has fallen silent.
        StreamBroken: items are missing, because the instance that sent them is gone.
        UnexpectedReply: the reply is no stream, or items are not of the type asked for.
        ConnectionLost, ServerError: the connection ended.
    """

    def __init__(
        self,
        open: Callable[[], Awaitable[Incoming]],  # noqa: A002
        read: Callable[[Any], Any] | None,
        errors: Sequence[type[VerbError]] = (),
        explain: Callable[[Rejected], Awaitable[None]] | None = None,
    ) -> None:
        self._open = open
        self._explain = explain
        self._read = read
        self._errors = errors
        self._incoming: Incoming | None = None
        self._thread = threading.get_ident()
        self._is_over = False
        # What was read and not given yet; what was given and is being worked on; and how much that is.
        self._items: Sequence[T_co] = ()
        self._ready: Iterator[T_co] = iter(())
        self._given = 0

    async def __anext__(self) -> T_co:
        for item in self._ready:
            return item
        batch = await self.next_batch()
        if not batch:
            raise StopAsyncIteration
        self._ready = iter(batch)
        return next(self._ready)

    async def next_batch(self) -> Sequence[T_co]:
        """The items that have arrived, at least one, for readers that take several at once; empty at the end.

        Asking for the next batch means that the previous one has been handled.
        """
        try:
            while not self._items and not self._is_over:
                await self._fetch()
        except RemoteError as error:
            self._close(error)
            raise as_declared(error, self._errors) from None
        except Rejected as error:
            self._close(error)
            if self._explain is not None:
                await self._explain(error)
            raise
        except BaseException as error:
            self._close(error)
            raise
        incoming = self._incoming
        if incoming is None or not self._items:
            await self.aclose()
            return ()
        self._consume(incoming)
        step = incoming.flow.step
        batch, self._items = self._items[:step], self._items[step:]
        self._given = len(batch)
        return batch

    def _consume(self, incoming: Incoming) -> None:
        given, self._given = self._given, 0
        if given:
            incoming.consume(given)

    async def _fetch(self) -> None:
        incoming = self._incoming
        if incoming is None:
            incoming = self._incoming = await self._open()
        # Before anything is waited for: it may be all the credit there is.
        self._consume(incoming)
        message = await incoming.next()
        headers = message.headers
        if headers.get(names.STREAM) != "true":
            # An error is raised here; and a service that knows nothing of streams replies with all of it.
            items = read_value(message, None)
            self._is_over = True
        else:
            envelope = parse(headers, message.body)
            items = envelope.parameters
            self._is_over = headers.get(names.STREAM_END) == "true"
        is_stream = headers.get(names.STREAM) == "true"
        if not isinstance(items, list):
            said = f"{incoming.destination} answered with one value: use client.call(…)"
            raise UnexpectedReply(said) if is_stream else NotAStream(said, items)
        if is_stream:
            incoming.flow.read(_number(headers[names.STREAM_SEQ]), len(items))
        self._items = items if self._read is None else read_checked(items, self._read)

    async def aclose(self) -> None:
        """Stop reading. Idempotent."""
        self._close(None)

    def _close(self, error: BaseException | None) -> None:
        self._is_over = True
        self._items, self._ready = (), iter(())
        if self._incoming is not None:
            self._incoming.close(error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        # A loop that is left drops it, there and then. The collector may come by on any thread: then the
        # loop's own finds it when it looks next.
        incoming = self._incoming
        if incoming is None:
            return
        if threading.get_ident() == self._thread:
            incoming.close()
        else:
            incoming.is_dropped = True


def _number(text: str) -> int:
    number = whole_number(text, _MOST_DIGITS)
    if number is None:
        raise StreamBroken(f"{text[:20]!r} is no number of an item")
    return number


_MOST_DIGITS: Final = 15
