"""The client's side of one STOMP connection: frames that may go out now, frames that may come in.

Sans-I/O: bytes and the time go in, frames and bytes come out. Ids of receipts, subscriptions and transactions
are chosen by the caller. What is legal in which state, and which state is next, is read from
`nebula.stomp.client_states`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from nebula.errors import LocalProtocolError, RemoteProtocolError
from nebula.headers import CLIENT_ID, DURABLE, KEEP_UNACKED
from nebula.stomp.client_states import CLOSED, TABLE, State, is_connected
from nebula.stomp.codec import FrameLimits, FrameParser, serialize
from nebula.stomp.dialects import DIALECTS, OPENING, V1_0, Dialect
from nebula.stomp.frames import SERVER_COMMANDS, Frame
from nebula.stomp.heartbeat import NO_HEART_BEAT, HeartBeat, Heartbeat, negotiate_intervals, parse_heart_beat

VERSIONS: Final = tuple(DIALECTS)
"""Every version that we speak, lowest first."""

# More than a broker takes from a sender, because the broker adds headers of its own, and escapes what a 1.0
# sender does not. With the same limits on both sides any sender could end any consumer's connection.
_LIMITS: Final = FrameLimits(max_headers=256, max_header_line_bytes=64 * 1024, max_head_bytes=256 * 1024)


class ClientProtocol:
    """The state machine of the client's side.

    Each method that is named like a frame returns the bytes to write, or raises `LocalProtocolError` if the
    frame is not legal now; nothing has changed then. `receive` never raises: it returns the frames of the
    server that were legal, and the first fault is in `failure`.

    Args:
        versions: what to offer; the highest that the server speaks too is used.
        heart_beat: what we guarantee and what we want, in milliseconds.
        limits: maximum sizes of a frame of the server.

    Attributes:
        state: where the connection is, see `nebula.stomp.client_states`.
        dialect: the rules of the negotiated version; those of 1.0 until CONNECTED arrives.
        heartbeat: timers, running from CONNECTED on. Set `last_sent` on every write.
        session: CONNECTED's `session`, as the server wrote it.
        server: CONNECTED's `server`.
        failure: the server's fault that ended the connection, or None.
    """

    def __init__(
        self,
        *,
        versions: Sequence[str] = VERSIONS,
        heart_beat: HeartBeat = NO_HEART_BEAT,
        limits: FrameLimits | None = None,
    ) -> None:
        if not versions or not DIALECTS.keys() >= set(versions):
            raise LocalProtocolError(f"versions {list(versions)!r} are not some of {list(DIALECTS)!r}")
        self.dialect: Dialect = V1_0
        self.heartbeat = Heartbeat(0.0, 0.0, now=0.0)
        self.session: str | None = None
        self.server: str | None = None
        self.failure: RemoteProtocolError | None = None
        self._versions = [version for version in DIALECTS if version in versions]
        self._heart_beat = heart_beat
        self._parser = FrameParser(SERVER_COMMANDS, limits or _LIMITS)
        self._change_state(TABLE.initial)

    @property
    def is_connected(self) -> bool:
        """Whether the session has begun, and DISCONNECT was not sent."""
        return is_connected(self.state)

    # --- what we receive ---

    def receive(self, data: bytes, now: float) -> list[Frame]:
        """Take bytes in any split; return the frames that they complete, in order.

        A MESSAGE has its `destination`, `message-id` and (1.1, 1.2) `subscription`, a RECEIPT
        its `receipt-id`. After an ERROR or a fault nothing more is read.
        """
        self.heartbeat.last_received = now
        legal: list[Frame] = []
        try:
            frames = self._parser.feed(data)
            while frames:
                for frame in frames:
                    self._take(frame, now)
                    legal.append(frame)
                # The parser stops after CONNECTED until it knows the version; more frames may follow.
                frames = self._parser.feed(b"") if frames[-1].command == "CONNECTED" else []
            # Frames before the fault were taken above. After an ERROR the rest is of no interest.
            if self._parser.failure is not None and not TABLE.is_final(self.state):
                raise self._parser.failure
        except RemoteProtocolError as error:
            self.failure = error
            self.end()
        return legal

    def _take(self, frame: Frame, now: float) -> None:
        rule = self._rules.get(frame.command)
        if rule is None:
            raise RemoteProtocolError(TABLE.refusal(self.state, frame.command))
        fields = frame.headers
        # Only if one is missing, `check` is called: it writes the message.
        for name in rule.required:
            if name not in fields:  # an empty value is the server's choice
                rule.check(frame)
        if rule.handler:
            self.begin_session(fields, now)
        if rule.next_state is not None:
            self._change_state(rule.next_state)

    def begin_session(self, headers: Mapping[str, str], now: float) -> None:
        """CONNECTED has arrived (A.9): take over its version, session and heart-beats."""
        # STOMP 1.1, "Protocol Negotiation": a server that names no version speaks 1.0.
        version = headers.get("version", V1_0.version)
        if version not in self._versions:
            raise RemoteProtocolError(f"CONNECTED with version {version[:20]!r}, which we did not offer")
        self.dialect = DIALECTS[version]
        self.session = headers.get("session")
        self.server = headers.get("server")
        if self.dialect.announces_version:
            theirs = parse_heart_beat(headers.get("heart-beat"))
            self.heartbeat = Heartbeat(*negotiate_intervals(self._heart_beat, theirs), now=now)
        # Before any frame behind CONNECTED is read: their escapes are those of this version.
        self._parser.begin(self.dialect)

    # --- what we send ---

    def connect(
        self,
        *,
        host: str,
        login: str | None = None,
        passcode: str | None = None,
        client_id: str | None = None,
    ) -> bytes:
        """CONNECT, the first frame.

        Raises:
            LocalProtocolError: not the first frame, or a value contains a line end: CONNECT has no escapes,
            so the rest of the value would be read as headers.
        """
        self._check("CONNECT")
        headers = {"host": host}
        # Without `accept-version` a client is a 1.0 one (STOMP 1.1, "Protocol Negotiation"), and
        # 1.0 knows neither the header nor heart-beats.
        if self._versions != [V1_0.version]:
            headers["accept-version"] = ",".join(self._versions)
            headers["heart-beat"] = "{},{}".format(*self._heart_beat)
        said = {"login": login, "passcode": passcode, CLIENT_ID: client_id}
        headers |= {name: text for name, text in said.items() if text is not None}
        for name, value in headers.items():
            if "\n" in value or "\r" in value or "\0" in value:
                raise LocalProtocolError(f"CONNECT cannot express a line's end or a NUL in {name}")
        self._sent("CONNECT")
        return serialize(Frame("CONNECT", headers), OPENING)

    def send(
        self,
        destination: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        receipt: str | None = None,
        transaction: str | None = None,
    ) -> bytes:
        """SEND. Our headers come before `headers`, and the first of repeated headers counts (A.3)."""
        self._check("SEND")
        if "receipt" in headers:
            raise LocalProtocolError("a receipt is asked for by an argument, not by a header")
        own = {"destination": destination, "content-length": str(len(body))}
        if receipt is not None:
            own["receipt"] = receipt
        if transaction is not None:
            own["transaction"] = transaction
        return b"SEND\n%b\n%b\0" % (self._block(own, headers), body)

    def subscribe(
        self,
        subscription: str,
        destination: str,
        ack: str,
        headers: Mapping[str, str],
        *,
        receipt: str | None = None,
    ) -> bytes:
        """SUBSCRIBE under an id that is unique on this connection. `ack` is the ack mode."""
        own = {"id": subscription, "destination": destination, "ack": ack}
        return self._frame("SUBSCRIBE", {**headers, **own}, receipt)

    def unsubscribe(self, subscription: str, *, removes: bool = False, receipt: str | None = None) -> bytes:
        """UNSUBSCRIBE. Messages that were delivered and not acked go back to the server.

        A durable subscription is paused, or removed for good with `removes` (D.3).
        """
        headers = {"id": subscription} | ({DURABLE: "true"} if removes else {})
        return self._frame("UNSUBSCRIBE", headers, receipt)

    def drain(self, subscription: str) -> bytes:
        """UNSUBSCRIBE that leaves messages that were delivered and not acked with us (G.drain). Only Nebula's
        broker knows it."""
        return self._frame("UNSUBSCRIBE", {"id": subscription, KEEP_UNACKED: "true"})

    def ack(
        self,
        message: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        *,
        transaction: str | None = None,
        receipt: str | None = None,
    ) -> bytes:
        """ACK `message`, in the version's form. `headers` are the server's extensions."""
        self._check("ACK")
        is_plain = headers is None and transaction is None and receipt is None
        if is_plain and self.dialect.ack_by_id and "ack" in message:
            # The common case, once for each message that is consumed, is written out.
            return f"ACK\nid:{self.dialect.escape(message['ack'])}\n\n\0".encode()
        return self._frame("ACK", {**self._names_of(message, transaction), **(headers or {})}, receipt)

    def nack(
        self, message: Mapping[str, str], headers: Mapping[str, str], *, transaction: str | None = None
    ) -> bytes:
        """NACK the message with these headers; `headers` are the server's extensions."""
        self._check("NACK")
        if not self.dialect.has_nack:
            raise LocalProtocolError(f"STOMP {self.dialect.version} has no NACK")
        return self._frame("NACK", {**headers, **self._names_of(message, transaction)})

    def _names_of(self, message: Mapping[str, str], transaction: str | None) -> dict[str, str]:
        """The headers by which ACK and NACK name a message; the versions differ (A.6)."""
        if self.dialect.ack_by_id:
            if "ack" not in message:
                raise LocalProtocolError("the server wants no acknowledgement of this message")
            names = {"id": message["ack"]}
        else:
            names = {"message-id": message["message-id"]}  # D.42
            if self.dialect.needs_subscription_id:
                names["subscription"] = message["subscription"]
        return names if transaction is None else {**names, "transaction": transaction}

    def begin(self, transaction: str) -> bytes:
        """BEGIN a transaction under an id that is unique on this connection."""
        return self._frame("BEGIN", {"transaction": transaction})

    def commit(self, transaction: str, *, receipt: str | None = None) -> bytes:
        """COMMIT: everything that was sent, acked and nacked under this id, or nothing."""
        return self._frame("COMMIT", {"transaction": transaction}, receipt)

    def abort(self, transaction: str) -> bytes:
        """ABORT: nothing of the transaction takes effect."""
        return self._frame("ABORT", {"transaction": transaction})

    def disconnect(self, receipt: str) -> bytes:
        """DISCONNECT, the last frame; its RECEIPT says that everything before it was processed."""
        frame = self._frame("DISCONNECT", {}, receipt)
        self._sent("DISCONNECT")
        return frame

    def end(self) -> None:
        """The connection has ended: nothing is legal any more."""
        self._change_state(TABLE.after(self.state, CLOSED))

    def _change_state(self, state: State) -> None:
        self.state = state
        self._rules = TABLE.rules(state, self.dialect)

    def _check(self, command: str) -> None:
        if command not in self._rules:
            raise LocalProtocolError(TABLE.refusal(self.state, command))

    def _sent(self, command: str) -> None:
        self._change_state(TABLE.after(self.state, command))

    def _frame(self, command: str, headers: Mapping[str, str], receipt: str | None = None) -> bytes:
        self._check(command)
        return serialize(Frame(command, headers, receipt=receipt), self.dialect)

    def _block(self, own: Mapping[str, str], headers: Mapping[str, str]) -> bytes:
        lines = [f"{name}:{value}\n" for name, value in own.items()]
        lines += [f"{name}:{value}\n" for name, value in headers.items()]
        block = "".join(lines)
        # If the block has exactly the expected colons and line feeds, no value needs an escape. Counting them
        # in the whole block takes a third of the time of checking each value.
        size = len(lines)
        has_escapes = "\\" in block or "\r" in block or "\0" in block
        if has_escapes or block.count(":") != size or block.count("\n") != size:
            return self.dialect.header_block([*own.items(), *headers.items()])
        return block.encode()
