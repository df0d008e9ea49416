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
from typing import Any, Final

from nebula import headers as names
from nebula.broker.core.broker import Broker
from nebula.broker.core.fixed_limits import (
    ERROR_WAIT_SECONDS,
    FRAMES_AT_ONCE,
    FRAMES_BETWEEN_LOOKS,
    SLICE_BYTES,
    SLICES_AT_ONCE,
)
from nebula.broker.core.session import Session
from nebula.broker.protocol.encoding import Encoder, error_frame, to_client, version_error
from nebula.broker.protocol.frame_clock import FrameClock
from nebula.broker.protocol.handlers import Dialogue, Then
from nebula.broker.protocol.requests import check_connect
from nebula.errors import Refused, RemoteProtocolError
from nebula.stomp.codec import FrameParser
from nebula.stomp.dialects import V1_2, Dialect, negotiate
from nebula.stomp.frames import CLIENT_COMMANDS, Frame
from nebula.stomp.heartbeat import BEAT, Heartbeat, negotiate_intervals, parse_heart_beat

__all__ = ["ServerProtocol"]


# What CPython takes for a frame that waits, beside its body; and for its headers, which several may share.
_FRAME_COST_BYTES: Final = 120
_HEADERS_COST_BYTES: Final = 500
_FRAMES_LOOKED_AT: Final = 16


class State(Enum):
    """Where a connection is in its life."""

    OPENING = auto()
    OPEN = auto()
    CLOSED = auto()


