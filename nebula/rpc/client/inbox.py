"""The inbox of a connection: requests out, replies in, deadlines and cancels.

One queue takes the replies to all requests. Each request has an id; `in-reply-to` of a reply names it. The
broker deletes the queue with the connection, and all calls in flight fail then.

No task, scope or timer belongs to a call: that would cost more than the call itself. One task sweeps all
deadlines. It sleeps until the earliest; a call with an earlier deadline wakes it, which with like timeouts
happens only for the first.

A caller that is cancelled publishes a cancel, so a request which still waits at the service never starts.
"""

# Every call comes through here, which is why it is written as it is:
#
# - A call is an entry in a dict and a waiter. An anyio scope or a timer for each costs more than parsing
#   its reply; instead one task sleeps until the earliest deadline (`_sweep`). Equal timeouts come in the
#   order of their calls, so only the first call of a burst wakes the task.
# - Headers are a new dict in a fixed order. `neb-reply-id` is last, because the broker keeps blocks of
#   headers that it has parsed before, and compares all but the line that differs (the head cache).
# - A RECEIPT is asked for only on rejection: an accepted request costs no extra frame, and a refused one
#   fails in one round trip instead of after its timeout.
# - A reply does not remove its call. The call does that itself, on every way out; a reply to a call that
#   has given up is then counted as late.

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain
from math import inf
from time import monotonic
from typing import Final
from uuid import uuid4

import anyio
import anyio.lowlevel

from nebula.errors import CallTimeout, LocalProtocolError, NebulaError, NoResponder, Rejected, fresh
from nebula.headers import (
    ACCEPTED,
    IN_REPLY_TO,
    INBOX_PREFIX,
    PERSISTENT,
    RECEIPT_ON_REJECTION,
    REJECTED_NO_CONSUMER,
    REPLY_ID,
    REPLY_TO,
    REQUIRE_CONSUMERS,
    RESERVED_QUEUE_PREFIX,
    TIMEOUT,
)
from nebula.milliseconds import Milliseconds
from nebula.rpc.client.shared_replies import SharedReplies
from nebula.rpc.streams.reading import Incoming
from nebula.rpc.wire.avro_bodies import AvroBody
from nebula.rpc.wire.brokers import brand_of
from nebula.rpc.wire.cancel import cancel_topic
from nebula.rpc.wire.deadlines import whole_milliseconds
from nebula.rpc.wire.envelope import AVRO_TYPE, JSON_TYPE, dump_json
from nebula.stomp.client import AckMode, Message, Receipt, StompClient
from nebula.stomp.client.send_heads import Shared
from nebula.waiter import Waiter, new_waiter, waiter_maker

__all__ = ["Inbox", "publish_cancel"]

# A call may wait this much longer than its deadline, so that calls whose time ends together end in one sweep.
_GRAIN: Final = 0.005

_QUEUE: Final = "/queue/"

# A cancel is no request, and has no header of a request.
_CANCEL_HEADERS: Final = {"content-type": JSON_TYPE}


class _Call:
    """One request in flight. It has no `__init__`, which would cost each call: `ask` sets the attributes."""

    __slots__ = ("deadline", "destination", "receipt", "waiter")

    destination: str
    deadline: float
    waiter: Waiter[Message]
    receipt: str

    def on_receipt(self, receipt: Receipt) -> None:
        """The broker has accepted or refused the request."""
        if receipt.verdict != ACCEPTED:
            # Does nothing if the reply came first.
            self.waiter.fail(_refusal(receipt.verdict, self.destination))


