"""Where a client's answers come in: one queue of its own, and the calls that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain, count
from time import monotonic
from typing import TYPE_CHECKING
from uuid import uuid4

import anyio

from nebula.errors import CallTimeout, NebulaError, NoResponder, Rejected, fresh
from nebula.headers import (
    ACCEPTED,
    IN_REPLY_TO,
    INBOX_PREFIX,
    PERSISTENT,
    RECEIPT_ON_REJECTION,
    REJECTED_NO_CONSUMER,
    REPLY_ID,
    REPLY_TO,
)
from nebula.rpc.client.cancel import withdraw
from nebula.rpc.client.shared_replies import SharedReplies
from nebula.rpc.wire.brokers import brand_of
from nebula.stomp.client import AckMode, Message, Receipt, StompClient
from nebula.waiter import Waiter, new_waiter, waiter_maker

if TYPE_CHECKING:
    from nebula.rpc.streams.reading import Incoming

# A call may wait that much longer than its deadline, so that calls whose time ends together end in one
# sweep.
_GRAIN = 0.005


class _Call:
    """One request in flight."""

    __slots__ = ("deadline", "destination", "receipt", "waiter")

    def __init__(self, destination: str, deadline: float, waiter: Waiter[Message]) -> None:
        self.destination = destination
        self.deadline = deadline
        self.waiter = waiter
        self.receipt = ""

    def on_receipt(self, receipt: Receipt) -> None:
        """The broker has judged the request."""
        if receipt.verdict != ACCEPTED:
            # Does nothing if the answer was first.
            self.waiter.fail(_refusal(receipt.verdict, self.destination))


class Inbox:
    """Gives each request an id, and each answer to the request it names.

    The inbox is read with automatic acks. It is exclusive, so no other reader could be given what was not
    acked; and with the connection, which alone can lose an answer, all its calls fail anyway.

    No task, scope or timer belongs to a call: all deadlines are swept by one task, in `run`.

    Args:
        client: connected.
        reply_to: a queue shared with other requesters, instead of an inbox of our own.

    Attributes:
        brand: how this broker is spoken to.
        is_nebula: the broker is ours and knows our extensions.
        withdrawn: calls that were given up, of which the service was told.
        late: answers that came when nobody waited for them any more.
    """

    def __init__(self, client: StompClient, reply_to: str | None = None) -> None:
        self.brand = brand_of(client.server)
        self.is_nebula = client.is_nebula
        self._client = client
        self._shared = None if reply_to is None else SharedReplies(client, reply_to, self._take)
        self._destination = reply_to or f"{INBOX_PREFIX}{uuid4()}"
        self._reply_to = reply_to or self.brand.reply_to(self._destination)
        # Unique beyond this connection: a reply queue may be shared, and services keep ids in logs.
        self._id_prefix = f"{uuid4().hex}-"
        self._numbers = count(1)
        self._calls: dict[str, _Call] = {}
        self._streams: dict[str, Incoming] = {}
        self._new_waiter: Callable[[], Waiter[Message]] = waiter_maker()
        # When the sweeping task looks next. A call with an earlier deadline wakes it; with like timeouts
        # that is the first call only.
        self._next_sweep = float("inf")
        self._earlier: Waiter[None] | None = None
        self._loss: NebulaError | None = None
        self.withdrawn = 0
        self.late = 0

    async def open(self, timeout: float) -> None:
        """Begin to listen. A shared queue is listened to by `run`, while it is needed.

        Args:
            timeout: seconds to wait for the broker's answer.

        Raises:
            Refused: the broker gives us no inbox, or does not say so in time.
            ConnectionLost: the connection ended.
        """
        if self._shared is not None:
            return
        headers = dict(self.brand.inbox_headers)
        await self._client.listen(
            self._destination, self._on_answer, ack=AckMode.AUTO, headers=headers, timeout=timeout
        )

    @property
    def in_flight(self) -> int:
        """Calls and streams that wait."""
        return len(self._calls) + len(self._streams)

    async def ask(
        self,
        destination: str,
        body: bytes,
        headers: dict[str, str],
        *,
        timeout: float,
        wants_verdict: bool,
    ) -> Message:
        """Send a request and wait for its answer.

        If the caller is cancelled the service is told that nobody waits any more, unless the request is
        `persistent`.

        Args:
            destination: of the service.
            body: of the request.
            headers: of the request; reply address and id are added to them.
            timeout: seconds.
            wants_verdict: ask the broker whether it took the request, so that a rejection ends the call at
                once. The answer counts even if it is first.

        Raises:
            CallTimeout: no answer in time.
            NoResponder: nobody listens there (only if `headers` has `require-consumers`).
            Rejected: the broker refused the request.
            ConnectionLost, ServerError: the connection ended first.
        """
        if self._loss is not None:
            raise fresh(self._loss)
        number = f"{self._id_prefix}{next(self._numbers)}"
        if wants_verdict:
            headers[RECEIPT_ON_REJECTION] = "true"
        headers[REPLY_TO] = self._reply_to
        headers[REPLY_ID] = number  # the last one: what differs from request to request is read apart
        call = _Call(destination, monotonic() + timeout, self._new_waiter())
        self._calls[number] = call
        if self._shared is not None:
            self._shared.want()
        try:
            # Read on until the answer is there: the caller may be who would take what comes before it.
            if wants_verdict:
                call.receipt = self._client.post_with_receipt(destination, body, headers, call.on_receipt)
            else:
                self._client.post(destination, body, headers)
                call.receipt = self._client.keep_reading()
            if call.deadline < self._next_sweep:
                self._sweep_earlier(call.deadline)
            return await call.waiter.wait()
        except (Exception, GeneratorExit):
            raise
        except BaseException:  # cancelled, by whichever loop
            # What is stored is wanted whoever waits for the early answer.
            if PERSISTENT not in headers:
                self._withdraw(call, number)
            raise
        finally:
            self._calls.pop(number, None)
            self._client.forget(call.receipt)
            self._rest()

    def begin_stream(self, stream: Incoming, body: bytes, headers: dict[str, str]) -> None:
        """Send a request whose answer comes in parts; `stream` is told of all that becomes of it.

        Raises:
            ConnectionLost, ServerError: the connection has ended.
        """
        if self._loss is not None:
            raise fresh(self._loss)
        number = f"{self._id_prefix}{next(self._numbers)}"
        headers[REPLY_TO] = self._reply_to
        headers[REPLY_ID] = number
        if self.is_nebula:
            # One receipt for a whole stream costs little.
            told = partial(self._on_stream_receipt, stream)
            self._client.post_with_receipt(stream.destination, body, headers, told)
        else:
            self._client.post(stream.destination, body, headers)
        self._streams[number] = stream
        # As for a call: its items and signs of life come behind what its reader has to take yet.
        stream.awaited = self._client.keep_reading()
        stream.begin(self, number)
        if self._shared is not None:
            self._shared.want()
        if stream.deadline < self._next_sweep:
            self._sweep_earlier(stream.deadline)

    def post(self, destination: str, body: bytes, headers: Mapping[str, str]) -> None:
        """SEND at once, see `StompClient.post`: what a stream says back."""
        self._client.post(destination, body, headers)

    def leave(self, number: str, *, withdraw_from: str | None, seconds: float | None) -> None:
        """Expect nothing more of a stream; tell the service, where it is named, that nobody reads it.

        Args:
            number: the stream's id.
            withdraw_from: a queue of the service, or None.
            seconds: until the stream would have ended anyway, None for never.
        """
        if (stream := self._streams.pop(number, None)) is not None:
            self._client.forget(stream.awaited)
        self._rest()
        if withdraw_from is not None:
            withdraw(self._client, withdraw_from, self._reply_to, number, seconds)

    def _rest(self) -> None:
        if self._shared is not None and not self._calls and not self._streams:
            self._shared.rest()

    def _withdraw(self, call: _Call, number: str) -> None:
        left = call.deadline - monotonic()
        # Else the service knows by itself that it is over. Loops end a scope a little early.
        if left > _GRAIN:
            self.withdrawn += 1
            withdraw(self._client, call.destination, self._reply_to, number, left)

    def lose(self, error: NebulaError) -> None:
        """Fail every call in flight, and every later one: the connection ended."""
        self._loss = error
        for call in self._calls.values():
            call.waiter.fail(fresh(error))
        for stream in list(self._streams.values()):
            stream.lose(fresh(error))

    async def run(self) -> None:
        """Do what has to be done beside the calls, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._sweep, name="call deadlines")
            if self._shared is not None:
                try:
                    await self._shared.run()
                except NebulaError as error:
                    self.lose(error)

    async def _sweep(self) -> None:
        """End the calls whose time is over. One task for all of them."""
        while True:
            self._earlier = new_waiter()
            # Deadlines only ever end with the sweep, so the next look is at the earliest of them.
            waiting: Iterable[_Call | Incoming] = chain(self._calls.values(), self._streams.values())
            self._next_sweep = min((one.deadline for one in waiting), default=float("inf"))
            with anyio.move_on_after(max(self._next_sweep - monotonic(), 0) + _GRAIN):
                await self._earlier.wait()
            now = monotonic()
            for call in self._calls.values():
                if call.deadline <= now:
                    call.waiter.fail(CallTimeout(f"{call.destination} did not answer in time"))
            # One that nobody holds any more leaves the table.
            for stream in [one for one in self._streams.values() if one.deadline <= now]:
                stream.look(now)

    def _sweep_earlier(self, deadline: float) -> None:
        self._next_sweep = deadline
        if self._earlier is not None:
            self._earlier.set(None)

    def _on_answer(self, message: Message) -> None:
        call = self._calls.get(message.headers.get(IN_REPLY_TO, ""))
        # Not popped here: the call does that, also when it gives up.
        if call is not None:
            call.waiter.set(message)
        elif (stream := self._streams.get(message.headers.get(IN_REPLY_TO, ""))) is not None:
            stream.set(message)
        else:
            self.late += 1

    def _take(self, message: Message) -> bool:
        """Take an answer from a shared queue if it is ours, also if nobody waits for it any more."""
        is_ours = message.headers.get(IN_REPLY_TO, "").startswith(self._id_prefix)
        if is_ours:
            self._on_answer(message)
        return is_ours

    def _on_stream_receipt(self, stream: Incoming, receipt: Receipt) -> None:
        verdict = receipt.verdict
        if verdict != ACCEPTED:
            stream.fail(_refusal(verdict, stream.destination))


def _refusal(verdict: str, destination: str) -> Rejected:
    kind = NoResponder if verdict == REJECTED_NO_CONSUMER else Rejected
    return kind(verdict, destination)
