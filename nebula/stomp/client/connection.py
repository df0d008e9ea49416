"""A client's connection: the protocol joined to a link, with pending receipts, subscriptions and waiters.

It is the link's receiver, and everything runs on the loop's thread. Each frame is handled before the call
returns; only methods that wait for a reply are coroutines. When the connection ends, every waiter gets the
reason.
"""

# Flow control, and the deadlock that it must avoid. Messages wait in subscriptions until a task takes them,
# so beyond `max_buffered_bytes` the link is not read, TCP's window closes, and the server waits. But a task
# that waits for a RECEIPT may be the very task that takes the messages, and the RECEIPT is behind them in
# the same byte stream: with the link paused both would wait for ever. So while a receipt or reply is
# awaited the bound is four times as large. Reading resumes at half of the bound, not at the first byte
# below it: otherwise each message that is taken would pause and resume the link.
#
# While the link is paused the server's beats are not read either, and its silence proves nothing: the
# heartbeat is paused with it.
#
# The end of a connection happens once, in `end`. Everything that waits is in one of three tables:
# `_waiters` (tasks; each gets an exception of its own, since one that is raised twice collects both
# tracebacks), `_receipts` and `_awaited` (callbacks, which are dropped: `on_lost` tells their owners).

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, TypeVar

import anyio

from nebula.errors import ConnectionLost, LocalProtocolError, NebulaError, Refused, ServerError
from nebula.headers import (
    DURABLE,
    EAGER,
    IGNORED,
    MESSAGE_IDS,
    RECEIPT_ON_REJECTION,
    REMOVED,
    RESULT,
    SNAPSHOT,
)
from nebula.logs import get_logger
from nebula.loop_calls import CallSoon, call_soon
from nebula.stomp.client.link import Link
from nebula.stomp.client.messages import (
    AckMode,
    Message,
    PushSubscription,
    Receipt,
    SnapshotFilter,
    SubscribeOptions,
)
from nebula.stomp.client.send_heads import SendHeads, Shared
from nebula.stomp.client_protocol import ClientProtocol
from nebula.stomp.frames import Frame
from nebula.stomp.heartbeat import BEAT
from nebula.waiter import Waiter, new_waiter

T = TypeVar("T")

log = get_logger(__name__)

# The loop may have been busy for longer than the peer's margin, with the peer's beats unread in the socket.
# They have been read a moment later, so only a second look decides.
_SECOND_LOOK = 0.05

# The factor by which more than `max_buffered_bytes` may wait while a reply is awaited. Brokers send less than
# this before it.
_WHILE_AWAITING = 4

# What the `server` of Nebula's broker begins with.
_OWN_SERVER = "nebula/"

# Messages that one ACK names. With their replies it fills a piece of `AsyncioLink`.
_MOST_ACKS = 15


