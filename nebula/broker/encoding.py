"""From deliveries and verdicts to octets, as cheaply as it can be done.

A MESSAGE is written as what belongs to the delivery (subscription, id, attempts), then what all
receivers of one version have in common. The first part is put together from octets that were
made when the subscription began; of the second, the header block is made once for all messages
of a head, and for a message with many receivers the whole of it once.
"""

from __future__ import annotations

from collections.abc import Sequence

from nebula import headers
from nebula.broker.messages import Message, Verdict
from nebula.broker.session import Delivery
from nebula.broker.subscriptions import AckMode, Subscription
from nebula.stomp.codec import serialize
from nebula.stomp.dialects import DIALECTS, V1_0, Dialect
from nebula.stomp.frames import Frame

_REDELIVERED = headers.REDELIVERED.encode()
_DELIVERY_COUNT = headers.DELIVERY_COUNT.encode()
_TIMEOUT = headers.TIMEOUT.encode()

Label = tuple[bytes, bytes]
"""The octets of a subscription's MESSAGEs before the number of the message, and those between it
and the second number in `ack` (empty where there is no `ack`)."""


# What an ERROR's `message` may hold of a text that its body has whole.
_MAX_MESSAGE_CHARACTERS = 200


def error_frame(message: str, receipt: str | None, dialect: Dialect) -> bytes:
    """An ERROR about the frame that asked for `receipt`, if it did."""
    fields = {"message": message[:_MAX_MESSAGE_CHARACTERS], "content-type": "text/plain"}
    if receipt is not None:
        fields = {"receipt-id": receipt, **fields}
    return serialize(Frame("ERROR", fields, message.encode()), dialect)


def version_error(message: str) -> bytes:
    """The ERROR that names what we speak (STOMP 1.2, "Protocol Negotiation"), legible in any version."""
    body = f"Supported protocol versions are {' '.join(DIALECTS)}"
    fields = {"version": ",".join(DIALECTS), "content-type": "text/plain", "message": message}
    return serialize(Frame("ERROR", fields, body.encode()), V1_0)


class Encoder:
    """Writes what one connection is told, in its dialect.

    Args:
        dialect: what was negotiated.
        incarnation: what every message-id begins with.
    """

    def __init__(self, dialect: Dialect, incarnation: str) -> None:
        self._dialect = dialect
        self._incarnation = incarnation
        self._verdicts: dict[tuple[Verdict, int | None], bytes] = {}

    def label(self, subscription: Subscription, *, names_subscription: bool) -> Label:
        """What all MESSAGEs of `subscription` begin with.

        Args:
            names_subscription: the SUBSCRIBE had an `id` (always so from 1.1 on).
        """
        dialect = self._dialect
        start = "MESSAGE\n"
        if names_subscription:
            start += f"subscription:{dialect.escape(subscription.id)}\n"
        start += f"message-id:{self._incarnation}-"
        ack = ""
        if dialect.ack_on_message and subscription.ack_mode is not AckMode.AUTO:
            # D.20: `<subscription> <message-id>`.
            ack = f"\nack:{dialect.escape(subscription.id)} {self._incarnation}-"
        return start.encode(), ack.encode()

    def message_number(self, message_id: str) -> int | None:
        """The number in a message-id that we gave; None for any other text."""
        incarnation, _, digits = message_id.rpartition("-")
        if incarnation != self._incarnation or not (digits.isascii() and digits.isdigit()):
            return None
        return int(digits) if len(digits) < 20 else None

    def receipt(self, receipt: str, result: str | None = None) -> bytes:
        """A RECEIPT of another frame than SEND."""
        block = self._dialect.header_block([("receipt-id", receipt)])
        if result is not None:
            block += self._dialect.header_block([(headers.RESULT, result)])
        return b"RECEIPT\n%b\n\0" % block

    def send_receipt(self, receipt: str, verdict: Verdict, consumers: int | None) -> bytes:
        """The RECEIPT of a SEND.

        Args:
            consumers: subscriptions of the queue at this moment; None for what is no queue.
        """
        rest = self._verdicts.get((verdict, consumers))
        if rest is None:
            rest = self._verdict(verdict, consumers)
        return b"RECEIPT\nreceipt-id:%b\n%b" % (self._dialect.escape(receipt).encode(), rest)

    def _verdict(self, verdict: Verdict, consumers: int | None) -> bytes:
        pairs = [(headers.DISPOSITION, verdict.value)]
        if verdict is Verdict.ACCEPTED:
            # Nothing is kept on disk yet.
            pairs.append((headers.DURABLE, "false"))
        if consumers is not None:
            pairs.append((headers.CONSUMERS, str(consumers)))
        rest = self._dialect.header_block(pairs) + b"\n\0"
        if len(self._verdicts) < 64:
            self._verdicts[verdict, consumers] = rest
        return rest

    def outbox(self, outbox: Sequence[Delivery | bytes], now: float) -> bytes:
        """The octets of all that a session was told, in order."""
        dialect = self._dialect
        chunks: list[bytes] = []
        for item in outbox:
            if isinstance(item, bytes):
                chunks.append(item)
                continue
            subscription, message, attempts = item
            start, ack = subscription.label
            if message.shared is not None and not ack and attempts is None:
                common = message.shared.get(dialect)
                if common is None:
                    common = b"%d%b" % (message.number, self._common(message))
                    message.shared[dialect] = common
                chunks += (start, common)
                continue
            number = message.number
            common = self._common(message)
            if attempts is not None or message.expires_at is not None:
                common = self._of_this_delivery(message, attempts, now) + common
            if ack:
                chunks += (b"%b%d%b%d" % (start, number, ack, number), common)
            else:
                chunks += (b"%b%d" % (start, number), common)
        return b"".join(chunks)

    def _common(self, message: Message) -> bytes:
        """What all receivers of a message get: its headers and its body."""
        blocks = message.head.blocks
        block = blocks.get(self._dialect)
        if block is None:
            block = blocks[self._dialect] = b"\n" + self._dialect.header_block(message.head.headers)
        if message.exchange is not None:
            block += self._dialect.header_block([message.exchange])
        return b"%bcontent-length:%d\n\n%b\0" % (block, len(message.body), message.body)

    def _of_this_delivery(self, message: Message, attempts: int | None, now: float) -> bytes:
        lines = b""
        if attempts is not None:
            lines = b"\n%b:true" % _REDELIVERED
            if attempts:
                lines += b"\n%b:%d" % (_DELIVERY_COUNT, attempts)
        if message.expires_at is not None:
            lines += b"\n%b:%d" % (_TIMEOUT, max(0, round((message.expires_at - now) * 1000)))
        return lines
