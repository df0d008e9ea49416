"""The server's side of one connection: bytes to frames, frames to their handlers, faults to an ERROR.

How to think about it. `receive_data` cuts what has come into frames, looks each one up in the table of states
(`nebula.broker.protocol.states`) and calls its handler; the state changes as the table says. A fault of the
peer's gets one ERROR and ends the connection; a request that policy turns down gets a RECEIPT that says so,
and the connection goes on.

A connection can be held back: for want of room for a message, or because it has had its share of work and the
others come first. Frames that were read by then are parked, and so is the rest of the bytes; `go_on` takes up
both in their order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cache
from typing import Final

from nebula.broker.core.broker import Broker
from nebula.broker.core.fixed_limits import (
    ERROR_WAIT_SECONDS,
    FRAMES_AT_ONCE,
    FRAMES_BETWEEN_LOOKS,
    SLICE_BYTES,
    SLICES_AT_ONCE,
)
from nebula.broker.core.session import Session
from nebula.broker.protocol.encoding import error_frame, version_error
from nebula.broker.protocol.handlers import Handlers, Then
from nebula.broker.protocol.requests import NoCommonVersion
from nebula.broker.protocol.send_headers import NAMES
from nebula.broker.protocol.states import ADMITTED, ENDED, TABLE, State, is_open, rules
from nebula.errors import Refused, RemoteProtocolError
from nebula.stomp.codec import FrameParser
from nebula.stomp.dialects import Dialect
from nebula.stomp.frames import CLIENT_COMMANDS, Frame
from nebula.stomp.heartbeat import BEAT, Heartbeat, heart_beat_of, negotiate_intervals
from nebula.stomp.state_table import Rule

__all__ = ["ServerProtocol"]

# What CPython takes for a frame that waits, without its body; and for its headers, which several may share.
_FRAME_COST_BYTES: Final = 120
_HEADERS_COST_BYTES: Final = 500
_FRAMES_LOOKED_AT: Final = 16


_Handler = Callable[[Handlers, Frame, float], Then | None]
# A tuple, as it is taken apart for each frame: the handler, the header that its frame must have, the next
# state, and the rule. Nearly all frames need one header. Looking for that one takes half the time of a loop
# over all that the rule requires. If there are several or none, it is "", which no frame has: then the rule
# looks at all of them.
_Bound = tuple[_Handler, str, State | None, Rule[State]]


@cache
def _handled(state: State, dialect: Dialect, *, acks_by_message_id: bool) -> dict[str, _Bound]:
    """What is legal, with the functions that handle it. Shared by all connections."""
    found = rules(state, dialect, acks_by_message_id=acks_by_message_id)
    return {
        command: (
            getattr(Handlers, rule.handler),
            rule.required[0] if len(rule.required) == 1 else "",
            rule.next_state,
            rule,
        )
        for command, rule in found.items()
    }


class ServerProtocol:
    """The server's end of one connection, without its socket.

    Feed it with `receive_data`. After any call `take_output`, look at `is_held_back` and `is_finished`.

    Args:
        broker: what the requests go to.
        session: this connection's session, made by `broker.open_session`.
        server: how we name ourselves in CONNECTED.
        now: when the connection was accepted.
        authenticates: the peer is identified by the login and passcode of its CONNECT.

    Attributes:
        is_held_back: do not read the peer until `go_on`: there is no room for more, or it `is_resting`.
        is_resting: it gave us much to do, and there is more: call `go_on` when other connections were served.
        is_finished: nothing more is read. Write what there is, then close.
        fault: the text of the ERROR that ended the connection, if one did.
        received_frames: the number of frames that were read, heart-beats not counted.
        heartbeat: timers, running from CONNECTED on.
        is_turn_over: asked after some frames, to rest where others are at work; None: no other is.
    """

    def __init__(
        self, broker: Broker, session: Session, *, server: str, now: float, authenticates: bool = False
    ) -> None:
        self.session = session
        self.is_held_back = False
        self.is_resting = False
        self.is_turn_over: Callable[[], bool] | None = None
        self.fault: str | None = None
        self.received_frames = 0
        self.heartbeat = Heartbeat(0.0, 0.0, now=now)
        self._broker = broker
        self._now = now
        self._parser = FrameParser(CLIENT_COMMANDS, broker.frame_limits, NAMES)
        self._handlers = Handlers(broker, session, server, authenticates=authenticates)
        self._change_state(TABLE.initial)
        # Deadline of an ERROR that waits behind RECEIPTs; None: no ERROR waits.
        self._error_before: float | None = None
        self._connect_before = now + broker.limits.connect_timeout
        # When the frame began of which a part has come. A byte now and then counts as a heart-beat, so
        # without a deadline for frames a peer could keep what it holds of our memory for ever.
        self._frame_began_at: float | None = None
        # Frames and bytes that came before we knew that we have to hold the peer back.
        self._parked: list[Frame] = []
        self._parked_bytes = 0
        self._unread = b""

    @property
    def credentials(self) -> tuple[str | None, str | None] | None:
        """Login and passcode of a CONNECT that waits for `admit` or `fail`; else None."""
        return self._handlers.credentials

    @property
    def version(self) -> str | None:
        """The version of the session; None where none has begun."""
        return self._handlers.version

    @property
    def may_close(self) -> bool:
        """All that the peer has to be told was put into its outbox."""
        return self.is_finished and not self.session.held

    @property
    def unread_bytes(self) -> int:
        """What has come and was not handled yet; frames that wait at what they cost."""
        return len(self._parser.held) + len(self._unread) + self._parked_bytes

    def receive_data(self, data: bytes, now: float) -> None:
        """Take bytes as they come. Never raises for what a peer does."""
        self.heartbeat.last_received = now
        self._now = now
        parser = self._parser
        count = slices = 0
        try:
            # In slices, so that a large read is parsed only as far as it is handled: the rest can wait as
            # bytes, which take less memory than frames. No data: look at what the parser holds.
            for begin in range(0, len(data), SLICE_BYTES) or (0,):
                if self.is_held_back:
                    self._unread += data[begin:]
                    return
                if self.is_finished:
                    return
                end = begin + SLICE_BYTES
                frames = parser.feed(data[begin:end])
                if frames:
                    self._frame_began_at = None
                    count += len(frames)
                    self.received_frames += len(frames)
                    self._handle(frames)
                    slices += 1
                if parser.failure is not None:
                    self._fail_unless_over(parser.failure)
                if (count >= FRAMES_AT_ONCE or slices >= SLICES_AT_ONCE) and end < len(data):
                    self._hold_back([], is_resting=True)
        except (RemoteProtocolError, Refused) as error:
            self._fail(error)
        if parser.held or self._frame_began_at is not None:
            self._time_frame(now, is_within_frame=bool(parser.held) and not self.is_held_back)

    def go_on(self, now: float, *, in_vain: bool) -> None:
        """Read on after having been held back.

        Args:
            in_vain: it has waited as long as it may: the first SEND is refused if there is no room for it.
        """
        if not self.is_held_back:
            return
        was_resting = self.is_resting
        self.is_held_back = self.is_resting = False
        self.heartbeat.resume(now)
        self._now = now
        frames = self._parked
        self._park([])
        first = None if was_resting or in_vain or not frames else frames[0]
        data, self._unread = self._unread, b""
        try:
            # A snapshot that was interrupted comes before any frame behind its SUBSCRIBE.
            if self._handlers.go_on():
                self._unread = data
                self._hold_back(frames, is_resting=True)
                return
            if in_vain:
                self._begin_frame()
                self._handlers.send(frames.pop(0), now, may_wait=False)
            self._handle(frames)
        except (RemoteProtocolError, Refused) as error:
            self._fail(error)
        if self.is_held_back:
            self._unread = data
            if not self.is_resting and first is not None and self._parked[0] is first:
                # Others took the room. This frame has waited before.
                self._broker.sends.wait_on(self.session)
        else:
            self.receive_data(data, now)

    def pause(self) -> None:
        """The peer is not read for a while: what it does not say meanwhile proves nothing."""
        self.heartbeat.pause()
        self._frame_began_at = None

    def resume(self, now: float) -> None:
        """It is read again; its time starts anew."""
        self.heartbeat.resume(now)
        self._time_frame(now, is_within_frame=bool(self._parser.held))

    def note_partial(self, now: float, *, is_partial: bool) -> None:
        """Bytes have come that stand outside of STOMP's frames for now, or have become some."""
        self._time_frame(now, is_within_frame=is_partial or bool(self._parser.held))

    def _time_frame(self, now: float, *, is_within_frame: bool) -> None:
        if not is_within_frame:
            self._frame_began_at = None
        elif self._frame_began_at is None:
            self._frame_began_at = now

    def receive_eof(self, now: float) -> None:
        """The connection is gone. Settle what it leaves behind."""
        self._now = now
        if self.is_held_back:
            self.is_held_back = self.is_resting = False
            with contextlib.suppress(RemoteProtocolError, Refused):  # the peer is gone
                self._finish_parked()
        if not self.is_finished:
            self._finish(lost=True)
        # The peer cannot read it any more. A delivery refers to its subscription, and that to the session, so
        # only the garbage collector would free the messages.
        self.session.held.clear()
        self.session.take_outbox()

    def tick(self, now: float) -> float:
        """Look at the clock: beat, or find the peer silent. Returns when to look again."""
        if self.is_finished:
            return self._wait_with_error(now)
        if not is_open(self._state):
            if now >= self._connect_before:
                self.fail("no CONNECT came in time", now)
            return self._connect_before
        # A frame that begins after this is late then, or later.
        began_at = now if self._frame_began_at is None else self._frame_began_at
        frame_before = began_at + self._broker.limits.frame_timeout
        if self.heartbeat.is_dead(now):
            self.fail("no heart-beat came in time", now)
        elif now >= frame_before and self._frame_began_at is not None:
            self.fail("a frame took too long", now)
        elif self.heartbeat.beat_due(now):
            # If a slow peer's outbox waits, the bytes in it serve as a beat.
            self.heartbeat.last_sent = now
            if not self.session.outbox:
                self.session.say(BEAT)
        return min(self.heartbeat.next_deadline(now), frame_before)

    def fail(self, message: str, now: float) -> None:
        """End the connection with an ERROR, for a reason that lies outside its frames.

        It does not wait for the store. An ERROR that waits already is sent now.
        """
        if not self.is_finished:
            self._now = now
            self._fail(RemoteProtocolError(message), waits=False)
        elif self._error_before is not None:
            self._wait_with_error(float("inf"))

    def take_output(self, now: float) -> list[bytes]:
        """The bytes to be written now, in order; see `Encoder.outbox`."""
        self.heartbeat.last_sent = now
        return self._handlers.encoder.outbox(self.session.take_outbox(), now)

    def _handle(self, frames: list[Frame]) -> None:
        """Handle frames in their order, until one of them is followed by something else than the next.

        Raises:
            RemoteProtocolError: a frame is not legal, or its handler found a fault.
        """
        handled, handlers, now = self._handled, self._handlers, self._now
        journal = self._broker.journal
        is_over, left = self.is_turn_over, FRAMES_BETWEEN_LOOKS
        rest = iter(frames)
        try:
            for frame in rest:
                try:
                    handler, needed, next_state, rule = handled[frame.command]
                except KeyError:
                    raise RemoteProtocolError(TABLE.refusal(self._state, frame.command)) from None
                # With a value in the memo they were checked when the first frame with them came.
                memo = frame.memo
                if (memo is None or memo.value is None) and not frame.headers.get(needed):
                    rule.check(frame)
                if journal is not None:
                    journal.told = None  # this frame has told the store nothing yet
                then = handler(handlers, frame, now)
                if then is not None or next_state is not None:
                    self._follow(then, next_state, frame, [*rest])
                    return
                if is_over is not None:
                    left = left - 1 or FRAMES_BETWEEN_LOOKS
                    if left == FRAMES_BETWEEN_LOOKS and is_over():
                        self._hold_back([*rest], is_resting=True)
                        return
        except Refused as error:
            raise RemoteProtocolError(error.detail, receipt=frame.receipt) from error
        except RemoteProtocolError as error:
            error.receipt = frame.receipt  # handlers leave it to us, which frame it was (A.11.5)
            raise

    def _follow(self, then: Then | None, next_state: State | None, frame: Frame, rest: list[Frame]) -> None:
        """Do what comes after `frame`, unless it is the next one. `rest` are the frames behind it."""
        if next_state is not None:
            self._change_state(next_state)
        if self.is_finished:
            self._finish(lost=False)
        elif then is Then.ADMIT:
            self._enter()
        elif then is Then.REST:
            self._hold_back(rest, is_resting=True)
        elif then is Then.HOLD_BACK:
            self._hold_back([frame, *rest], is_resting=False)

    def _hold_back(self, frames: list[Frame], *, is_resting: bool) -> None:
        """Read no further: these frames wait, and what is unread behind them.

        Args:
            is_resting: other connections are served first; otherwise there is no room.
        """
        if not self.is_held_back and not self.is_finished:
            self.is_held_back, self.is_resting = True, is_resting
            self._park(frames)
            self.pause()

    def _park(self, frames: list[Frame]) -> None:
        """Have these frames wait, and none that waited before."""
        self._parked = frames
        self._parked_bytes = _cost_bytes(frames) if frames else 0

    def _finish_parked(self) -> None:
        """STOMP 1.2, "RECEIPT": what was received should still be processed."""
        for frame in (*self._parked, *self._parser.feed(self._unread)):
            bound = self._handled.get(frame.command)
            if bound is None:
                return  # nothing counts behind it
            handler, _, next_state, rule = bound
            rule.check(frame)
            self._begin_frame()
            if frame.command == "SEND":
                self._handlers.send(frame, self._now, may_wait=False)
            elif frame.command != "SUBSCRIBE":  # the peer is gone
                handler(self._handlers, frame, self._now)
            if next_state is not None:
                self._finish(lost=False)
                return

    def _begin_frame(self) -> None:
        if self._broker.journal is not None:
            self._broker.journal.told = None

    def _change_state(self, state: State) -> None:
        self._state = state
        self.is_finished = TABLE.is_final(state)
        acks_by_message_id = self.session.profile.acks_by_message_id
        self._handled = _handled(state, self._handlers.dialect, acks_by_message_id=acks_by_message_id)

    def _fail(self, error: RemoteProtocolError | Refused, *, waits: bool = True) -> None:
        """Send an ERROR and finish (A.9.4, A.11.3).

        Args:
            waits: RECEIPTs that wait for the store come first. A peer that pipelines frames would otherwise
                take accepted messages for lost.
        """
        # Refused texts are made for peers; so are those of the codec.
        message = error.detail if isinstance(error, Refused) else str(error)
        receipt = error.receipt if isinstance(error, RemoteProtocolError) else None
        self.fault = message
        if isinstance(error, NoCommonVersion):
            data = version_error(message, self.session.profile.dialects)
        else:
            data = error_frame(message, receipt, self._handlers.dialect)
        if waits and self.session.held:
            self._error_before = self._now + ERROR_WAIT_SECONDS
            self._broker.receipts.say_last(self.session, data)
            self._finish(lost=True, is_told=True)
        else:
            self.session.say(data)
            self._finish(lost=True)
        # The parser keeps it, and by its traceback it would keep us: only the collector frees such rings.
        error.__traceback__ = error.__context__ = None

    def _fail_unless_over(self, fault: RemoteProtocolError) -> None:
        if not (self.is_held_back or self.is_finished):
            self._fail(fault)

    def _wait_with_error(self, now: float) -> float:
        """Send an ERROR that waits behind RECEIPTs, if its deadline is over. Returns when to call again."""
        held, before = self.session.held, self._error_before
        if before is None or not held:
            return float("inf")
        if now < before:
            return before
        self._error_before = None
        _, data = held[-1]
        assert isinstance(data, bytes), "an ERROR is the last that is held"
        held.clear()
        self.session.say(data)
        return float("inf")

    def _finish(self, *, lost: bool, is_told: bool = False) -> None:
        self._change_state(TABLE.after(self._state, ENDED))
        self.is_held_back = self.is_resting = False
        self._park([])
        self._unread = b""
        self._parser.forget_heads()
        # A DISCONNECT has closed the session before its RECEIPT.
        if lost:
            self._broker.close_session(self.session, self._now, lost=True, is_told=is_told)
            if not is_told:
                self.session.held.clear()
        # The shell closes it, also where there is nothing more to write.
        self.session.dirty.append(self.session)

    def admit(self, principal: str, now: float) -> None:
        """The `credentials` are good: the peer is `principal`."""
        if self.is_finished or self.credentials is None:
            return
        self._now = now
        self.session.identify(principal)
        try:
            self._enter()
        except (RemoteProtocolError, Refused) as error:
            self._fail(error)

    def _enter(self) -> None:
        """The peer is identified: the session begins."""
        theirs = self._handlers.enter(self._now)
        self._change_state(TABLE.after(self._state, ADMITTED))
        ours = heart_beat_of(*self.session.profile.heart_beat)
        if self._handlers.dialect.announces_version:
            self.heartbeat = Heartbeat(*negotiate_intervals(ours, theirs), now=self._now)
        self._parser.begin(self._handlers.dialect)
        # What came behind CONNECT is read in the negotiated version.
        self.receive_data(b"", self._now)


def _cost_bytes(frames: list[Frame]) -> int:
    """What frames of one slice take, roughly. Few are looked at: NACKs have the same ones wait one by one."""
    some = frames[:: len(frames) // _FRAMES_LOOKED_AT + 1]
    heads = len({id(frame.headers) for frame in some})
    # A large body ends in the slice that it is read with, so it is the first frame's.
    return len(frames[0].body) + len(frames) * (_FRAME_COST_BYTES + _HEADERS_COST_BYTES * heads // len(some))
