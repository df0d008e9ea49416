"""Encoding of deliveries and verdicts as bytes, at the least cost (frames: A.7).

A MESSAGE is written as what belongs to the delivery (subscription, id, attempts), then what all
receivers of one version have in common. The first part is put together from bytes that were
made when the subscription began; of the second, the header block is made once for all messages
of a head, and for a message with many receivers the whole of it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nebula import headers
from nebula.broker.core.fixed_limits import LARGE_BODY_BYTES, MAX_ERROR_MESSAGE_CHARACTERS
from nebula.broker.core.messages import Message, Verdict
from nebula.broker.core.profiles import STANDARD, Profile
from nebula.broker.core.receipts import Receipt
from nebula.broker.core.subscription import SNAPSHOT_END, AckMode, Delivery, Subscription
from nebula.stomp import header_lines
from nebula.stomp.codec import serialize
from nebula.stomp.dialects import V1_0, Dialect
from nebula.stomp.frames import Frame

_REDELIVERED = headers.REDELIVERED.encode()
_DELIVERY_COUNT = headers.DELIVERY_COUNT.encode()
_TIMEOUT = headers.TIMEOUT.encode()
_SNAPSHOT_END = b"\n%b:end" % headers.SNAPSHOT.encode()

_KEYS: Final[dict[tuple[Dialect, bool], tuple[object, object]]] = {}

Label = tuple[bytes, bytes]
"""The bytes of a subscription's MESSAGEs before the number of the message, and those between it
and the second number in `ack` (empty where there is no `ack`)."""


# Some clients lose a frame that no line end follows, see docs/decisions/0012.
def to_client(frame: Frame, dialect: Dialect) -> bytes:
    """The bytes of one of our frames, with the line end after each of them.

    STOMP allows it, and other brokers send it: php-stomp drops the byte after a RECEIPT's NUL whatever
    it is, and takes no further frame after a body unless a line end comes between.
    """
    return serialize(frame, dialect) + b"\n"


def error_frame(message: str, receipt: str | None, dialect: Dialect) -> bytes:
    """An ERROR about the frame that asked for `receipt`, if it did (A.11.5)."""
    fields = {"message": message[:MAX_ERROR_MESSAGE_CHARACTERS], "content-type": "text/plain"}
    if receipt is not None:
        fields = {"receipt-id": receipt, **fields}
    return to_client(Frame("ERROR", fields, message.encode()), dialect)


def version_error(message: str, dialects: Sequence[Dialect]) -> bytes:
    """The ERROR that names what we speak (A.9.3), legible in any version."""
    versions = [dialect.version for dialect in dialects]
    body = f"Supported protocol versions are {' '.join(versions)}"
    fields = {"version": ",".join(versions), "content-type": "text/plain", "message": message}
    return to_client(Frame("ERROR", fields, body.encode()), V1_0)


class Encoder:
    """Writes what one connection is told, in its dialect and by its profile.

    Args:
        dialect: what was negotiated.
        incarnation: what every message-id begins with.
        profile: how the connection's listener behaves.
    """

    def __init__(self, dialect: Dialect, incarnation: str, profile: Profile = STANDARD) -> None:
        self._dialect = dialect
        self._incarnation = incarnation
        self._profile = profile
        # What was encoded once is good for all connections that are told the same. One object for
        # each: a tuple would be hashed at every delivery.
        self._key, self._common_key = _KEYS.setdefault((dialect, profile.annotates), (object(), object()))
        self._verdicts: dict[tuple[Verdict, int | None, bool], bytes] = {}
        # The last of these. It is mostly used again, and comparing is faster than hashing its key.
        self._last_verdict: tuple[Verdict, int | None, bool, bytes] = (Verdict.WAIT, None, False, b"")

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
        # `int` would take digits of other scripts, and an id of before a restart names nothing any more.
        if incarnation != self._incarnation or not (digits.isascii() and digits.isdigit()):
            return None
        return int(digits) if len(digits) < 20 else None

    def receipt(self, receipt: str, *more: tuple[str, str]) -> Receipt:
        """A RECEIPT of another frame than SEND, with these headers in addition."""
        return self._receipt(receipt, self._dialect.header_block(more) + b"\n\0\n")

    def send_receipt(
        self, receipt: str, verdict: Verdict, consumers: int | None = None, *, is_kept: bool = True
    ) -> Receipt:
        """The RECEIPT of a SEND (G.persistent, B.8).

        Args:
            consumers: subscriptions of the queue at this moment; None for what is no queue.
            is_kept: it is on disk, or need not be.
        """
        last = self._last_verdict
        if last[0] is verdict and last[1] == consumers and last[2] == is_kept:
            return self._receipt(receipt, last[3])
        rest = self._verdicts.get((verdict, consumers, is_kept))
        if rest is None:
            rest = self._verdict(verdict, consumers, is_kept=is_kept)
            # `consumers` is any number: the first few are the ones that come again.
            if len(self._verdicts) < 64:
                self._verdicts[verdict, consumers, is_kept] = rest
        self._last_verdict = verdict, consumers, is_kept, rest
        return self._receipt(receipt, rest)

    def commit_receipt(self, receipt: str, verdict: Verdict, failed_receipt: str | None) -> Receipt:
        """The RECEIPT of a COMMIT (D.24).

        A COMMIT that was done gets a plain STOMP RECEIPT: some clients compare whole frames.
        """
        pairs = []
        if verdict is not Verdict.ACCEPTED:
            pairs.append((headers.DISPOSITION, verdict.value))
        if failed_receipt is not None:
            pairs.append((headers.FAILED_RECEIPT, failed_receipt))
        return self.receipt(receipt, *pairs)

    def _receipt(self, receipt: str, rest: bytes) -> Receipt:
        """The only place that makes a RECEIPT: sealed, until the store has what it speaks of."""
        # Sealed by its type alone: a call would cost time.
        return b"RECEIPT\nreceipt-id:%b\n%b" % (  # type: ignore[return-value]
            self._dialect.escape(receipt).encode(),
            rest,
        )

    def _verdict(self, verdict: Verdict, consumers: int | None, *, is_kept: bool) -> bytes:
        # For its sender a repetition is as good as the original; the header says that nothing was added.
        is_duplicate = verdict is Verdict.DUPLICATE
        if is_duplicate:
            verdict = Verdict.ACCEPTED
        pairs = [(headers.DISPOSITION, verdict.value)]
        if is_duplicate:
            pairs.append((headers.DUPLICATE, "true"))
        if self._profile.names_twice:
            pairs.append((headers.CONTENT_DISPOSITION, verdict.value))
        if verdict is Verdict.ACCEPTED and not is_kept and self._profile.annotates:
            pairs.append((headers.DURABLE, "false"))
        if consumers is not None:
            pairs.append((headers.CONSUMERS, str(consumers)))
        return self._dialect.header_block(pairs) + b"\n\0\n"

    def outbox(self, outbox: Sequence[Delivery | bytes], now: float) -> list[bytes]:
        """The bytes of a session's outbox, in order: one piece, but large bodies apart.

        A large body is the message's own, not a copy: so it takes memory once, however many receive it.
        """
        key = self._key
        large_bytes = LARGE_BODY_BYTES
        pieces: list[bytes] = []
        chunks: list[bytes] = []
        for item in outbox:
            # RECEIPTs, ERRORs and beats are bytes already, and keep their place among the deliveries.
            if isinstance(item, bytes):
                chunks.append(item)
                continue
            # Declared: compiled, a tuple of a known type is unpacked without an iterator.
            delivery: Delivery = item
            subscription, message, attempts = delivery
            shared = message.shared
            if message.size_bytes >= large_bytes:
                chunks.append(self._beginning(delivery, now))
                pieces += (b"".join(chunks), message.body)
                # What ends it begins the next piece.
                chunks = [b"\0\n"]
                continue
            if shared is None:
                # Appended one by one: compiled, `+=` with a tuple of them costs twice as much.
                chunks.append(self._beginning(delivery, now))
                chunks.append(message.body)
                chunks.append(b"\0\n")
                continue
            label: Label = subscription.label
            start, ack = label
            chunks.append(start)
            if ack or attempts is not None:
                lines = self._of_this_delivery(ack, message, attempts, now)
                chunks.append(b"%d%b%b" % (message.number, lines, self._common(message, shared)))
                continue
            # A message with many receivers: the number too, as nothing belongs to one delivery.
            numbered = shared.get(key)
            if numbered is None:
                numbered = shared[key] = b"%d%b" % (message.number, self._common(message, shared))
            chunks.append(numbered)
        pieces.append(b"".join(chunks))
        return pieces

    def _beginning(self, delivery: Delivery, now: float) -> bytes:
        """All of a MESSAGE that comes before its body."""
        subscription, message, attempts = delivery
        # Declared: compiled, `%` with an operand of any type takes twice as long (docs/decisions/0060).
        label: Label = subscription.label
        start, ack = label
        lines = self._passed_on(message)
        if ack or attempts is not None or message.expires_at is not None:
            lines = self._of_this_delivery(ack, message, attempts, now) + lines
        return b"%b%d%b\ncontent-length:%d\n\n" % (start, message.number, lines, len(message.body))

    def _common(self, message: Message, shared: dict[Any, Any]) -> bytes:
        """The headers of a message with several receivers, and its body."""
        common: bytes | None = shared.get(self._common_key)
        if common is None:
            lines, body = self._passed_on(message), message.body
            common = shared[self._common_key] = b"%b\ncontent-length:%d\n\n%b\0\n" % (lines, len(body), body)
        return common

    def _passed_on(self, message: Message) -> bytes:
        """The lines that all receivers get."""
        block = message.head.blocks.get(self._key) or self._new_block(message)
        # Not in `blocks`: they differ from message to message of one head.
        unread = message.unread
        return block + header_lines.in_dialect(unread, self._dialect) if unread else block

    def _new_block(self, message: Message) -> bytes:
        passed_on = message.head.headers
        if not self._profile.annotates and not message.head.kind.holds_messages:
            # G.sender: in `maxam` it is written on queues only.
            passed_on = tuple(pair for pair in passed_on if pair[0] != headers.SENDER)
        block = message.head.blocks[self._key] = header_lines.write(passed_on, self._dialect)
        return block

    def _of_this_delivery(self, ack: bytes, message: Message, attempts: int | None, now: float) -> bytes:
        """The lines that this receiver gets; `ack` as in its label."""
        lines = b"%b%d" % (ack, message.number) if ack else b""
        if attempts == SNAPSHOT_END:
            lines += _SNAPSHOT_END
        elif attempts is not None:
            lines += b"\n%b:true" % _REDELIVERED
            if attempts:
                lines += b"\n%b:%d" % (_DELIVERY_COUNT, attempts)
        if message.expires_at is not None and message.is_request:  # G.timeout
            lines += b"\n%b:%d" % (_TIMEOUT, max(0, round((message.expires_at - now) * 1000)))
        return lines
