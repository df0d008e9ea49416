"""The far end of a connection: its address, its identity by certificate, and the bytes to and from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nebula.broker.operations.traffic import Traffic
from nebula.broker.operations.views import ConnectionFacts
from nebula.broker.protocol.server_protocol import ServerProtocol
from nebula.broker.server.admission import place_of
from nebula.broker.server.identity import ANONYMOUS_IDENTITY, Identity
from nebula.broker.server.inflight import Load, load_of
from nebula.broker.server.listener import Listener

IN_PROCESS: Final = Listener()
"""The listener of clients in this process, which need no socket."""


class Peer:
    """A transport, and what is known about its far end.

    Args:
        transport: open.
        listener: whose rules apply.
        now: when it was accepted.

    Attributes:
        host: its address; None: in this process.
        address: the same with the port.
        traffic: counts bytes.
        held_before_bytes: what the transport has read and cannot hand on yet.
        protocol: the broker's side of the connection; set by its owner before bytes flow.
    """

    def __init__(self, transport: Any, listener: Listener, now: float) -> None:
        self.traffic = Traffic()
        self._transport = transport
        self._listener = listener
        self._since = now
        # Of what the transport has not written: bodies that other peers share, and bytes of this peer alone.
        self._large: Sequence[bytes] = ()
        self._own_unwritten_bytes = 0
        self.held_before_bytes = 0
        self.protocol: ServerProtocol
        # Read now: a transport that is closed may not know its addresses any more. A client in this process
        # has none.
        is_remote = listener is not IN_PROCESS
        peername = transport.get_extra_info("peername") if is_remote else None
        self.host: str | None = peername[0] if peername else None
        self.address = f"{peername[0]}:{peername[1]}" if peername else None
        self._sockname = transport.get_extra_info("sockname") if is_remote else None

    def detach(self) -> None:
        """Drop the closed transport, which refers back to its connection."""
        self._transport = None

    @property
    def local_address(self) -> str | None:
        """The listener's end, as a URL; None: in this process."""
        name = self._sockname
        return f"{self._listener.scheme}://{name[0]}:{name[1]}" if name else None

    def age_seconds(self, now: float) -> float:
        """How long ago it was accepted."""
        return now - self._since

    @property
    def place(self) -> str:
        """The key of its address, see `place_of`."""
        return "" if self.host is None else place_of(self.host)

    @property
    def log_fields(self) -> dict[str, str]:
        """The peer's principal and session, as fields of log events."""
        session = self.protocol.session
        return {"principal": session.principal, "session": session.id}

    def identify(self, wall: float) -> Identity | None:
        """The peer's identity; None: it cannot be known before it speaks.

        Args:
            wall: seconds since 1970.

        Raises:
            Refused: its certificate is not good enough.
        """
        tls = self._listener.tls
        ssl_object = None if tls is None else self._transport.get_extra_info("ssl_object")
        identity = None if tls is None or ssl_object is None else tls.identify(ssl_object, wall)
        if identity is None and self._listener.authenticator is None:
            return ANONYMOUS_IDENTITY
        return identity

    def write(self, pieces: Sequence[bytes]) -> None:
        """Hand the output of `Encoder.outbox` to the transport."""
        # Piece by piece, because joining them would copy large bodies (`LARGE_BODY_BYTES`).
        for piece in pieces:
            self.traffic.written_bytes += len(piece)
            self._transport.write(piece)

    def remember(self, pieces: Sequence[bytes]) -> None:
        """Remember what the transport could not write at once. Nothing more is handed to it until it has."""
        # An encoded outbox alternates: bytes of this peer, then a large body that others may share.
        self._large = pieces[1::2]
        self._own_unwritten_bytes = sum(map(len, pieces[::2]))

    def forget(self) -> None:
        """The transport has written everything."""
        self._large = ()

    @property
    def unwritten_bytes(self) -> int:
        """What the transport could not write yet."""
        if self._transport is None:
            return 0
        size: int = self._transport.get_write_buffer_size()
        return size

    @property
    def most_in_flight_bytes(self) -> int:
        """Bytes on their way to and from the peer; shared bytes count as its own. Cheap.

        A connection that was ended counts too: the peer may take seconds to read what was written to it.
        """
        return self.unwritten_bytes + self.protocol.session.outbox_bytes + self._held_bytes

    @property
    def _held_bytes(self) -> int:
        protocol = self.protocol
        if protocol.is_finished:
            return 0
        return protocol.session.held_bytes + protocol.unread_bytes + self.held_before_bytes

    def load(self) -> Load:
        """The exact numbers, with shared bytes apart."""
        own_bytes = self.unwritten_bytes
        if self._large:
            # What is written first is not known, so the smaller of both: shared bodies are counted apart.
            own_bytes = min(own_bytes, self._own_unwritten_bytes)
        return load_of(own_bytes + self._held_bytes, self._large, self.protocol.session.outbox)

    def facts(self, now: float, *, waits_for_store: bool) -> ConnectionFacts:
        """What operators see of the connection."""
        traffic = self.traffic
        return ConnectionFacts(
            self.address or "in process",
            self._listener.scheme,
            self._listener.profile.name,
            self.protocol.version,
            now - self._since,
            traffic.read_bytes,
            traffic.written_bytes,
            traffic.sent_frames,
            self.unwritten_bytes,
            self.protocol.is_held_back or waits_for_store,
        )