class ServerProtocol:
    """The server's end of one connection, without its socket.

    Feed it with `receive_data`. After any call `take_output`, look at `is_held_back` and `is_finished`.

    Args:
        broker: what the requests go to.
        session: this connection's session, made by `broker.open_session`.
        server: how we name ourselves in CONNECTED.
        now: when the connection was accepted.
        authenticates: who the peer is has to be found out from what its CONNECT says.

    Attributes:
        credentials: login and passcode of a CONNECT that waits for `admit` or `fail`; else None.
        is_held_back: do not read the peer until `go_on`: there is no room for more, or it `is_resting`.
        is_resting: it gave us much to do, and there is more: call `go_on` when the others had their turn.
        is_finished: nothing more is to be read. Write what there is, then close.
        fault: the text of the ERROR that ended the connection, if one did.
        received_frames: the number of frames that were read, heart-beats not counted.
        is_turn_over: asked after some frames, to rest where others are at work; None: nobody else is.
    """

    def __init__(
        self, broker: Broker, session: Session, *, server: str, now: float, authenticates: bool = False
    ) -> None:
        self.session = session
        self.credentials: tuple[str | None, str | None] | None = None
        self.is_held_back = False
        self.is_resting = False
        self.is_finished = False
        self.is_turn_over: Callable[[], bool] | None = None
        self.fault: str | None = None
        self.received_frames = 0
        self.version: str | None = None
        self.heartbeat = Heartbeat(0.0, 0.0, now=now)
        self._broker = broker
        self._now = now
        self._server = server
        self._authenticates = authenticates
        self._connect_fields: Mapping[str, str] = {}
        self._parser = FrameParser(CLIENT_COMMANDS, broker.limits.frames)
        self._dialect: Dialect = V1_2  # until CONNECT: an ERROR in it is legible to everyone
        self._dialogue = self._begin_dialogue()
        self._handlers = _LEGAL[State.OPENING]
        self._taker: ServerProtocol | Dialogue = self
        # Deadline of an ERROR that waits behind RECEIPTs; None: no ERROR waits.
        self._error_before: float | None = None
        self._connect_before = now + broker.limits.connect_timeout
        self._frame_clock = FrameClock(broker.limits.frame_timeout)
        # Frames and octets that came before we knew that we have to hold the peer back.
        self._parked: list[Frame] = []
        self._parked_bytes = 0
        self._unread = b""

    @property
    def may_close(self) -> bool:
        """All that the peer has to be told was put into its outbox."""
        return self.is_finished and not self.session.held

    @property
    def unread_bytes(self) -> int:
        """What has come and was not handled yet; frames that wait at what they cost."""
        return self._parser.held_bytes + len(self._unread) + self._parked_bytes

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
        was_resting = self.is_resting
        self.is_held_back = self.is_resting = False
        self.heartbeat.resume(now)
        self._now = now
        frames = self._parked
        self._park([])
        first = None if was_resting or in_vain or not frames else frames[0]
        data, self._unread = self._unread, b""
        try:
            if self._dialogue.go_on():
                self._unread = data
                self._rest(frames)
                return
            if in_vain:
                self._dialogue.now = now
                self._begin_frame()
                self._dialogue.send(frames.pop(0), may_wait=False)
            self._handle(frames)
        except (RemoteProtocolError, Refused) as error:
            self._fail(error)
        if self.is_held_back:
            self._unread = data
            if not self.is_resting and first is not None and self._parked[0] is first:
                # Others took the room. This frame has waited before.
                self._broker.sends.wait_on(self.session, self.session.waited_until)
        elif not self.is_finished:
            self._receive(data)

    def pause(self) -> None:
        """The peer is not read for a while: what it does not say meanwhile proves nothing."""
        self.heartbeat.pause()
        self._frame_clock.stop()

    def resume(self, now: float) -> None:
        """It is read again; its time starts anew."""
        self.heartbeat.resume(now)
        self._frame_clock.note(now, is_within_frame=self._parser.is_within_frame)

    def note_partial(self, now: float, *, is_partial: bool) -> None:
        """Octets have come that stand outside of STOMP's frames for now, or have become some."""
        self._frame_clock.note(now, is_within_frame=is_partial or self._parser.is_within_frame)

    def receive_eof(self, now: float) -> None:
        """The connection is gone. Settle what it leaves behind."""
        self._now = now
        if self.is_held_back:
            self.is_held_back = self.is_resting = False
            with contextlib.suppress(RemoteProtocolError, Refused):  # nobody is left to be told
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
        if self.version is None:
            if now >= self._connect_before:
                self.fail("no CONNECT came in time", now)
            return self._connect_before
        if self.heartbeat.is_dead(now):
            self.fail("no heart-beat came in time", now)
        elif self._frame_clock.is_overdue(now):
            self.fail("a frame took too long", now)
        elif self.heartbeat.beat_due(now):
            # Also where a slow peer's outbox waits: what it has not read yet is as good as a beat.
            self.heartbeat.last_sent = now
            if not self.session.outbox:
                self.session.say(BEAT)
        return min(self.heartbeat.next_deadline(now), self._frame_clock.deadline(now))

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
        """The octets to be written now, in order; see `Encoder.outbox`."""
        self.heartbeat.last_sent = now
        return self._encoder.outbox(self.session.take_outbox(), now)

    def _receive(self, data: bytes) -> None:
        count = slices = 0
        for begin in range(0, len(data), SLICE_BYTES) or (0,):
            if self.is_finished:
                return
            if self.is_held_back:
                self._unread = data[begin:]
                return
            end = begin + SLICE_BYTES
            frames = self._receive_slice(data[begin:end])
            count += frames
            slices += frames > 0
            if (count >= FRAMES_AT_ONCE or slices >= SLICES_AT_ONCE) and end < len(data):
                self._rest([])
        if not self.is_held_back:
            self._frame_clock.note(self._now, is_within_frame=self._parser.is_within_frame)

    def _receive_slice(self, data: bytes) -> int:
        """Do what so many octets say; returns how many frames that were."""
        parser = self._parser
        count = 0
        try:
            while frames := parser.feed(data):
                count += len(frames)
                self._frame_clock.stop()
                was_opening = self.version is None
                self._handle(frames)
                if not was_opening or self.is_finished:
                    break
                data = b""  # what came behind CONNECT is to be read in the negotiated version
            if parser.failure is not None and not self.is_held_back and not self.is_finished:
                raise parser.failure
        except (RemoteProtocolError, Refused) as error:
            self._fail(error)
        self.received_frames += count
        return count

    def _handle(self, frames: list[Frame]) -> None:
        handlers, taker, dialogue = self._handlers, self._taker, self._dialogue
        dialogue.now = self._now
        journal = self._broker.journal
        is_over, left = self.is_turn_over, FRAMES_BETWEEN_LOOKS
        rest = iter(frames)
        for frame in rest:
            handler = handlers.get(frame.command)
            if handler is None:
                raise RemoteProtocolError(self._why_illegal(frame), receipt=frame.receipt)
            if journal is not None:
                journal.told = None  # this frame has told the store nothing yet
            try:
                then = handler(taker, frame)
            except Refused as error:
                raise RemoteProtocolError(error.detail, receipt=frame.receipt) from error
            if then is None:
                if is_over is not None:
                    left -= 1
                    if not left:
                        left = FRAMES_BETWEEN_LOOKS
                        if is_over():
                            self._rest([*rest])
                            return
                continue
            if then is Then.HOLD_BACK:
                self.is_held_back = True
                self._park([frame, *rest])
                self.pause()
            elif then is Then.REST:
                self._rest([*rest])
            else:
                self._finish(lost=False)
            return

    def _begin_frame(self) -> None:
        if self._broker.journal is not None:
            self._broker.journal.told = None

    def _rest(self, frames: list[Frame]) -> None:
        """The others have their turn before these frames, and before what is unread."""
        if not self.is_held_back and not self.is_finished:
            self.is_held_back = self.is_resting = True
            self._park(frames)
            self.pause()

    def _park(self, frames: list[Frame]) -> None:
        """Have these frames wait, and none that waited before."""
        self._parked = frames
        self._parked_bytes = _cost_bytes(frames) if frames else 0

    def _finish_parked(self) -> None:
        """STOMP 1.2, "RECEIPT": what was received should still be processed."""
        dialogue = self._dialogue
        dialogue.now = self._now
        for frame in (*self._parked, *self._parser.feed(self._unread)):
            self._begin_frame()
            if frame.command == "SEND":
                dialogue.send(frame, may_wait=False)
            elif frame.command == "DISCONNECT":
                self._finish(lost=False)
                return
            elif frame.command not in self._handlers:
                return  # nothing counts behind it
            elif frame.command != "SUBSCRIBE":  # nobody is left to be served
                self._handlers[frame.command](dialogue, frame)

    def _why_illegal(self, frame: Frame) -> str:
        if self.version is None:
            return f"{frame.command} came before CONNECT"
        return f"{frame.command} is not legal in an open session"

    def _fail(self, error: RemoteProtocolError | Refused, *, waits: bool = True) -> None:
        """Send an ERROR and finish.

        Args:
            waits: RECEIPTs that wait for the store come first. A peer that pipelines frames would otherwise
                take accepted messages for lost.
        """
        # Refused texts are made for peers; so are those of the codec.
        message = error.detail if isinstance(error, Refused) else str(error)
        receipt = error.receipt if isinstance(error, RemoteProtocolError) else None
        self.fault = message
        octets = error_frame(message, receipt, self._dialect)
        held = self.session.held
        if waits and held:
            self._error_before = self._now + ERROR_WAIT_SECONDS
            self._broker.receipts.say_last(self.session, octets)
            self._finish(lost=True, is_told=True)
        else:
            self.session.say(octets)
            self._finish(lost=True)
        # The parser keeps it, and by its traceback it would keep us: only the collector frees such rings.
        error.__traceback__ = error.__context__ = None

    def _wait_with_error(self, now: float) -> float:
        """Send an ERROR that waits behind RECEIPTs, if its deadline is over. Returns when to call again."""
        held, before = self.session.held, self._error_before
        if before is None or not held:
            return float("inf")
        if now < before:
            return before
        self._error_before = None
        _, octets = held[-1]
        assert isinstance(octets, bytes), "an ERROR is the last that is held"
        held.clear()
        self.session.say(octets)
        return float("inf")

    def _finish(self, *, lost: bool, is_told: bool = False) -> None:
        self.is_finished = True
        self.is_held_back = self.is_resting = False
        self._park([])
        self._unread = b""
        self._handlers = _LEGAL[State.CLOSED]
        self._parser.forget_heads()
        is_told = is_told or not lost
        self._broker.close_session(self.session, self._now, lost=lost, is_told=is_told)
        if not is_told:
            self.session.held.clear()
        # Also who has nothing more to be told is to be closed by the shell.
        self.session.dirty.append(self.session)

    # CONNECT, STOMP

    def _connect(self, frame: Frame) -> None:
        fields: Mapping[str, str] = frame.headers
        offered = fields.get("accept-version")
        if offered is None:
            # D.45: by the rules of 1.0, which trims.
            fields = {name.strip(" "): value.strip(" ") for name, value in fields.items()}
        dialect = negotiate(offered, self.session.profile.dialects)
        if dialect is None:
            self._refuse_version()
            return
        # An ERROR from here on is in the version that both know.
        self._dialect = dialect
        check_connect(fields, self.session.profile, self._broker.limits)
        self._connect_fields = fields
        if self._authenticates:
            # The parser reads on after `admit`.
            self.credentials = (fields.get("login"), fields.get("passcode"))
            self._handlers = _LEGAL[State.CLOSED]
        else:
            self._enter()

    def admit(self, principal: str, now: float) -> None:
        """The `credentials` are good: the peer is `principal`."""
        if self.is_finished or self.credentials is None:
            return
        self.credentials = None
        self._now = now
        self._broker.identify(self.session, principal)
        try:
            self._enter()
        except (RemoteProtocolError, Refused) as error:
            self._fail(error)
            return
        self._receive_slice(b"")

    def _enter(self) -> None:
        """It is known who the peer is: the session begins."""
        fields, self._connect_fields = self._connect_fields, {}
        # A fault in it is found before anybody else's session is taken over.
        heart_beat = parse_heart_beat(fields.get("heart-beat") if self._dialect.announces_version else None)
        self._broker.enter(self.session, fields.get(names.CLIENT_ID), self._now)
        self._dialogue = self._taker = self._begin_dialogue()
        self.version = self._dialect.version
        self._handlers = _LEGAL[State.OPEN]
        self._parser.begin(self._dialect)
        self._say_connected(heart_beat)

    def _begin_dialogue(self) -> Dialogue:
        self._encoder = Encoder(self._dialect, self._broker.incarnation, self.session.profile)
        return Dialogue(self._broker, self.session, self._encoder, self._dialect, self._now)

    def _say_connected(self, theirs: tuple[int, int]) -> None:
        profile = self.session.profile
        ours = profile.heart_beat
        reply = {"session": self.session.id}
        if self._dialect.announces_version:
            self.heartbeat = Heartbeat(*negotiate_intervals(ours, theirs), now=self._now)
            reply = {"version": self._dialect.version, **reply}
            if profile.names_server:
                reply["server"] = self._server
            reply["heart-beat"] = f"{ours[0]},{ours[1]}"  # D.2: also to clients that sent none
        self.session.say(to_client(Frame("CONNECTED", reply), self._dialect))

    def _refuse_version(self) -> None:
        self.fault = "no protocol version in common"
        self.session.say(version_error(self.fault, self.session.profile.dialects))
        self._finish(lost=True)