# docs/decisions/0005 compares this with a shared reply queue and with a queue for each call.
class Inbox:
    """Sends requests, and hands each reply to the request that it names.

    Replies are read with automatic acks. The inbox is exclusive, so no other reader could be given what was
    not acked; and with the connection, the only place to lose a reply, all its calls fail anyway.

    Args:
        client: connected.
        reply_to: a queue shared with other requesters, instead of an inbox of its own.

    Attributes:
        brand: the headers of this broker's brand.
        is_nebula: the broker is Nebula and knows its extensions.
        cancelled: how many calls were cancelled, of which the service was told.
        late: how many replies came when no call waited for them any more.
    """

    def __init__(self, client: StompClient, reply_to: str | None = None) -> None:
        self.brand = brand_of(client.server)
        self.is_nebula = client.is_nebula
        self._client = client
        # The connection itself: each request spares the way through the client.
        self._connection = client.connection
        self._more_expiry = self.brand.more_expiry
        self._shared = None if reply_to is None else SharedReplies(client, reply_to, self._take)
        self._destination = reply_to or f"{INBOX_PREFIX}{uuid4()}"
        self._reply_to = reply_to or self.brand.reply_to(self._destination)
        # What all requests of a kind have in common. Other brokers do not know receipts on rejection, and
        # their receipts have no verdict.
        needs: Shared = ((REQUIRE_CONSUMERS, "true"),) if self.is_nebula else ()
        self._of_stored: Shared = ((REPLY_TO, self._reply_to),)
        if self.is_nebula:
            self._of_stored = ((RECEIPT_ON_REJECTION, "true"), *self._of_stored)
        self._of_json: Shared = (("content-type", JSON_TYPE), *needs, *self._of_stored)
        self._of_avro: Shared = (("content-type", AVRO_TYPE), *needs, *self._of_stored)
        # Unique beyond this connection: a reply queue may be shared, and services keep ids in logs.
        self._id_prefix = f"{uuid4().hex}-"
        self._calls: dict[str, _Call] = {}
        self._streams: dict[str, Incoming] = {}
        self._new_waiter: Callable[[], Waiter[Message]] = waiter_maker()
        # When the sweeping task looks next.
        self._next_sweep = inf
        self._earlier: Waiter[None] | None = None
        self._loss: NebulaError | None = None
        self.cancelled = 0
        self.late = 0

    async def open(self, timeout: float) -> None:
        """Subscribe to the inbox. A shared queue is read by `run`, while a call waits.

        Args:
            timeout: seconds to wait for the broker's reply.

        Raises:
            Refused: the broker refuses the inbox, or does not reply in time.
            ConnectionLost: the connection ended.
        """
        if self._shared is not None:
            return
        headers = dict(self.brand.inbox_headers)
        await self._client.listen(
            self._destination, self._on_reply, ack=AckMode.AUTO, headers=headers, timeout=timeout
        )

    @property
    def in_flight(self) -> int:
        """Calls and streams that wait."""
        return len(self._calls) + len(self._streams)

    async def ask(
        self,
        destination: str,
        body: bytes,
        seconds: float,
        extra: Mapping[str, str] | None = None,
        *,
        is_stored: bool = False,
    ) -> Message:
        """Send a request and wait for its reply.

        A caller that is cancelled tells the service, unless the request is `persistent`.

        On Nebula the broker tells when it does not take the request, which ends the call at once. The reply
        counts even if it comes before that.

        Args:
            destination: of the service.
            body: of the request.
            seconds: to wait.
            extra: more headers.
            is_stored: the broker keeps the request until a service comes, and `extra` has all its headers;
                else it expires with the call, and is refused where no service listens.

        Raises:
            CallTimeout: no reply in time.
            NoResponder: no service listens there.
            Rejected: the broker refused the request.
            ConnectionLost, ServerError: the connection ended first.
        """
        if self._loss is not None:
            raise fresh(self._loss)
        if seconds == -inf and not is_stored:
            await anyio.lowlevel.checkpoint_if_cancelled()  # a scope that is over sends nothing
        call = _Call()
        call.destination = destination
        call.deadline = monotonic() + seconds
        call.waiter = self._new_waiter()
        # Read on until the reply is there: messages before it may wait for this very caller to take them.
        call.receipt = self._connection.keep_reading(call.on_receipt)
        number = f"{self._id_prefix}{call.receipt}"
        self._calls[number] = call
        if self._shared is not None:
            self._shared.want()
        try:
            varying = self._varying(None if is_stored else seconds, extra)
            if self.is_nebula:
                varying["receipt"] = call.receipt
            varying[REPLY_ID] = number
            shared = self._of_avro if type(body) is AvroBody else self._of_json
            self._connection.post_shared(destination, body, self._of_stored if is_stored else shared, varying)
            if call.deadline < self._next_sweep:
                self._sweep_earlier(call.deadline)
            return await call.waiter.wait()
        except (Exception, GeneratorExit):
            raise
        except BaseException:  # cancelled, by asyncio or trio
            # A stored request is wanted even if no caller waits for its early reply.
            if extra is None or PERSISTENT not in extra:
                self._cancel(call, number)
            raise
        finally:
            self._calls.pop(number, None)
            self._connection.forget(call.receipt)
            if self._shared is not None:
                self._rest()

    def _varying(self, seconds: float | None, extra: Mapping[str, str] | None) -> dict[str, str]:
        """The headers of a request that differ from call to call, but its id.

        Args:
            seconds: to wait for the reply, of a request that expires with its call; None: it is stored. A
                call is never `persistent`: it does not outlive the broker.
            extra: more headers, which replace those of a call.
        """
        varying: dict[str, str] = {}
        if seconds is not None:
            # `whole_milliseconds`, and one function call less for usual times.
            milliseconds: Milliseconds = (
                int(seconds * 1000)  # type: ignore[assignment]
                if 1 <= seconds <= 86400
                else whole_milliseconds(seconds)
            )
            varying[TIMEOUT] = str(milliseconds)
            if self._more_expiry is not None:
                varying.update(self._more_expiry(milliseconds))
        if extra is not None:
            if "receipt" in extra:
                raise LocalProtocolError("the client asks for receipts itself")
            varying.update(extra)
        return varying

    def begin_stream(self, stream: Incoming, body: bytes, headers: dict[str, str]) -> None:
        """Send a request whose reply comes in parts; `stream` takes them, and every error.

        Raises:
            ConnectionLost, ServerError: the connection has ended.
        """
        if self._loss is not None:
            raise fresh(self._loss)
        number = f"{self._id_prefix}{self._connection.next_id()}"
        headers[REPLY_TO] = self._reply_to
        headers[REPLY_ID] = number
        if self.is_nebula:
            # One receipt for a whole stream costs little.
            told = partial(self._on_stream_receipt, stream)
            self._connection.post_with_receipt(stream.destination, body, headers, told)
        else:
            self._connection.post(stream.destination, body, headers)
        self._streams[number] = stream
        # As for a call: items may come behind messages that the stream's reader has yet to take.
        stream.awaited = self._connection.keep_reading()
        stream.begin(self, number)
        if self._shared is not None:
            self._shared.want()
        if stream.deadline < self._next_sweep:
            self._sweep_earlier(stream.deadline)

    def post(self, destination: str, body: bytes, headers: Mapping[str, str]) -> None:
        """SEND at once, see `StompClient.post`: credit for a stream."""
        self._connection.post(destination, body, headers)

    def leave(self, number: str, *, cancel_at: str | None, seconds: float | None) -> None:
        """Drop a stream, and cancel its request.

        Args:
            number: the stream's id.
            cancel_at: a queue of the service; None sends no cancel.
            seconds: until the stream would have ended anyway, None for never.
        """
        if (stream := self._streams.pop(number, None)) is not None:
            self._connection.forget(stream.awaited)
        self._rest()
        if cancel_at is not None:
            publish_cancel(self._client, cancel_at, self._reply_to, number, seconds)

    def _rest(self) -> None:
        if self._shared is not None and not self._calls and not self._streams:
            self._shared.rest()

    def _cancel(self, call: _Call, number: str) -> None:
        left = call.deadline - monotonic()
        # Else the service knows by itself that the time is over. Loops end a scope a little early.
        if left > _GRAIN:
            self.cancelled += 1
            publish_cancel(self._client, call.destination, self._reply_to, number, left)

    def lose(self, error: NebulaError) -> None:
        """Fail every call in flight, and every later one: the connection ended."""
        self._loss = error
        for call in self._calls.values():
            call.waiter.fail(fresh(error))
        for stream in list(self._streams.values()):
            stream.lose(fresh(error))

    async def run(self) -> None:
        """Sweep deadlines and read a shared queue, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._sweep, name="call deadlines")
            if self._shared is not None:
                try:
                    await self._shared.run()
                except NebulaError as error:
                    self.lose(error)

    async def _sweep(self) -> None:
        """End the calls and streams whose time is over."""
        while True:
            self._earlier = new_waiter()
            # Deadlines only ever end with the sweep, so the next look is at the earliest of them.
            waiting: Iterable[_Call | Incoming] = chain(self._calls.values(), self._streams.values())
            self._next_sweep = min((one.deadline for one in waiting), default=inf)
            with anyio.move_on_after(max(self._next_sweep - monotonic(), 0) + _GRAIN):
                await self._earlier.wait()
            now = monotonic()
            for call in self._calls.values():
                if call.deadline <= now:
                    call.waiter.fail(CallTimeout(f"{call.destination} did not answer in time"))
            # A copy: a dropped stream leaves the table.
            for stream in [one for one in self._streams.values() if one.deadline <= now]:
                stream.look(now)

    def _sweep_earlier(self, deadline: float) -> None:
        self._next_sweep = deadline
        if self._earlier is not None:
            self._earlier.set(None)

    def _on_reply(self, message: Message) -> None:
        number = message.headers.get(IN_REPLY_TO, "")
        # Not popped here: the call does that itself, also when it gives up.
        if (call := self._calls.get(number)) is not None:
            call.waiter.set(message)
        elif (stream := self._streams.get(number)) is not None:
            stream.set(message)
        else:
            self.late += 1

    def _take(self, message: Message) -> bool:
        """Take a reply from a shared queue if it is ours, even if its call has given up."""
        is_ours = message.headers.get(IN_REPLY_TO, "").startswith(self._id_prefix)
        if is_ours:
            self._on_reply(message)
        return is_ours

    def _on_stream_receipt(self, stream: Incoming, receipt: Receipt) -> None:
        verdict = receipt.verdict
        if verdict != ACCEPTED:
            stream.fail(_refusal(verdict, stream.destination))


def _refusal(verdict: str, destination: str) -> Rejected:
    kind = NoResponder if verdict == REJECTED_NO_CONSUMER else Rejected
    return kind(verdict, destination)


def publish_cancel(
    client: StompClient, destination: str, reply_to: str, reply_id: str, seconds: float | None
) -> None:
    """Cancel a request: tell its service that no caller waits for the reply (G.cancel).

    At once and without waiting; never raises a `NebulaError`. Nothing is sent where no service would read it:
    the request went to no queue, or to the broker's own verbs, which take no time. A cancel lost with the
    connection is not missed, as the reply is lost with it.

    Args:
        client: connected.
        destination: where the request went, `/queue/<service>` or `/queue/<service>.<instance>`.
        reply_to: the request's `neb-reply-to`.
        reply_id: of the request.
        seconds: until the caller would have given up anyway; None: it never would.
    """
    if not destination.startswith(_QUEUE) or destination.startswith(RESERVED_QUEUE_PREFIX):
        return
    fields: dict[str, str | Milliseconds] = {"reply-to": reply_to, "reply-id": reply_id}
    if seconds is not None:
        fields["timeout"] = whole_milliseconds(seconds)
    with suppress(NebulaError):
        client.post(cancel_topic(destination), dump_json(fields), _CANCEL_HEADERS)