class ClientConnection:
    """One connection of a client.

    Args:
        protocol: a new one.
        link: an open one, not started.
        max_buffered_bytes: beyond it the link is not read, see `count_buffered`.
        on_lost: called once when the connection ends after CONNECTED and not by us.

    Attributes:
        ended: set when nothing can be sent or awaited any more.
        link_ended: set when the link has ended, too.
    """

    def __init__(
        self,
        protocol: ClientProtocol,
        link: Link,
        *,
        max_buffered_bytes: int,
        on_lost: Callable[[NebulaError], None],
    ) -> None:
        self.protocol = protocol
        self.ended = anyio.Event()
        self.link_ended = anyio.Event()
        self._link = link
        self._on_lost = on_lost
        self._connected: Waiter[None] = new_waiter()
        self._is_wanted = False  # connected, and not leaving
        self._heads = SendHeads(protocol.dialect)
        self._last_id = 0
        self._subscriptions: dict[str, PushSubscription] = {}
        self._receipts: dict[str, Callable[[Receipt], None]] = {}
        # Receipts that are awaited until `forget`; such a RECEIPT comes only if something was rejected.
        self._awaited: dict[str, Callable[[Receipt], None]] = {}
        self._waiters: set[Waiter[Any]] = set()
        # Messages whose ACK is written at the end of this turn of the loop: all of one subscription.
        self._acked: list[Message] = []
        self._call_soon: CallSoon | None = None  # where an ACK may name several (G.message-ids)
        self._end_reason = ""
        self._server_error: ServerError | None = None
        self._max_buffered_bytes = max_buffered_bytes
        self._buffered_bytes = 0
        self._is_reading = True

    # --- sending ---

    def next_id(self) -> str:
        """An id for a receipt, a subscription or a transaction, unique on this connection."""
        self._last_id += 1
        return str(self._last_id)

    def write(self, data: bytes) -> None:
        """Hand bytes to the link."""
        if self._acked:
            self._write_acks()
        self._link.write(data)
        self.protocol.heartbeat.last_sent = monotonic()

    def post(self, destination: str, body: bytes, headers: Mapping[str, str]) -> None:
        """SEND at once, see `StompClient.post`."""
        self.check_alive()
        self.write(self.protocol.send(destination, body, headers))

    def post_shared(
        self,
        destination: str,
        body: bytes,
        shared: Shared,
        varying: Mapping[str, str],
        acked: Message | None = None,
    ) -> None:
        """SEND at once, for frames of which there are many.

        Args:
            destination: where to.
            body: of the frame.
            shared: headers, see `SendHeads.send`.
            varying: headers, as well.
            acked: a message of an open subscription; its ACK follows this frame, at the end of this turn of
                the loop at the latest.

        Raises:
            LocalProtocolError: SEND is not legal now.
            ConnectionLost: the connection has ended.
        """
        if self._end_reason or not self._is_wanted:
            self.check_alive()
            raise LocalProtocolError("SEND outside of a session")
        data = self._heads.send(destination, body, shared, varying)
        if acked is None:
            self.write(data)
        elif self._call_soon is None:
            self.write(data + self.protocol.ack(acked.headers))
        else:
            self._write_before_ack(data, acked, self._call_soon)

    def _write_before_ack(self, data: bytes, acked: Message, call_soon: CallSoon) -> None:
        """Write a frame, and with others of this turn acknowledge a message."""
        if self._acked and self._acked[0].subscription is not acked.subscription:
            self._write_acks()
        if not self._acked:
            # Before the link is written to, so that the ACK belongs to what it sends at the end of the turn.
            call_soon(self._write_acks)
        self._link.write(data)
        self._acked.append(acked)
        if len(self._acked) == _MOST_ACKS:
            self._write_acks()

    def _write_acks(self) -> None:
        if self._acked:
            acked, self._acked = self._acked, []
            others = ",".join([message.id for message in acked[1:]])
            named = {MESSAGE_IDS: others} if others else None
            self.write(self.protocol.ack(acked[0].headers, named))

    def post_with_receipt(
        self,
        destination: str,
        body: bytes,
        headers: Mapping[str, str],
        on_receipt: Callable[[Receipt], None],
    ) -> str:
        """SEND at once, see `StompClient.post_with_receipt`."""
        self.check_alive()
        receipt = self.next_id()
        data = self.protocol.send(destination, body, headers, receipt=receipt)
        self._expect(receipt, on_receipt, until_forgotten=RECEIPT_ON_REJECTION in headers)
        self.write(data)
        return receipt

    def keep_reading(self, on_receipt: Callable[[Receipt], None] = lambda _: None) -> str:
        """See `StompClient.keep_reading`.

        Args:
            on_receipt: is called with the RECEIPT, if the result is the `receipt` of a frame.
        """
        self._last_id += 1
        name = str(self._last_id)
        self._awaited[name] = on_receipt
        if not self._is_reading:
            self._choose_reading()
        return name

    def forget(self, receipt: str) -> None:
        """See `StompClient.forget`."""
        self._awaited.pop(receipt, None)

    async def ask(self, receipt: str, data: bytes, timeout: float | None) -> Receipt:
        """Write a frame with this receipt id, and wait for its RECEIPT.

        Raises:
            TimeoutError: it did not come within `timeout` seconds.
        """
        waiter: Waiter[Receipt] = new_waiter()
        self._expect(receipt, waiter.set)
        try:
            self.write(data)
            if timeout is None:
                return await self.wait(waiter)
            with anyio.fail_after(timeout):
                return await self.wait(waiter)
        finally:
            self._receipts.pop(receipt, None)

    async def drain(self) -> None:
        """Wait while the link holds too much unsent."""
        await self._link.drain()
        self.check_alive()

    async def listen(
        self,
        destination: str,
        on_message: Callable[[Message], None],
        options: SubscribeOptions,
        *,
        on_snapshot: Callable[[], None] | None = None,
    ) -> PushSubscription:
        """SUBSCRIBE, see `StompClient.listen`."""
        self.check_alive()
        ack = options.get("ack", AckMode.AUTO)
        durable = options.get("durable")
        name = self.next_id() if durable is None else self._free_name(durable)
        subscription = PushSubscription(
            self, name, destination, ack, on_message, is_durable=durable is not None
        )
        if options.get("eager"):
            subscription.on_message = SnapshotFilter(subscription, on_snapshot)
        receipt = self.next_id() if options.get("receipt", True) else None
        data = self.protocol.subscribe(name, destination, ack, _extensions(options), receipt=receipt)
        self._subscriptions[name] = subscription
        if receipt is None:
            self.write(data)
            return subscription
        try:
            reply = await self.ask(receipt, data, options.get("timeout"))
        except TimeoutError:
            subscription.close()
            raise Refused("unanswered", f"SUBSCRIBE to {destination}") from None
        except BaseException:
            subscription.close()
            raise
        if reply.headers.get(RESULT) == IGNORED:
            # The server has no such subscription, so it gets no UNSUBSCRIBE.
            subscription.is_closed = True
            del self._subscriptions[subscription.id]
            raise Refused(IGNORED, f"SUBSCRIBE to {destination}")
        return subscription

    def _free_name(self, durable: str) -> str:
        # Numbers are ours: under one of them another subscription would end a paused one (D.32).
        if not durable or durable.isdecimal():
            raise LocalProtocolError(
                f"a durable subscription needs a name that is no number, not {durable!r}"
            )
        if durable in self._subscriptions:
            raise LocalProtocolError(f"the durable subscription {durable!r} is open on this connection")
        return durable

    def unsubscribe(self, subscription: PushSubscription) -> None:
        """UNSUBSCRIBE, unless the connection has ended."""
        if self._subscriptions.pop(subscription.id, None) and self.protocol.is_connected:
            self.write(self.protocol.unsubscribe(subscription.id))

    def stop_delivery(self, subscription: PushSubscription) -> None:
        """Ask the server to send no more, unless the connection has ended; see `PushSubscription.drain`."""
        if not self.ended.is_set():
            self.write(self.protocol.drain(subscription.id))

    async def leave(self, subscription: PushSubscription, wanted: str, timeout: float | None) -> None:
        """UNSUBSCRIBE a durable subscription and wait for the RECEIPT; see `PushSubscription.pause`."""
        subscription.is_closed = True
        self._subscriptions.pop(subscription.id, None)
        self.check_alive()
        receipt = self.next_id()
        data = self.protocol.unsubscribe(subscription.id, removes=wanted == REMOVED, receipt=receipt)
        reply = await self.ask(receipt, data, timeout)
        # Other brokers have no `result`.
        if (result := reply.headers.get(RESULT, wanted)) != wanted:
            raise Refused(
                result, f"the durable subscription {subscription.id!r} to {subscription.destination}"
            )

    def ack(
        self,
        message: Message,
        *,
        transaction: str | None = None,
        on_receipt: Callable[[Receipt], None] | None = None,
    ) -> None:
        """ACK in the version's form; with a receipt if `on_receipt` is given."""
        self.check_alive()
        receipt = None if on_receipt is None else self.next_id()
        data = self.protocol.ack(message.headers, transaction=transaction, receipt=receipt)
        if receipt is not None and on_receipt is not None:
            self._expect(receipt, on_receipt)
        self.write(data)

    def nack(self, message: Message, headers: Mapping[str, str], *, transaction: str | None = None) -> None:
        """NACK in the version's form."""
        self.check_alive()
        self.write(self.protocol.nack(message.headers, headers, transaction=transaction))

    # --- waiting ---

    async def wait(self, waiter: Waiter[T]) -> T:
        """Wait for a waiter, or for the end of the connection.

        Raises:
            ServerError: the server sent ERROR meanwhile.
            ConnectionLost: the connection ended meanwhile, or had ended before.
        """
        self.check_alive()
        self._waiters.add(waiter)
        try:
            return await waiter.wait()
        finally:
            self._waiters.discard(waiter)

    def check_alive(self) -> None:
        """Raise `ConnectionLost` if the connection has ended."""
        if self._end_reason:
            lost = ConnectionLost(self._end_reason)
            # mypyc drops the cause of `raise … from …`.
            lost.__cause__ = self._server_error
            raise lost

    def count_buffered(self, change: int) -> None:
        """Count bytes that wait in a subscription for a task that takes them.

        The link is not read while more than `max_buffered_bytes` wait, until only half of that is left. While
        a receipt or a reply is awaited it may be four times as much: the task that awaits it may be the one
        that takes the messages, and the receipt comes after the messages that are under way.
        """
        self._buffered_bytes += change
        self._choose_reading()

    def _choose_reading(self) -> None:
        if self._end_reason:
            return
        bound = self._max_buffered_bytes
        if self._receipts or self._awaited:
            bound *= _WHILE_AWAITING
        if self._is_reading:
            if self._buffered_bytes > bound:
                self._is_reading = False
                self.protocol.heartbeat.pause()
                self._link.pause_reading()
        elif self._buffered_bytes <= bound // 2:
            self._is_reading = True
            self.protocol.heartbeat.resume(monotonic())
            self._link.resume_reading()

    def _expect(
        self, receipt: str, on_receipt: Callable[[Receipt], None], *, until_forgotten: bool = False
    ) -> None:
        (self._awaited if until_forgotten else self._receipts)[receipt] = on_receipt
        if not self._is_reading:
            self._choose_reading()

    # --- the life of the connection ---

    async def open(
        self, *, host: str, login: str | None, passcode: str | None, client_id: str | None = None
    ) -> None:
        """CONNECT and wait for CONNECTED. The link has been started."""
        self.check_alive()
        self.write(self.protocol.connect(host=host, login=login, passcode=passcode, client_id=client_id))
        await self.wait(self._connected)
        if self.protocol.dialect.ack_by_id and (self.protocol.server or "").startswith(_OWN_SERVER):
            self._call_soon = call_soon()

    async def disconnect(self, timeout: float) -> None:
        """DISCONNECT, wait for its RECEIPT for `timeout` seconds at most, end."""
        self._is_wanted = False
        if self.protocol.is_connected:
            self._write_acks()
            receipt = self.next_id()
            try:
                await self.ask(receipt, self.protocol.disconnect(receipt), timeout)
            except ServerError as error:
                # No caller waits for the ERROR any more, but the last messages that were posted may be its
                # reason.
                log.warning("broker refused at disconnect", message=error.message)
            except (ConnectionLost, TimeoutError):
                pass  # STOMP 1.2, "Connection Lingering": a client can miss the last RECEIPT.
        self.end("the client has disconnected")

    def end(self, reason: str) -> None:
        """Close the link, and fail all waiters. Idempotent."""
        if self._end_reason:
            return
        if self.protocol.is_connected and not self.link_ended.is_set():
            self._write_acks()
        self._acked.clear()
        self._end_reason = reason
        self.protocol.end()
        self.ended.set()
        self._receipts.clear()
        self._awaited.clear()
        self._link.close()
        for waiter in list(self._waiters):
            waiter.fail(self._loss())

    def _loss(self) -> NebulaError:
        # A new one for each waiter: an exception that is raised twice collects both tracebacks.
        if self._server_error is not None:
            return ServerError(self._server_error.message, self._server_error.detail)
        return ConnectionLost(self._end_reason)

    def _lose(self, reason: str) -> None:
        if not self._end_reason:
            self.end(reason)
            if self._is_wanted:
                try:
                    self._on_lost(self._loss())
                except Exception:
                    # The link's own clean-up must still run.
                    log.exception("loss callback failed")

    async def keep_alive(self) -> None:
        """Send beats, and end the connection when the server is silent for too long. Runs until the end."""
        heartbeat = self.protocol.heartbeat
        while not self.ended.is_set():
            if heartbeat.is_dead(monotonic()):
                await anyio.sleep(_SECOND_LOOK)
                if heartbeat.is_dead(monotonic()):
                    self._lose(f"the broker sent nothing for {2 * heartbeat.receive_interval:g} s")
                    return
            now = monotonic()
            if heartbeat.beat_due(now):
                self.write(BEAT)
            with anyio.move_on_after(heartbeat.next_deadline(now) - now):
                await self.ended.wait()

    # --- the link's receiver ---

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        for frame in () if self._end_reason else self.protocol.receive(data, monotonic()):
            if self._end_reason:
                return  # Frames after the one that ended the connection do not count.
            command = frame.command
            if command == "MESSAGE":
                self._deliver(frame)
            elif command == "RECEIPT":
                self._settle(frame)
            elif command == "CONNECTED":
                self._is_wanted = True
                self._heads = SendHeads(self.protocol.dialect)
                self._connected.set(None)
            else:
                self._fail(frame)
        if self.protocol.failure is not None:
            self._accuse(str(self.protocol.failure))

    def connection_lost(self, error: Exception | None) -> None:
        """The link ended."""
        self.link_ended.set()
        self._lose("the broker closed the connection" if error is None else f"the connection broke: {error}")

    def _accuse(self, fault: str) -> None:
        self._lose(f"the broker broke the protocol: {fault}")

    def _deliver(self, frame: Frame) -> None:
        headers = frame.headers
        name = headers.get("subscription")
        if name is not None:
            subscription = self._subscriptions.get(name)
        else:
            subscription = self._subscription_at(headers["destination"])
        if subscription is None:
            return  # It crossed our UNSUBSCRIBE (D.12), and the server has put it back.
        if (
            subscription.ack_mode is not AckMode.AUTO
            and self.protocol.dialect.ack_by_id
            and "ack" not in headers
        ):
            # STOMP 1.2, "MESSAGE": it MUST be there. Without it the message could never be acked.
            self._accuse("MESSAGE without ack")
            return
        try:
            subscription.on_message(Message(headers, frame.body, subscription))
        except Exception:
            # A bug of one function must not lose the next frames, which are for other subscriptions.
            log.exception("subscriber failed", destination=subscription.destination)

    def _subscription_at(self, destination: str) -> PushSubscription | None:
        # STOMP 1.0 servers may leave `subscription` out. Linear, but such clients have few.
        return next((each for each in self._subscriptions.values() if each.destination == destination), None)

    def _settle(self, frame: Frame) -> None:
        name = frame.headers["receipt-id"]
        on_receipt = self._receipts.pop(name, None) or self._awaited.pop(name, None)
        if on_receipt is None:
            # The caller has given up, or had this RECEIPT before. But a server that invents receipt ids may
            # never send those that were asked for.
            if not self._was_issued(name):
                self._accuse(f"RECEIPT for {name[:20]!r}, which was not asked for")
            return
        try:
            on_receipt(Receipt(frame.headers))
        except Exception:
            log.exception("receipt callback failed", receipt=name)

    def _was_issued(self, name: str) -> bool:
        # Our ids are numbers, and none is larger than the last one.
        return name.isascii() and name.isdigit() and len(name) < 20 and 0 < int(name) <= self._last_id

    def _fail(self, frame: Frame) -> None:
        message = frame.headers.get("message", "ERROR")
        self._server_error = ServerError(message, frame.body.decode(errors="replace"))
        self._lose(f"the broker ended the connection: {message}")


def _extensions(options: SubscribeOptions) -> dict[str, str]:
    # A misspelt `durable` would lose messages without a word.
    if unknown := options.keys() - SubscribeOptions.__annotations__.keys():
        raise TypeError(f"subscriptions have no option {', '.join(sorted(unknown))}")
    headers = dict(options.get("headers") or {})
    if options.get("durable") is not None:
        headers[DURABLE] = "true"
    if options.get("eager"):
        headers |= {EAGER: "true", SNAPSHOT: "true"}
    return headers
