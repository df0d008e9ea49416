"""TAKE: a MESSAGE of a request queue becomes a `Request`, or is settled at once.

A message is not handled if it is a reply, if its caller waits no longer or has withdrawn it, or if no reply
could be sent. Each of these is counted by its reason and settled, so that it does not come again. A message
of a closed subscription is left as it is: it comes again by the next connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic

from nebula import headers as names
from nebula.logs import get_logger
from nebula.rpc.contract.context import Request, Surroundings
from nebula.rpc.wire.cancel import Cancel, PendingCancels
from nebula.rpc.wire.deadlines import deadline_of
from nebula.rpc.wire.envelope import BOO, ERROR, SUCCESS, parse
from nebula.stomp.client.messages import Message

__all__ = ["RequestReader", "Unhandled", "wants_reply"]

_log = get_logger(__name__)


@dataclass(slots=True)
class Unhandled:
    """Counts of messages that no verb was run for, by reason.

    Attributes:
        expired: their time was over.
        cancelled: their caller withdrew them.
        overloaded: too many were waiting.
        skipped: they were replies.
        refused: they could not be read, or no verb has that name.
    """

    expired: int = 0
    cancelled: int = 0
    overloaded: int = 0
    skipped: int = 0
    refused: int = 0


class RequestReader:
    """Makes requests of messages.

    Args:
        around: the service, for its requests.

    Attributes:
        unhandled: the messages that were no requests to be handled, and those that others count there.
    """

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._trusts_sender = False
        # None until the first caller withdraws a request.
        self._withdrawn: PendingCancels | None = None
        self.unhandled = Unhandled()

    def connect(self, *, trusts_sender: bool) -> None:
        """Say whether the broker of this connection writes the `sender` header itself."""
        self._trusts_sender = trusts_sender

    def take(self, message: Message, arrived: float) -> Request | None:
        """The request that a message is, or None: no reply is due.

        Args:
            message: as it came.
            arrived: when it came, on `time.monotonic`'s clock.

        Raises:
            ConnectionLost: it cannot be settled, and comes again.
        """
        if message.subscription.is_closed:
            # It comes again by the next connection, perhaps to another instance.
            return None
        headers = message.headers
        envelope = parse(headers, message.body)
        # C.4: the gem posts "boo" to each queue before it subscribes. A genuine body "boo" is lost.
        # D.46: a reply is never replied to: that would start a loop between two services.
        if (
            message.body == BOO
            or envelope.verb in (SUCCESS, ERROR)
            or headers.get(names.RESPONSE) == "true"
            or (names.IN_REPLY_TO in headers and names.REPLY_TO not in headers)
        ):
            self.unhandled.skipped += 1
            message.ack()
            return None
        deadline = deadline_of(headers, arrived)
        # D.50: its caller has given up, and may have called another service.
        if deadline is not None and monotonic() >= deadline:
            self.unhandled.expired += 1
            message.ack()
            return None
        # From here on the message is a request of a caller that waits, if it can be read.
        destination = headers["destination"]
        # Rule 2: need not be replied to. Rule 3's fall-back would put the reply into our own queue.
        if envelope.verb is None and names.REPLY_TO not in headers:
            self.unhandled.refused += 1
            _log.warning("unreadable request refused", destination=destination)
            # No caller could be told, and it will be as unreadable next time.
            message.nack(requeue="false")
            return None
        request = Request(
            envelope,
            headers,
            destination=destination,
            # Only a broker that writes this header itself can vouch for it; elsewhere any client could
            # claim to be another principal.
            principal=headers.get(names.SENDER) if self._trusts_sender else None,
            deadline=deadline,
            around=self._around,
        )
        if self._withdrawn is not None and _is_withdrawn(self._withdrawn, request):
            self.unhandled.cancelled += 1
            message.ack()
            return None
        return request

    def principal_of(self, headers: Mapping[str, str]) -> str | None:
        """Who sent a message; None where the broker does not vouch: any client can write the header."""
        return headers.get(names.SENDER) if self._trusts_sender else None

    def withdraw(self, one: Cancel, principal: str | None) -> None:
        """See that a request that has not come yet never starts."""
        # A cancel can overtake its request: the two come by different destinations, and a broker keeps no
        # order between them. So it is remembered for a while, in bounded memory.
        self._withdrawn = self._withdrawn or PendingCancels()
        self._withdrawn.remember(one, principal, monotonic())


def wants_reply(headers: Mapping[str, str]) -> bool:
    """Whether the sender of a request wants to be told how it ended."""
    return headers.get(names.NO_REPLY) != "true"


def _is_withdrawn(withdrawn: PendingCancels, request: Request) -> bool:
    reply_id = request.reply_id
    return reply_id is not None and withdrawn.take(request.reply_to, reply_id, request.principal, monotonic())
