"""A connection of the broker: its protocol joined to an asyncio transport.

There is no task, stream or lock here: the transport calls, and everything is decided before the call returns.
The transport may be a socket's, a WebSocket's or an in-memory pipe's. `login` finds out who the peer is;
`end_story` collects why the connection ends, and one log event tells it when the transport is closed.

The methods follow the life of a connection: begin, log in, read, write, let time pass, end.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import Any

from nebula.broker.core.access import ANONYMOUS
from nebula.broker.core.fixed_limits import (
    FLUSH_SECONDS,
    LINGER_SECONDS,
    MAX_REFUSAL_REST_SECONDS,
    REFUSAL_REST_SECONDS,
)
from nebula.broker.operations.events import ENDINGS, NO_ROOM, NOT_ADMITTED, EndReason
from nebula.broker.operations.traffic import Traffic
from nebula.broker.operations.views import ConnectionFacts
from nebula.broker.protocol.server_protocol import ServerProtocol
from nebula.broker.server.end_story import EndStory
from nebula.broker.server.identity import Identity
from nebula.broker.server.listener import Listener
from nebula.broker.server.login import Login
from nebula.broker.server.peer import IN_PROCESS, Peer
from nebula.broker.server.runtime import Runtime
from nebula.broker.server.tcp_acks import TcpAcks, send_ack
from nebula.errors import Refused

# The loop may have been busy for longer than a peer's margin, with the peer's heart-beats unread in the
# socket. They have been read a moment later, so only a second look decides that the peer is dead.
_SECOND_LOOK_SECONDS = 0.05


# Not a task and a stream for each connection: that took half again as long for one request, see
# docs/decisions/0001.
# It is an `asyncio.Protocol` in all but its base class, which would keep it from being compiled as a native
# class.
class Connection:
    """The broker's end of one byte stream.

    Args:
        runtime: of the broker; it is told everything that may concern others.
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
        self._listener = listener
        self._login = Login(listener, principal)
        self._end = EndStory()
        # Any: the end of an in-memory pipe shares no base class with asyncio's transports.
        self._transport: Any = None
        self._protocol: ServerProtocol
        self._timer: asyncio.TimerHandle | None = None
        self._is_open = False
        self._is_blocked = False
        self._is_closing = False
        self._is_settled = False
        self._is_lost = False
        self._resumes_soon = False
        self._waits_for_store = False
        self._is_in_line = False
        self._refusals = 0
        self._is_suspect = False
        self._acks = TcpAcks()
        self.peer: Peer
        self.traffic = Traffic()

    # --- what others see ---

    @property
    def principal(self) -> str:
        """The peer's principal, as far as is known."""
        return self._protocol.session.principal

    @property
    def payer(self) -> str:
        """The payer of in-flight bytes: the principal, or until that is known the address."""
        return self._protocol.session.usage.name

    @property
    def outbox_bytes(self) -> int:
        """What the session was told and the transport was not given yet."""
        return self._protocol.session.outbox_bytes

    @property
    def is_drained(self) -> bool:
        """Whether everything that the session was told has been written, or the connection is at its end."""
        return self._is_closing or not (self.outbox_bytes or self._transport.get_write_buffer_size())

    def facts(self, now: float) -> ConnectionFacts:
        """What operators see of the connection."""
        return self.peer.facts(now, waits_for_store=self._waits_for_store)

    # --- begin ---

    def connection_made(self, transport: Any) -> None:
        """Begin, or refuse where there are too many. The transport's first call."""
        self._transport = transport
        now = self._runtime.time()
        self.peer = Peer(transport, self._listener, now)
        self.traffic = self.peer.traffic
        limits = self._broker.limits
        # The identity comes first, because the session needs a principal that pays for it. A refused peer
        # gets a session too, through which its ERROR is sent.
        refusal = self._identify()
        identity = self._login.identity
        session = self._broker.open_session(
            secrets.token_hex(16),
            ANONYMOUS if identity is None else identity.principal,
            profile=self._listener.profile,
            place=self.peer.place,
            connection=self,
        )
        self._protocol = ServerProtocol(
            self._broker, session, server=self._runtime.name, now=now, authenticates=identity is None
        )
        self.peer.protocol = self._protocol
        # asyncio calls `pause_writing` above this mark. Queues stop dispatching at the same size of the
        # session's outbox, so a slow peer holds about twice this much.
        self._transport.set_write_buffer_limits(high=limits.outbox_high_water_bytes)
        # Counted even if the certificate was refused, because the connection has a file descriptor until its
        # ERROR is read. The peer is told the later reason; the log has the earlier one.
        refusal = self._runtime.admit(self, self.peer.host) or refusal
        if refusal is not None:
            self._refuse(refusal)
            return
        if identity is not None:
            self._begin_life(identity, now)
        self._wake_at(now + limits.connect_timeout)

    def _identify(self) -> str | None:
        """Find out who the peer is, if that can be known before it speaks.

        Returns:
            What the peer is told if it is refused; otherwise None.
        """
        try:
            self._login.identify(self.peer, self._runtime.lifetimes.wall_clock())
        except Refused as error:
            self._runtime.events.count("peer refused")
            self._end.note(EndReason.NOT_ADMITTED, error.detail)
            return NOT_ADMITTED
        return None

    def _refuse(self, message: str) -> None:
        self._runtime.events.count("connection refused")
        if self._runtime.is_stopping:
            self._end.note(EndReason.SHUTDOWN)
        # Has no effect if the certificate was refused before.
        self._end.note(EndReason.TOO_MANY, message)
        self.end(message)

    def _begin_life(self, identity: Identity, now: float) -> None:
        # A client in this process needs no proof of identity, and ends with the process.
        if self._listener is not IN_PROCESS:
            self._runtime.lifetimes.begin(self, self._listener, identity, now)

    # --- log in ---

    def _log_in(self, credentials: tuple[str | None, str | None]) -> None:
        """Verify the peer's login. The protocol holds further frames back until it has the result."""
        identity = self._login.verify(credentials, self.peer.place, self._note_login)
        if identity is not None:
            self._admit(identity, self._runtime.time())

    def _note_login(self, identity: Identity | None) -> None:
        """The login was verified, which took a while."""
        # The connection has ended meanwhile, for example by its timeout.
        if self._is_closing:
            return
        now = self._runtime.time()
        if identity is None:
            self._runtime.events.count("login refused")
            self._end.note(EndReason.NOT_ADMITTED, "login refused")
            self._protocol.fail(NOT_ADMITTED, now)
        else:
            self._admit(identity, now)
            # `admit` handles the CONNECT and perhaps further frames, so this does what `data_received` does
            # after input.
            if self._protocol.version is not None:
                self._note_open(now)
            self._pause_if_needed(is_long=False)
        self._runtime.pump.work(now)

    def _admit(self, identity: Identity, now: float) -> None:
        self._begin_life(identity, now)
        self._protocol.admit(identity.principal, now)

    def _note_open(self, now: float) -> None:
        """The session has begun."""
        self._is_open = True
        # Refusals before this belong to `anonymous`, or to other connections of this principal.
        self._refusals = self._protocol.session.usage.refusals
        self._runtime.note_known(self)
        version, address = self._protocol.version, self.peer.address
        # Hosted services connect before the broker has logged that it listens, and are not worth a line.
        if address is not None:
            self._runtime.events.debug(
                "session opened", **self.peer.log_fields, address=address, version=version
            )
        self._wake_at(self._protocol.tick(now))

    # --- read ---

    def data_received(self, data: bytes) -> None:
        """Handle bytes, and do all that follows from them, for other peers too, before returning."""
        # Input after a DISCONNECT or an ERROR is read and dropped (`linger`).
        if self._is_closing:
            return
        runtime = self._runtime
        now = runtime.time()
        protocol = self._protocol
        traffic = self.traffic
        traffic.read_bytes += len(data)
        written_bytes = traffic.written_bytes
        runtime.in_flight.touch(self)
        protocol.is_turn_over = runtime.fairness.begin(self, now)
        try:
            protocol.receive_data(data, now)
        except Exception:
            # A fault of the peer never raises (`ServerProtocol.receive_data`), so this is a bug in the
            # broker.
            self._fail_internally()
        if not self._is_open:
            # `credentials` stay set while the login is verified, and more bytes may come: one check for each
            # connection.
            if protocol.credentials is not None and not self._login.has_begun:
                self._log_in(protocol.credentials)
            if protocol.version is not None:
                self._note_open(now)
        is_long = runtime.fairness.is_long_read(len(data))
        # By bytes, not frames: uvloop may go on reading after a read of its full buffer.
        self._pause_if_needed(is_long=is_long)
        runtime.pump.work(now)
        # Last, because the reply of a frame carries the acknowledgement, see docs/decisions/0065.
        if self._acks.are_due(now, written_bytes, traffic.written_bytes) and not self._is_closing:
            send_ack(self._transport)

    def _pause_if_needed(self, *, is_long: bool) -> None:
        """After an input: stop reading if the protocol, the store or fairness to others asks for that."""
        protocol = self._protocol
        rest_seconds = self._rest_seconds()
        if protocol.is_held_back:
            self._transport.pause_reading()
            if protocol.is_resting:
                self._line_up(rest_seconds)
        elif protocol.session.is_ahead_of_store:
            # Never true with subscriptions: ACKs come by the same stream and must be read.
            self._waits_for_store = True
            protocol.pause()
            self._transport.pause_reading()
        elif is_long or rest_seconds:
            self._transport.pause_reading()
            self._line_up(rest_seconds)

    def _rest_seconds(self) -> float:
        """How long to read nothing, because its principal was refused more than its share since the last
        call."""
        usage = self._protocol.session.usage
        # The difference, because `usage` counts for all connections of the principal.
        refused, self._refusals = usage.refusals - self._refusals, usage.refusals
        # Before the login nothing was refused, and the refusals of another principal do not count.
        if refused <= 0 or not self._is_open:
            return 0.0
        # A peer that is alone may be refused as fast as it likes: it harms no other.
        if not self._runtime.fairness.has_other_principals(self._runtime.time()):
            return 0.0
        return min(MAX_REFUSAL_REST_SECONDS, refused * REFUSAL_REST_SECONDS)

    def _line_up(self, rest_seconds: float = 0.0) -> None:
        if self._is_in_line:
            return
        self._is_in_line = True
        if rest_seconds:
            # Lined up after the pause: its turn might come within a millisecond.
            self._runtime.loop.call_later(rest_seconds, self._runtime.fairness.line_up, self)
        else:
            self._runtime.fairness.line_up(self)

    def wait_for_turn(self) -> None:
        """Called by a transport that has read more than one turn's work: it is resumed after the others."""
        self._transport.pause_reading()
        self._line_up()

    def take_turn(self) -> None:
        """Go on with frames that were read already, or read more. Called by the scheduler."""
        self._is_in_line = False
        if self._protocol.is_resting:
            now = self._runtime.time()
            self._protocol.is_turn_over = self._runtime.fairness.begin(self, now)
            self.go_on(now, in_vain=False)
            self._runtime.pump.work(now)
        else:
            self.read_on()

    def go_on(self, now: float, *, in_vain: bool) -> None:
        """Go on with frames that were held back; see `Pumped.go_on`."""
        try:
            self._protocol.go_on(now, in_vain=in_vain)
        except Exception:
            self._fail_internally()
        # The frames that were held back may hold the connection back again.
        if not self._is_closing:
            self._pause_if_needed(is_long=False)
        self.read_on()

    def read_on(self) -> None:
        """Read the peer again, unless it is held back, waits for the store or is at its end."""
        # `_is_in_line`: the scheduler will resume it, and resuming it here would skip the line.
        is_at_rest = self._is_closing or self._runtime.is_stopping or self._is_in_line
        if not (self._protocol.is_held_back or self._waits_for_store or is_at_rest):
            self._transport.resume_reading()

    def note_partial(self, held_bytes: int) -> None:
        """Note the bytes of an incomplete frame, for a transport with frames of its own."""
        self.peer.held_before_bytes = held_bytes
        self._runtime.in_flight.touch(self)
        self._protocol.note_partial(self._runtime.time(), is_partial=held_bytes > 0)

    # --- write ---

    def flush(self, now: float) -> None:
        """Write what the session was told, unless the peer does not keep up."""
        protocol = self._protocol
        session = protocol.session
        if session.ending is not None and not protocol.is_finished:
            self._note_ended_by_broker(session.ending)
            # Its size has been noted for the log, as `unsent_bytes`.
            session.take_outbox()  # otherwise it would be copied for a peer that does not read
            protocol.fail(session.ending, now)
        if self._waits_for_store and not session.is_ahead_of_store:
            self._waits_for_store = False
            protocol.resume(now)
            self.read_on()
        # The outbox is the only buffer that may grow: its size is counted, and ends the session when it is
        # too large. At the end the ERROR is written all the same, behind what the transport holds.
        if self._is_blocked and not protocol.is_finished:
            return
        if not self._is_closing:
            if session.outbox:
                traffic = self.traffic
                traffic.sent_frames += len(session.outbox)
                pieces = protocol.take_output(now)
                self.peer.write(pieces)
                self._runtime.in_flight.touch(self)
                # Only here it is known which pieces are shared with other peers; the transport's buffer does
                # not tell.
                if self._is_blocked and len(pieces) > 1:
                    self.peer.remember(pieces)
            # `may_close`, not `is_finished`: the peer must get RECEIPTs that wait for the store before the
            # ERROR, or it would take accepted messages for lost.
            if protocol.may_close:
                self._close()
            elif protocol.is_finished:
                self._tick()  # its ERROR waits for the store, but only until a deadline
            elif session.is_throttled and not self._is_blocked and not self._resumes_soon:
                # Not at once: the others have their turn first.
                self._resumes_soon = True
                self._runtime.loop.call_soon(self._resume_dispatch)

    def pause_writing(self) -> None:
        """The peer does not keep up: queues stop dispatching to it."""
        self._is_blocked = True
        # Topics still deliver; an outbox above `max_outbox_bytes` ends the session.
        self._protocol.session.is_throttled = True
        self._runtime.note_blocked(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The peer has read: write what waits, and let queues dispatch again."""
        self._is_blocked = False
        self.peer.forget()
        now = self._runtime.time()
        # In this order: what waits in the outbox is older than what queues dispatch now.
        self.flush(now)
        self._resume_dispatch()

    def _resume_dispatch(self) -> None:
        self._resumes_soon = False
        if self._is_blocked or self._is_closing or self._runtime.is_stopping:
            return
        now = self._runtime.time()
        self._broker.resume(self._protocol.session, now)
        self._runtime.pump.work(now)

    def rest_for_good(self) -> None:
        """The broker stops: read and dispatch no more, but write what the session was told."""
        if not self._is_closing:
            # Queues keep their messages for the next start; a delivery now would come back as redelivered.
            self._protocol.session.is_throttled = True
            self._protocol.pause()  # the peer's heart-beats are not read, so they must not be missed
            self._transport.pause_reading()

    # --- let time pass ---

    def _tick(self) -> None:
        now = self._runtime.time()
        # `tick` ends a connection that is dead, so the first look only asks for a second one.
        self._is_suspect = not self._is_suspect and self._protocol.heartbeat.is_dead(now)
        if self._is_suspect:
            self._wake_at(now + _SECOND_LOOK_SECONDS)
            return
        was_finished = self._protocol.is_finished
        # Input may move the deadline; the tick then sets the timer again.
        deadline = self._protocol.tick(now)
        if self._protocol.is_finished and not was_finished:
            self._end.note(EndReason.TIMED_OUT, self._protocol.fault or "")
        # Before the work, which may need an earlier look or close the connection.
        self._wake_at(deadline)
        self._runtime.pump.work(now)

    def _wake_at(self, deadline: float) -> None:
        if self._is_closing:
            return  # the timer is that of `_close`
        if self._timer is not None:
            self._timer.cancel()
        if deadline != float("inf"):
            self._timer = self._runtime.loop.call_at(deadline, self._tick)

    # --- end: the broker's reasons ---

    def end(self, message: str, reason: EndReason | None = None) -> None:
        """Send an ERROR and close, for a reason of the broker.

        Args:
            message: what the peer is told.
            reason: what the log is told; None: that is noted already.
        """
        now = self._runtime.time()
        if reason is not None and not self._protocol.is_finished:
            self._end.note(reason)
        # The protocol keeps the first ERROR, as `EndStory` keeps the first reason.
        self._protocol.fail(message, now)
        self._runtime.pump.work(now)

    def end_for(self, reason: str) -> None:
        """End it, because its identity is no longer valid or its maximum age is reached."""
        if self._is_closing:
            return
        self._note_ended_by_broker(reason)
        self.end(reason)

    def give_way(self) -> None:
        """End it to free memory: in-flight bytes of all connections are above their cap."""
        is_unwritten = self.peer.unwritten_bytes > 0
        # `flush` sends the ERROR, once the pump comes to this session.
        self._protocol.session.end(NO_ROOM)
        self._runtime.pump.work(self._runtime.time())
        if is_unwritten:
            # It would not read the reason either, and its bytes would stay in memory for seconds.
            self.abort()

    def evict(self) -> None:
        """Close at once, to make room for a new connection."""
        if not self._protocol.is_finished:
            self._end.note(EndReason.EVICTED)
        self.abort()

    def abort(self) -> None:
        """Close at once; what was not written is lost."""
        self._transport.abort()

    def crash(self) -> None:
        """End this connection because of a bug in the broker. Called while the exception is handled."""
        # Set first: `flush` itself may have failed, and must not try to write again.
        self._is_closing = True
        self._fail_internally()
        self.abort()

    def _fail_internally(self) -> None:
        # A bug in the broker: the log has the traceback, the peer learns nothing about our insides.
        self._runtime.events.exception("connection failed", **self.peer.log_fields)
        self._end.note(EndReason.BUG)
        self._protocol.fail("internal error", self._runtime.time())

    def _note_ended_by_broker(self, message: str) -> None:
        # Behind a colon there is more about it, which would make a series of its own for each text.
        ending = message.partition(":")[0]
        self._runtime.note_ended(ending)
        self._runtime.events.count("peer ended")
        self._end.note(ENDINGS[ending], message)
        self._end.unsent_bytes = self.outbox_bytes

    # --- end: closing the transport ---

    def _close(self) -> None:
        """Let the peer read what was written, then close."""
        self._is_closing = True
        self._runtime.note_lingering(self)
        if self._timer is not None:
            self._timer.cancel()
        # With reading paused, the peer's end would go unnoticed, and closing with unread input sends a reset,
        # which may destroy the ERROR on its way (`linger`).
        self._transport.resume_reading()
        # The peer may have reset the connection a moment ago.
        with contextlib.suppress(OSError):
            # asyncio has no half close for TLS: the peer closes after the ERROR, or else the timer does.
            if self._transport.can_write_eof():
                self._transport.write_eof()
        seconds = FLUSH_SECONDS if self._transport.get_write_buffer_size() else LINGER_SECONDS
        self._timer = self._runtime.loop.call_later(seconds, self._transport.abort)

    def eof_received(self) -> bool:
        # Settle now. The transport closes itself, but not while it has something to write to a peer that has
        # shut down its own half and reads nothing.
        self._settle()
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Settle what the peer holds, and log why the connection ended. The transport's last call."""
        if self._timer is not None:
            self._timer.cancel()
        self._login.cancel()
        self._is_closing = True
        self._runtime.dismiss(self)
        self._settle()
        if self._is_open:
            self._runtime.events.count("session closed")
        story = self._end.tell(self.peer, self._runtime.time(), is_lost=self._is_lost)
        self._runtime.events.connection_closed(story, is_open=self._is_open)
        self._runtime.loop.call_soon(self._break_cycles)

    def _settle(self) -> None:
        """Nothing more comes from the peer: take back what it holds."""
        if self._is_settled:
            return
        self._is_settled = True
        now = self._runtime.time()
        # Before `receive_eof`, which finishes the protocol.
        self._is_lost = not self._protocol.is_finished
        try:
            self._protocol.receive_eof(now)
        except Exception:
            self._fail_internally()
        self._runtime.pump.work(now)

    def _break_cycles(self) -> None:
        # Reference counts free the memory at once; the garbage collector would do it much later.
        self._protocol.session.connection = None
        self._transport = None
        self.peer.detach()
