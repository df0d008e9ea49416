"""End story: why a connection ends, and the log event that tells it.

The reasons come from several places: the core ends a session, a certificate expires, an operator stops the
broker, the peer breaks a rule. Often one leads to the next, so the first reason that is noted counts.
"""

from __future__ import annotations

from typing import Final

from nebula.broker.operations.events import ConnectionEnd, EndReason, unquoted
from nebula.broker.server.lifetimes import NOT_ADMITTED, TOO_OLD
from nebula.broker.server.peer import Peer

NO_ROOM: Final = "the broker has no room for what is on its way to and from you"
"""What a peer is told whose connection is ended because all in-flight bytes together are above their cap."""

CORE_ENDINGS: Final = {
    "an operator has ended the connection": EndReason.OPERATOR,
    "an operator has ended the session": EndReason.OPERATOR,
    "session taken over": EndReason.TAKEN_OVER,
    "too slow": EndReason.TOO_SLOW,
    NO_ROOM: EndReason.NO_ROOM,
}
"""The reason for each message with which the core ends a session, up to its colon."""


class EndStory:
    """Why one connection ends, as far as that is known.

    Attributes:
        unsent_bytes: what the broker dropped because it ended the connection.
    """

    def __init__(self) -> None:
        self._reason: EndReason | None = None
        self._detail = ""
        self.unsent_bytes = 0

    def note(self, reason: EndReason, detail: str = "") -> None:
        """Note a reason. The first one counts.

        Args:
            detail: more about it, for the log. Nothing that the peer has sent.
        """
        if self._reason is None:
            self._reason, self._detail = reason, detail

    def tell(self, peer: Peer, now: float, *, is_lost: bool) -> ConnectionEnd:
        """The whole story, once the transport is closed.

        Args:
            is_lost: the peer went away without DISCONNECT, and the broker had not ended the connection.
        """
        protocol, traffic = peer.protocol, peer.traffic
        if self._reason is None and protocol.fault:
            # A fault may quote what the peer has sent.
            self.note(EndReason.PROTOCOL_ERROR, unquoted(protocol.fault))
        return ConnectionEnd(
            self._reason or (EndReason.LOST if is_lost else EndReason.DISCONNECTED),
            self._detail,
            protocol.session.principal,
            protocol.session.id,
            peer.address or "in process",
            peer.local_address or "in process",
            protocol.version,
            peer.age_seconds(now),
            protocol.received_frames,
            traffic.sent_frames,
            traffic.read_bytes,
            traffic.written_bytes,
            self.unsent_bytes,
        )


def expiry_reason(message: str) -> EndReason:
    """The reason for a message of `Lifetimes`."""
    if message == NOT_ADMITTED:
        return EndReason.NOT_ADMITTED
    return EndReason.TOO_OLD if message == TOO_OLD else EndReason.EXPIRED
