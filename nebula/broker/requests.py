"""What SENDs, SUBSCRIBEs, ACKs and NACKs ask for: from headers to the core's words.

Functions of a frame and nothing else. What a peer wrote wrong is a `RemoteProtocolError` with the
frame's receipt, save on SEND, where a value outside its form is a verdict (PROTOCOL G).
"""

from __future__ import annotations

from typing import Final

from nebula import headers as names
from nebula.broker.core import TOPIC_PREFIX, SubscribeRequest, check_destination
from nebula.broker.messages import Head, Verdict
from nebula.broker.subscriptions import AckMode
from nebula.errors import Refused, RemoteProtocolError
from nebula.stomp.dialects import Dialect
from nebula.stomp.frames import Frame

# Said by us, or asked of us: never passed on from the sender to the receivers (A.3).
_NOT_PASSED_ON: Final = frozenset(
    {"destination", "content-length", "transaction", "subscription", "message-id", "ack"}
    | {names.SENDER, names.REDELIVERED, names.DELIVERY_COUNT}
    | {names.PERSISTENT, names.REQUIRE_CONSUMERS}
)
# For a flag, `false` and an empty value are the same as no header (PROTOCOL G).
_FLAGS: Final = {"true": True, "false": False, "": False, None: False}
_ACK_MODES: Final = {mode.value: mode for mode in AckMode}
_MOST_DIGITS: Final = 15


def read_send(frame: Frame, principal: str) -> Head | Verdict:
    """What is common to all SENDs with these headers: a head, or a verdict on all of them.

    Args:
        principal: of the sender; receivers are told.
    """
    fields = frame.headers
    destination = required(frame, "destination")
    refuse_transaction(frame)
    requires_consumers = _FLAGS.get(fields.get(names.REQUIRE_CONSUMERS))
    persistent = _FLAGS.get(fields.get(names.PERSISTENT))
    try:
        check_destination(destination, subscribing=False)
    except Refused:
        return Verdict.INVALID  # D.6, D.47: policy, so the connection goes on
    if requires_consumers is None or persistent is None:
        return Verdict.INVALID
    is_topic = destination.startswith(TOPIC_PREFIX)
    time_to_live = None
    if not is_topic and (timeout := fields.get(names.TIMEOUT)) is not None:
        milliseconds = _number(timeout)
        if milliseconds is None:
            return Verdict.INVALID
        time_to_live = milliseconds / 1000
    passed_on = tuple(
        (name, value)
        for name, value in fields.items()
        # On a queue the time that is left belongs to each delivery; a topic passes it unread.
        if name not in _NOT_PASSED_ON and (is_topic or name != names.TIMEOUT)
    )
    return Head(
        destination,
        (("destination", destination), (names.SENDER, principal), *passed_on),
        requires_consumers=requires_consumers and not is_topic,
        time_to_live=time_to_live,
    )


def read_subscribe(frame: Frame, dialect: Dialect) -> SubscribeRequest:
    """What a SUBSCRIBE asks for."""
    fields = frame.headers
    destination = required(frame, "destination")
    if "selector" in fields:
        # D.44: without it the wrong messages would be delivered.
        raise RemoteProtocolError("the header selector is not supported", receipt=frame.receipt)
    if destination.startswith(TOPIC_PREFIX) and _flag(frame, "durable"):
        raise RemoteProtocolError("durable subscriptions are not supported yet", receipt=frame.receipt)
    ack = fields.get("ack", AckMode.AUTO.value)
    if ack not in _ACK_MODES:
        raise RemoteProtocolError(
            f"ack {ack[:40]!r} is not one of {', '.join(_ACK_MODES)}", receipt=frame.receipt
        )
    return SubscribeRequest(
        id=_subscription_id(frame, destination, dialect),
        destination=destination,
        ack_mode=_ACK_MODES[ack],
        prefetch=_prefetch(frame),
        exclusive=_flag(frame, names.EXCLUSIVE),
        auto_delete=_flag(frame, names.AUTO_DELETE),
    )


def read_settled(frame: Frame, dialect: Dialect) -> tuple[str, str]:
    """The ids of the subscription and the message that an ACK or NACK names, in any version's form.

    The first is empty where STOMP 1.0 leaves it out.
    """
    refuse_transaction(frame)
    ack_id = frame.headers.get("id")
    if ack_id and dialect.ack_on_message:
        # D.20. A message-id has no space, a subscription's id may have some.
        subscription, _, message = ack_id.rpartition(" ")
        return subscription, message
    if dialect.ack_by_id:
        required(frame, "id")
    message = required(frame, "message-id")
    if dialect.needs_subscription_id:
        return required(frame, "subscription"), message
    return frame.headers.get("subscription", ""), message


def read_requeue(frame: Frame) -> bool:
    """Whether what is NACKed goes back to its queue."""
    requeue = frame.headers.get(names.REQUEUE) or "true"
    if requeue not in ("true", "false"):
        raise RemoteProtocolError(
            f"{names.REQUEUE} {requeue[:20]!r} is not true or false", receipt=frame.receipt
        )
    return requeue == "true"


def refuse_transaction(frame: Frame) -> None:
    """Refuse a frame that is, or belongs to, a transaction: never half done."""
    if "transaction" in frame.headers:
        raise RemoteProtocolError("transactions are not supported yet", receipt=frame.receipt)


def required(frame: Frame, name: str) -> str:
    """The value of a header that the frame must have."""
    value = frame.headers.get(name)
    if not value:
        what = "needs the header" if value is None else "has an empty header"
        raise RemoteProtocolError(f"{frame.command} {what} {name}", receipt=frame.receipt)
    return value


def _subscription_id(frame: Frame, destination: str, dialect: Dialect) -> str:
    if dialect.needs_subscription_id:
        return required(frame, "id")
    # STOMP 1.0: one without an id is named by its destination. NUL keeps such names apart
    # from all that a peer can send.
    return frame.headers.get("id", f"\0{destination}")


def _prefetch(frame: Frame) -> int | None:
    text = frame.headers.get(names.PREFETCH_COUNT)
    if text is None:
        return None
    prefetch = _number(text)
    if not prefetch:
        raise RemoteProtocolError(
            f"{names.PREFETCH_COUNT} {text[:20]!r} is not a number above 0", receipt=frame.receipt
        )
    return prefetch


def _flag(frame: Frame, name: str) -> bool:
    text = frame.headers.get(name)
    flag = _FLAGS.get(text)
    if flag is None:
        raise RemoteProtocolError(f"{name} {text!r:.40} is not true or false", receipt=frame.receipt)
    return flag


def _number(text: str) -> int | None:
    # `int` would take signs, spaces and underscores too.
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None