_Handler = Callable[[Any, Frame], Then | None]

# What is legal when, and who takes it. The only place that compares states.
_LEGAL: Final[Mapping[State, Mapping[str, _Handler]]] = {
    State.OPENING: {
        "CONNECT": ServerProtocol._connect,
        "STOMP": ServerProtocol._connect,
    },
    State.OPEN: {
        "SEND": Dialogue.send,
        "ACK": Dialogue.ack,
        "NACK": Dialogue.nack,
        "SUBSCRIBE": Dialogue.subscribe,
        "UNSUBSCRIBE": Dialogue.unsubscribe,
        "BEGIN": Dialogue.begin,
        "COMMIT": Dialogue.commit,
        "ABORT": Dialogue.abort,
        "DISCONNECT": Dialogue.disconnect,
    },
    State.CLOSED: {},
}


def _cost_bytes(frames: list[Frame]) -> int:
    """What frames of one slice take, roughly. Few are looked at: NACKs have the same ones wait one by one."""
    some = frames[:: len(frames) // _FRAMES_LOOKED_AT + 1]
    heads = len({id(frame.headers) for frame in some})
    # A large body ends in the slice that it is read with, so it is the first frame's.
    return len(frames[0].body) + len(frames) * (_FRAME_COST_BYTES + _HEADERS_COST_BYTES * heads // len(some))
