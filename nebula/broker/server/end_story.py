"""End story: why a connection ends, and the log event that tells it.

The reasons come from several places: the core ends a session, a certificate expires, an operator stops the
broker, the peer breaks a rule. Often one leads to the next, so the first reason that is noted counts.
"""

from __future__ import annotations

from nebula.broker.operations.event_log import ConnectionEnd, unquoted
from nebula.broker.operations.events import EndReason
from nebula.broker.server.peer import Peer


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
        # One thing leads to another: a session that is too slow gets an ERROR, does not read it, and is lost.
        # The first reason is the cause.
        if self._reason is None:
            self._reason, self._detail = reason, detail

    def tell(self, peer: Peer, now: float, *, is_lost: bool) -> ConnectionEnd:
        """The whole story, once the transport is closed.

        Args:
            is_lost: the peer went away without DISCONNECT, and the broker had not ended the connection.
        """
        protocol, traffic = peer.protocol, peer.traffic
        # A fault is the cause only if no reason was noted: an ERROR for a reason of the broker sets `fault`
        # too.
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
