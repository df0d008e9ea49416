"""A connection of the broker: its protocol joined to an asyncio transport.

There is no task, stream or lock here: the transport calls, and everything is decided before the call returns.
The transport may be a socket's, a WebSocket's or an in-memory pipe's. When the transport is closed, one log
event tells the whole story of the connection (`events.ConnectionEnd`).
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import Any, Final

from nebula.broker.core.access import ANONYMOUS
from nebula.broker.core.fixed_limits import (
    FLUSH_SECONDS,
    LINGER_SECONDS,
    MAX_REFUSAL_REST_SECONDS,
    REFUSAL_REST_SECONDS,
)
from nebula.broker.operations.events import ConnectionEnd, EndReason, unquoted
from nebula.broker.operations.traffic import Traffic
from nebula.broker.operations.views import ConnectionFacts
from nebula.broker.protocol.server_protocol import ServerProtocol
from nebula.broker.server.identity import Identity
from nebula.broker.server.lifetimes import NOT_ADMITTED, TOO_OLD
from nebula.broker.server.listener import Listener
from nebula.broker.server.peer import IN_PROCESS, Peer
from nebula.broker.server.runtime import Runtime
from nebula.errors import Refused

# The loop may have been busy for longer than a peer's margin, with its beats unread. A moment
# later they have been.
_SECOND_LOOK_SECONDS = 0.05


_NO_ROOM: Final = "the broker has no room for what is on its way to and from you"

# What the core says when it ends a session, up to a colon.
_ENDINGS: Final = {
    "an operator has ended the connection": EndReason.OPERATOR,
    "an operator has ended the session": EndReason.OPERATOR,
    "session taken over": EndReason.TAKEN_OVER,
    "too slow": EndReason.TOO_SLOW,
    _NO_ROOM: EndReason.NO_ROOM,
}


class Connection(asyncio.Protocol):
    """The broker's end of one byte stream.

    Args:
        runtime: of the broker; it is told of everything that may concern others.
        principal: who the peer is, where that is known beforehand.
        listener: whose rules apply.

    Attributes:
        peer: the far end, from `connection_made` on; `traffic` counts its bytes.
    """

    def __init__(
        self, runtime: Runtime, principal: str | None = None, listener: Listener = IN_PROCESS
    ) -> None:
        self._runtime = runtime
        self._broker = runtime.broker
        self._identity = None if principal is None else Identity(principal)
        self._listener = listener
        self._verifying: asyncio.Task[None] | None = None
        self._transport: Any = None
        self._protocol: ServerProtocol
        self._timer: asyncio.TimerHandle | None = None
        self._is_open = False
        self._is_blocked = False
        self._is_closing = False
        self._is_lost = False
        self._resumes_soon = False
        self._waits_for_store = False
        self._is_in_line = False
        self._refusals = 0
        self._is_suspect = False
        # Why it ends, as far as that is known, and the details. The first reason counts.
        self._end_reason: EndReason | None = None
        self._end_detail = ""
        self._unsent_bytes = 0
        self.peer: Peer
        self.traffic = Traffic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, or refuse where there are too many. The transport's first call."""
        self._transport = transport
        now = self._runtime.time()
        self.peer = Peer(transport, self._listener, now)
        self.traffic = self.peer.traffic
        limits = self._broker.limits
        refusal = self._identify()
        session = self._broker.open_session(
            uuid.uuid4().hex,
            ANONYMOUS if self._identity is None else self._identity.principal,
            profile=self._listener.profile,
            place=self.peer.place,
            connection=self,
        )
        self._protocol = ServerProtocol(
            self._broker,
            session,
            server=self._runtime.name,
            now=now,
            authenticates=self._identity is None,
        )
        self.peer.protocol = self._protocol
        self._transport.set_write_buffer_limits(high=limits.outbox_high_water_bytes)
        host = self.peer.keep_alive(limits.keepalive_seconds)
        refusal = self._runtime.admit(self, host) or refusal
        if refusal is not None:
            self._runtime.events.count("connection refused")
            if self._runtime.is_stopping:
                self._note_end(EndReason.SHUTDOWN)
            self._note_end(EndReason.TOO_MANY, refusal)  # unless it was refused for its certificate
            self.end(refusal)
            return
        if self._identity is not None:
            self._begin_life(self._identity, now)
        self._tick()

    @property
    def principal(self) -> str:
        """The peer's principal, as far as is known."""
        return self._protocol.session.principal

    @property
    def payer(self) -> str:
        """The payer of in-flight bytes: the principal, or until that is known the address."""
        return self._protocol.session.usage.name

    def facts(self, now: float) -> ConnectionFacts:
        """What an operator is told of it."""
        return self.peer.facts(now, waits_for_store=self._waits_for_store)

    @property
    def outbox_bytes(self) -> int:
        """What it has been told and was not handed to the transport yet."""
        return self._protocol.session.outbox_bytes

    def give_way(self) -> None:
        """End it to free memory: in-flight bytes of all connections are above their cap."""
        is_unwritten = self.peer.unwritten_bytes > 0
        self._protocol.session.end(_NO_ROOM)
        self._runtime.pump.work(self._runtime.time())
        if is_unwritten:
            self.abort()  # it would not read why either, and what is there would stay for seconds

    def _begin_life(self, identity: Identity, now: float) -> None:
        # A client in this process needs no proof of identity, and ends with the process.
        if self._listener is not IN_PROCESS:
            self._runtime.lifetimes.begin(self, self._listener, identity, now)

    def end_for(self, reason: str) -> None:
        """End it, because its identity is no longer valid or its maximum age is reached."""
        if self._is_closing:
            return
        self._note_ended_by_broker(_expiry_reason(reason), reason)
        self.end(reason)

    def _identify(self) -> str | None:
        """Find out who the peer is, if that can be known before it speaks; why it may not come in."""
        if self._identity is not None:
            return None
        try:
            self._identity = self.peer.identify(self._runtime.lifetimes.wall_clock())
        except Refused as error:
            self._runtime.events.count("peer refused")
            self._note_end(EndReason.NOT_ADMITTED, error.detail)
            return NOT_ADMITTED
        return None

    def data_received(self, data: bytes) -> None:
        """Handle bytes, and do all that follows from them, for other peers too, before returning."""
        if self._is_closing:
            return
        runtime = self._runtime
        now = runtime.time()
        protocol = self._protocol
        self.traffic.read_bytes += len(data)
        runtime.in_flight.touch(self)
        protocol.is_turn_over = runtime.fairness.begin(self, now)
        try:
            protocol.receive_data(data, now)
        except Exception:
            self._fail_internally()
        if not self._is_open:
            if protocol.credentials is not None and self._verifying is None:
                self._verify(*protocol.credentials)
            if protocol.version is not None:
                self._opened()
        is_long = runtime.fairness.is_long_read(len(data))
        self._pause_if_need_be(is_long=is_long)
        runtime.pump.work(now)

    def _pause_if_need_be(self, *, is_long: bool) -> None:
        """After an input: read no more where the protocol, the store or the others' turn ask for that."""
        protocol = self._protocol
        rest_seconds = self._rest_seconds()
        if protocol.is_held_back:
            self._transport.pause_reading()
            if protocol.is_resting:
                self._line_up(rest_seconds)
        elif protocol.session.is_ahead_of_store:
            self._waits_for_store = True
            protocol.pause()
            self._transport.pause_reading()
        elif is_long or rest_seconds:
            self._transport.pause_reading()
            self._line_up(rest_seconds)

    def _rest_seconds(self) -> float:
        """How long it is not read, as its principal was refused more than its share since the last call."""
        usage = self._protocol.session.usage
        refused, self._refusals = usage.refusals - self._refusals, usage.refusals
        # Before it has logged in, nothing was refused; and another principal's refusals are not its.
        if refused <= 0 or not self._is_open:
            return 0.0
        if not self._runtime.fairness.has_other_principals(self._runtime.time()):
            return 0.0
        return min(MAX_REFUSAL_REST_SECONDS, refused * REFUSAL_REST_SECONDS)

    def _line_up(self, rest_seconds: float = 0.0) -> None:
        if self._is_in_line:
            return
        self._is_in_line = True
        if rest_seconds:
            self._runtime.loop.call_later(rest_seconds, self._runtime.fairness.line_up, self)
        else:
            self._runtime.fairness.line_up(self)

    def wait_for_turn(self) -> None:
        """For a transport that has read more than is one turn's work: resume it after the others."""
        self._transport.pause_reading()
        self._line_up()

    def note_partial(self, held_bytes: int) -> None:
        """Note the bytes of an incomplete frame, for a transport with frames of its own."""
        self.peer.held_before_bytes = held_bytes
        self._runtime.in_flight.touch(self)
        self._protocol.note_partial(self._runtime.time(), is_partial=held_bytes > 0)

    def take_turn(self) -> None:
        """It stood in line: go on with what it has sent already, or read more."""
        self._is_in_line = False
        if self._protocol.is_resting:
            now = self._runtime.time()
            self._protocol.is_turn_over = self._runtime.fairness.begin(self, now)
            self.go_on(now, in_vain=False)
            self._runtime.pump.work(now)
        else:
            self.read_on()

    def eof_received(self) -> bool:
        # Settled now: the transport closes itself, but it would wait for ever for a peer that has
        # gone half and reads nothing.
        self._settle()
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Settle what the peer holds. The transport's last call."""
        if self._timer is not None:
            self._timer.cancel()
        if self._verifying is not None:
            self._verifying.cancel()
        self._is_closing = True
        self._runtime.dismiss(self)
        self._settle()
        if self._is_open:
            self._runtime.events.count("session closed")
        self._tell_end()
        self._runtime.loop.call_soon(self._part)

    def pause_writing(self) -> None:
        """The peer does not keep up: queues stop dispatching to it."""
        self._is_blocked = True
        self._protocol.session.is_throttled = True
        self._runtime.note_blocked(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The peer has read: write what waits, and let queues dispatch again."""
        self._is_blocked = False
        self.peer.forget()
        now = self._runtime.time()
        self.flush(now)
        self._resume_dispatch()

    def flush(self, now: float) -> None:
        """Write what the session was told, unless the peer does not keep up."""
        protocol = self._protocol
        session = protocol.session
        if session.ending is not None and not protocol.is_finished:
            self._note_ended_by_broker(_ENDINGS[session.ending.partition(":")[0]], session.ending)
            session.take_outbox()  # it would only be copied for somebody who does not read
            protocol.fail(session.ending, now)
        if self._waits_for_store and not session.is_ahead_of_store:
            self._waits_for_store = False
            protocol.resume(now)
            self.read_on()
        if self._is_blocked and not protocol.is_finished:
            return
        if not self._is_closing:
            if session.outbox:
                traffic = self.traffic
                traffic.sent_frames += len(session.outbox)
                pieces = protocol.take_output(now)
                self.peer.write(pieces)
                self._runtime.in_flight.touch(self)
                if self._is_blocked and len(pieces) > 1:
                    self.peer.remember(pieces)
            if protocol.may_close:
                self._close()
            elif protocol.is_finished:
                self._tick()  # its ERROR waits for the store, but not for ever
            elif session.is_throttled and not self._is_blocked and not self._resumes_soon:
                # Not at once: the others have their turn first.
                self._resumes_soon = True
                self._runtime.loop.call_soon(self._resume_dispatch)

    def go_on(self, now: float, *, in_vain: bool) -> None:
        """Read on after having been held back."""
        try:
            self._protocol.go_on(now, in_vain=in_vain)
        except Exception:
            self._fail_internally()
        if not self._is_closing:
            self._pause_if_need_be(is_long=False)
        self.read_on()

    def read_on(self) -> None:
        """Read the peer again, unless it is held back, waits for the store or is at its end."""
        is_at_rest = self._is_closing or self._runtime.is_stopping or self._is_in_line
        if not (self._protocol.is_held_back or self._waits_for_store or is_at_rest):
            self._transport.resume_reading()

    def rest_for_good(self) -> None:
        """The broker stops: read no more, dispatch no more; write what it was told."""
        if not self._is_closing:
            self._protocol.session.is_throttled = True
            self._protocol.pause()  # it has no chance to beat
            self._transport.pause_reading()

    @property
    def is_drained(self) -> bool:
        """It was written all that it was told, or it is at its end anyway."""
        return self._is_closing or not (self.outbox_bytes or self._transport.get_write_buffer_size())

    def end(self, message: str, reason: EndReason | None = None) -> None:
        """End the connection with an ERROR, for a reason of the broker.

        Args:
            message: what the peer is told.
            reason: what the log is told; None: that is noted already.
        """
        now = self._runtime.time()
        if reason is not None and not self._protocol.is_finished:
            self._note_end(reason)
        self._protocol.fail(message, now)
        self._runtime.pump.work(now)

    def abort(self) -> None:
        """Close at once; what was not written is lost."""
        self._transport.abort()

    def evict(self) -> None:
        """Close at once, to make room for a new connection."""
        if not self._protocol.is_finished:
            self._note_end(EndReason.EVICTED)
        self.abort()

    def crash(self) -> None:
        """End this connection because of a bug of ours. Called while the exception is handled."""
        self._is_closing = True
        self._fail_internally()
        self.abort()

    def _verify(self, login: str | None, passcode: str | None) -> None:
        """Ask who the peer is; it is read on when that is known."""
        authenticator = self._listener.authenticator
        assert authenticator is not None
        identity = authenticator.admit_at_once(login)
        if identity is not None:
            self._admit(identity, self._runtime.time())
            return

        async def verify() -> None:
            identity = await authenticator.verify(login, passcode, self.peer.place)
            if self._is_closing:
                return
            now = self._runtime.time()
            if identity is None:
                self._runtime.events.count("login refused")
                self._note_end(EndReason.NOT_ADMITTED, "login refused")
                self._protocol.fail(NOT_ADMITTED, now)
            else:
                self._admit(identity, now)
                if self._protocol.version is not None:
                    self._opened()
                self._pause_if_need_be(is_long=False)
            self._runtime.pump.work(now)

        self._verifying = self._runtime.loop.create_task(verify())

    def _admit(self, identity: Identity, now: float) -> None:
        self._begin_life(identity, now)
        self._protocol.admit(identity.principal, now)

    def _note_end(self, reason: EndReason, detail: str = "") -> None:
        """Note why it ends, for `_tell_end`. The first reason counts."""
        if self._end_reason is None:
            self._end_reason, self._end_detail = reason, detail

    def _note_ended_by_broker(self, reason: EndReason, message: str) -> None:
        self._runtime.note_ended(message)
        self._runtime.events.count("peer ended")
        self._note_end(reason, message)
        self._unsent_bytes = self.outbox_bytes

    def _tell_end(self) -> None:
        protocol, peer, traffic = self._protocol, self.peer, self.traffic
        if self._end_reason is None and protocol.fault:
            # It may quote what the peer has sent.
            self._note_end(EndReason.PROTOCOL_ERROR, unquoted(protocol.fault))
        reason = self._end_reason or (EndReason.LOST if self._is_lost else EndReason.DISCONNECTED)
        end = ConnectionEnd(
            reason,
            self._end_detail,
            protocol.session.principal,
            protocol.session.id,
            peer.address or "in process",
            peer.local_address or "in process",
            protocol.version,
            peer.age_seconds(self._runtime.time()),
            protocol.received_frames,
            traffic.sent_frames,
            traffic.read_bytes,
            traffic.written_bytes,
            self._unsent_bytes,
        )
        self._runtime.events.connection_closed(end, is_open=self._is_open)

    def _settle(self) -> None:
        """Nothing more comes from the peer: take back what it holds."""
        now = self._runtime.time()
        self._is_lost = self._is_lost or not self._protocol.is_finished
        try:
            self._protocol.receive_eof(now)
        except Exception:
            self._fail_internally()
        self._runtime.pump.work(now)

    def _part(self) -> None:
        # Undo the rings of references: the garbage collector would come late for what they hold.
        self._protocol.session.connection = None
        self._transport = None
        self.peer.part()

    def _opened(self) -> None:
        self._is_open = True
        self._refusals = self._protocol.session.usage.refusals
        self._runtime.note_known(self)
        version, address = self._protocol.version, self.peer.address
        # Hosted services come before the broker has said that it listens, and are of no interest.
        if address is not None:
            self._runtime.events.debug("session opened", **self.peer.who, address=address, version=version)
        self._tick()

    def _resume_dispatch(self) -> None:
        self._resumes_soon = False
        if self._is_blocked or self._is_closing or self._runtime.is_stopping:
            return
        now = self._runtime.time()
        self._broker.resume(self._protocol.session, now)
        self._runtime.pump.work(now)

    def _tick(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        now = self._runtime.time()
        self._is_suspect = not self._is_suspect and self._protocol.heartbeat.is_dead(now)
        if self._is_suspect:
            self._timer = self._runtime.loop.call_later(_SECOND_LOOK_SECONDS, self._tick)
            return
        was_finished = self._protocol.is_finished
        deadline = self._protocol.tick(now)
        if self._protocol.is_finished and not was_finished:
            self._note_end(EndReason.TIMED_OUT, self._protocol.fault or "")
        self._runtime.pump.work(now)
        if deadline != float("inf") and not self._is_closing:
            self._timer = self._runtime.loop.call_at(deadline, self._tick)

    def _fail_internally(self) -> None:
        # A bug of ours: the log has it, the peer learns nothing of our insides.
        self._runtime.events.exception("connection failed", **self.peer.who)
        self._note_end(EndReason.BUG)
        self._protocol.fail("internal error", self._runtime.time())

    def _close(self) -> None:
        """Let the peer read what was written, then end."""
        self._is_closing = True
        self._runtime.note_lingering(self)
        if self._timer is not None:
            self._timer.cancel()
        self._transport.resume_reading()
        # The peer may have reset the connection a moment ago.
        with contextlib.suppress(OSError):
            if self._transport.can_write_eof():
                self._transport.write_eof()
        seconds = FLUSH_SECONDS if self._transport.get_write_buffer_size() else LINGER_SECONDS
        self._timer = self._runtime.loop.call_later(seconds, self._transport.abort)


def _expiry_reason(message: str) -> EndReason:
    if message == NOT_ADMITTED:
        return EndReason.NOT_ADMITTED
    return EndReason.TOO_OLD if message == TOO_OLD else EndReason.EXPIRED
