"""The server's side of one connection: from frames to requests, and from verdicts to frames.

How to think about it. A connection is OPENING until its CONNECT, then OPEN, then CLOSED. One
table says which frames are legal in each state and who takes them; no other code asks for the
state. A fault of the peer's is answered with one ERROR and the end of the connection; a request
that policy turns down is answered with a RECEIPT that says so, and the connection goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final

from nebula.broker.core import Broker, check_destination
from nebula.broker.encoding import Encoder, error_frame, version_error
from nebula.broker.messages import Head, Verdict
from nebula.broker.requests import (
    read_requeue,
    read_send,
    read_settled,
    read_subscribe,
    refuse_transaction,
    required,
)
from nebula.broker.session import Session
from nebula.broker.subscriptions import Subscription
from nebula.errors import Refused, RemoteProtocolError
from nebula.stomp.codec import FrameParser, serialize
from nebula.stomp.dialects import V1_2, Dialect, negotiate
from nebula.stomp.frames import CLIENT_COMMANDS, Frame, Headers
from nebula.stomp.heartbeat import BEAT, Heartbeat, negotiate_intervals, parse_heart_beat

__all__ = ["HEART_BEAT_MS", "ServerProtocol"]

# What we offer and desire (PROTOCOL D, profile standard).
HEART_BEAT_MS: Final = (1000, 1000)


# Frames cost many times their octets, and those behind the one that has to wait are kept: so few
# octets are made into frames at a time.
_SLICE_BYTES: Final = 32 * 1024


class State(Enum):
    """Where a connection is in its life."""

    OPENING = auto()
    OPEN = auto()
    CLOSED = auto()


class ServerProtocol:
    """The server's end of one connection, without its socket.

    Feed it with `receive_data`; after that, and after any other call, take `take_output` and
    look at `is_held_back` (read no more for now) and `is_finished` (close when all is written).

    Args:
        broker: what the requests go to.
        session: this connection's session, made by `broker.open_session`.
        server: how we name ourselves in CONNECTED.
        now: when the connection was accepted.

    Attributes:
        is_held_back: the peer sends more than there is room for: do not read it until `go_on`.
        is_finished: nothing more is to be read. Write what there is, then close.
        fault: the text of the ERROR that ended the connection, if one did.
    """

    def __init__(self, broker: Broker, session: Session, *, server: str, now: float) -> None:
        self.session = session
        self.is_held_back = False
        self.is_finished = False
        self.fault: str | None = None
        self.version: str | None = None
        self.heartbeat = Heartbeat(0.0, 0.0, now=now)
        self._broker = broker
        self._server = server
        self._parser = FrameParser(CLIENT_COMMANDS, broker.limits.frames)
        self._dialect: Dialect = V1_2  # until CONNECT: an ERROR in it is legible to everyone
        self._encoder = Encoder(self._dialect, broker.incarnation)
        self._handlers = _LEGAL[State.OPENING]
        self._now = now
        self._connect_before = now + broker.limits.connect_timeout
        # Frames and octets that came before we knew that we have to hold the peer back.
        self._parked: list[Frame] = []
        self._unread = b""

    def receive_data(self, data: bytes, now: float) -> None:
        """Take octets as they come. Never raises for what a peer does."""
        self.heartbeat.last_received = now
        if self.is_held_back:
            self._unread += data
        elif not self.is_finished:
            self._now = now
            self._receive(data)

    def go_on(self, now: float, *, in_vain: bool) -> None:
        """Read on after having been held back.

        Args:
            in_vain: there is still no room: the first SEND is refused if it finds none.
        """
        if not self.is_held_back:
            return
        self.is_held_back = False
        self.heartbeat.resume(now)
        self._now = now
        frames, self._parked = self._parked, []
        data, self._unread = self._unread, b""
        try:
            if in_vain:
                self._send(frames.pop(0), may_wait=False)
            self._handle(frames)
        except (RemoteProtocolError, Refused) as error:
            self._fail(error)
        if self.is_held_back:
            self._unread = data
        elif not self.is_finished:
            self._receive(data)

    def receive_eof(self, now: float) -> None:
        """The connection is gone. Settle what it leaves behind."""
        self._now = now
        if self.is_held_back:
            self.is_held_back = False
            with contextlib.suppress(RemoteProtocolError):  # nobody is left to be told
                self._send_parked()
        if not self.is_finished:
            self._finish(lost=True)

    def tick(self, now: float) -> float:
        """Look at the clock: beat, or find the peer silent. Returns when to look again."""
        if self.is_finished:
            return float("inf")
        if self.version is None:
            if now >= self._connect_before:
                self.fail("no CONNECT came in time", now)
            return self._connect_before
        if self.heartbeat.is_dead(now):
            self.fail("no heart-beat came in time", now)
        elif self.heartbeat.beat_due(now):
            # Also where a slow peer's outbox waits: what it has not read yet is as good as a beat.
            self.heartbeat.last_sent = now
            if not self.session.outbox:
                self.session.say(BEAT)
        return self.heartbeat.next_deadline(now)

    def fail(self, message: str, now: float) -> None:
        """End the connection with an ERROR, for a reason that lies outside its frames."""
        if not self.is_finished:
            self._now = now
            self._fail(RemoteProtocolError(message))

    def take_output(self, now: float) -> bytes:
        """The octets to be written now, in order."""
        self.heartbeat.last_sent = now
        return self._encoder.outbox(self.session.take_outbox(), now)

    def _receive(self, data: bytes) -> None:
        for begin in range(0, len(data), _SLICE_BYTES) or (0,):
            if self.is_finished:
                return
            if self.is_held_back:
                self._unread = data[begin:]
                return
            self._receive_slice(data[begin : begin + _SLICE_BYTES])

    def _receive_slice(self, data: bytes) -> None:
        parser = self._parser
        try:
            while frames := parser.feed(data):
                was_opening = self.version is None
                self._handle(frames)
                if not was_opening or self.is_finished:
                    break
                data = b""  # what came behind CONNECT is to be read in the negotiated version
            if parser.failure is not None and not self.is_held_back and not self.is_finished:
                raise parser.failure
        except (RemoteProtocolError, Refused) as error:
            self._fail(error)

    def _handle(self, frames: list[Frame]) -> None:
        handlers = self._handlers
        rest = iter(frames)
        for frame in rest:
            handler = handlers.get(frame.command)
            if handler is None:
                raise RemoteProtocolError(self._why_illegal(frame), receipt=frame.receipt)
            handler(self, frame)
            if self.is_held_back:
                self._parked = [frame, *rest]
                self.heartbeat.pause()
                return
            if self.is_finished:
                return

    def _send_parked(self) -> None:
        """STOMP 1.2, "RECEIPT": what was received should still be processed."""
        for frame in (*self._parked, *self._parser.feed(self._unread)):
            if frame.command == "SEND":
                self._send(frame, may_wait=False)
            elif frame.command == "DISCONNECT" or frame.command not in self._handlers:
                return  # nothing counts behind them

    def _why_illegal(self, frame: Frame) -> str:
        if self.version is None:
            return f"{frame.command} came before CONNECT"
        return f"{frame.command} is not legal in an open session"

    def _fail(self, error: RemoteProtocolError | Refused) -> None:
        # Refused texts are made for peers; so are those of the codec.
        message = error.detail if isinstance(error, Refused) else str(error)
        receipt = error.receipt if isinstance(error, RemoteProtocolError) else None
        self.fault = message
        self.session.say(error_frame(message, receipt, self._dialect))
        self._finish(lost=True)
        # The parser keeps it, and by its traceback it would keep us: only the collector frees such rings.
        error.__traceback__ = error.__context__ = None

    def _finish(self, *, lost: bool) -> None:
        self.is_finished = True
        self.is_held_back = False
        self._parked = []
        self._unread = b""
        self._handlers = _LEGAL[State.CLOSED]
        self._broker.close_session(self.session, self._now, lost=lost)
        # Also who has nothing more to be told is to be closed by the shell.
        self.session.dirty.append(self.session)

    def _say_receipt(self, frame: Frame, result: str | None = None) -> None:
        if frame.receipt is not None:
            self.session.say(self._encoder.receipt(frame.receipt, result))

    # CONNECT, STOMP

    def _connect(self, frame: Frame) -> None:
        fields: Mapping[str, str] = frame.headers
        offered = fields.get("accept-version")
        if offered is None:
            # D.45: by the rules of 1.0, which trims.
            fields = {name.strip(" "): value.strip(" ") for name, value in fields.items()}
        dialect = negotiate(offered)
        if dialect is None:
            self._refuse_version()
            return
        self._dialect = dialect
        self._encoder = Encoder(dialect, self._broker.incarnation)
        self.version = dialect.version
        self._handlers = _LEGAL[State.OPEN]
        self._parser.begin(dialect)
        self._say_connected(fields)

    def _say_connected(self, fields: Mapping[str, str]) -> None:
        reply = {"session": self.session.id}
        if self._dialect.announces_version:
            theirs = parse_heart_beat(fields.get("heart-beat"))
            self.heartbeat = Heartbeat(*negotiate_intervals(HEART_BEAT_MS, theirs), now=self._now)
            reply = {
                "version": self._dialect.version,
                **reply,
                "server": self._server,
                # D.2: also to clients that sent none.
                "heart-beat": f"{HEART_BEAT_MS[0]},{HEART_BEAT_MS[1]}",
            }
        self.session.say(serialize(Frame("CONNECTED", reply), self._dialect))

    def _refuse_version(self) -> None:
        self.fault = "no protocol version in common"
        self.session.say(version_error(self.fault))
        self._finish(lost=True)

    # SEND

    def _send(self, frame: Frame, *, may_wait: bool = True) -> None:
        fields: Headers = frame.headers  # type: ignore[assignment]  # the parser makes Headers
        plan = fields.memo
        if plan is None:
            plan = fields.memo = read_send(frame, self.session.principal)
        if type(plan) is Head:
            verdict = self._broker.send(
                self.session, plan, frame.body, self._now, exchange=frame.exchange, may_wait=may_wait
            )
            if verdict is Verdict.WAIT:
                self.is_held_back = True
                return
        else:
            verdict = plan
        if frame.receipt is not None:
            consumers = self._broker.consumer_count(fields["destination"]) if type(plan) is Head else None
            self.session.say(self._encoder.send_receipt(frame.receipt, verdict, consumers))

    # SUBSCRIBE, UNSUBSCRIBE

    def _subscribe(self, frame: Frame) -> None:
        request = read_subscribe(frame, self._dialect)
        session = self.session
        if request.id in session.subscriptions:
            # STOMP 1.2, "SUBSCRIBE id Header"; D.32. In 1.0 two without an id could not be told apart.
            which = f"id {request.id!r}" if "id" in frame.headers else f"to {request.destination}, unnamed,"
            raise RemoteProtocolError(f"the subscription {which} is there already", receipt=frame.receipt)
        if len(session.subscriptions) >= self._broker.limits.max_subscriptions:
            limit = self._broker.limits.max_subscriptions
            raise RemoteProtocolError(f"more than {limit} subscriptions", receipt=frame.receipt)
        if not self._broker.may_subscribe(request, self._now):
            self._say_receipt(frame, "ignored")
            return
        try:
            check_destination(request.destination, subscribing=True)
            subscription = self._broker.subscribe(session, request)
        except Refused as error:
            raise RemoteProtocolError(error.detail, receipt=frame.receipt) from error
        subscription.label = self._encoder.label(subscription, names_subscription="id" in frame.headers)
        self._say_receipt(frame)
        self._broker.begin(subscription, self._now)

    def _unsubscribe(self, frame: Frame) -> None:
        subscription = self._named_subscription(frame)
        if subscription is None:
            self._say_receipt(frame, "ignored")
            return
        self._broker.unsubscribe(subscription, self._now)
        self._say_receipt(frame)

    def _named_subscription(self, frame: Frame) -> Subscription | None:
        subscriptions = self.session.subscriptions
        if self._dialect.needs_subscription_id or "id" in frame.headers:
            return subscriptions.get(required(frame, "id"))
        destination = required(frame, "destination")
        for subscription in subscriptions.values():
            if subscription.destination.name == destination:
                return subscription
        return None

    # ACK, NACK

    def _ack(self, frame: Frame) -> None:
        target = self._settled(frame)
        is_known = target is not None and self._broker.acknowledge(*target, self._now)
        # D.22: races are normal, an unknown one is no fault.
        self._say_receipt(frame, None if is_known else "ignored")

    def _nack(self, frame: Frame) -> None:
        target = self._settled(frame)
        requeue = read_requeue(frame)
        is_known = target is not None and self._broker.negative_acknowledge(
            *target, self._now, requeue=requeue
        )
        self._say_receipt(frame, None if is_known else "ignored")

    def _settled(self, frame: Frame) -> tuple[Subscription, int] | None:
        """The subscription and number that an ACK or NACK names; None when there is none such."""
        subscription_id, message_id = read_settled(frame, self._dialect)
        number = self._encoder.message_number(message_id)
        if number is None:
            return None
        subscription = self.session.subscriptions.get(subscription_id)
        if subscription is None and not self._dialect.needs_subscription_id:
            # STOMP 1.0 names the message only. Linear, but such a peer has few subscriptions.
            subscription = next(
                (each for each in self.session.subscriptions.values() if number in each.unacked), None
            )
        return None if subscription is None else (subscription, number)

    # BEGIN, COMMIT, ABORT, DISCONNECT

    def _refuse_transaction(self, frame: Frame) -> None:
        required(frame, "transaction")
        refuse_transaction(frame)

    def _disconnect(self, frame: Frame) -> None:
        # D.25: no more messages, then what was written, the RECEIPT, the end.
        self._finish(lost=False)
        self._say_receipt(frame)


_Handler = Callable[[ServerProtocol, Frame], None]

# What is legal when, and who takes it. The only place that compares states.
_LEGAL: Final[Mapping[State, Mapping[str, _Handler]]] = {
    State.OPENING: {
        "CONNECT": ServerProtocol._connect,
        "STOMP": ServerProtocol._connect,
    },
    State.OPEN: {
        "SEND": ServerProtocol._send,
        "ACK": ServerProtocol._ack,
        "NACK": ServerProtocol._nack,
        "SUBSCRIBE": ServerProtocol._subscribe,
        "UNSUBSCRIBE": ServerProtocol._unsubscribe,
        "BEGIN": ServerProtocol._refuse_transaction,
        "COMMIT": ServerProtocol._refuse_transaction,
        "ABORT": ServerProtocol._refuse_transaction,
        "DISCONNECT": ServerProtocol._disconnect,
    },
    State.CLOSED: {},
}
