"""Readers of client frames: from the headers of SEND, SUBSCRIBE, ACK and NACK to requests of the core.

Functions of a frame that has the headers which its row in `nebula.broker.protocol.states` names. What a peer
wrote wrong is a `RemoteProtocolError`; on a SEND a value outside its form is a verdict (G.forms).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from nebula import headers as names
from nebula.broker.core.broker import Broker
from nebula.broker.core.fixed_limits import MAX_NUMBER_DIGITS
from nebula.broker.core.limits import Limits
from nebula.broker.core.messages import (
    DEFAULT_PRIORITY,
    PRIORITIES,
    QUEUE_PREFIX,
    DestinationKind,
    Head,
    Verdict,
    Wishes,
)
from nebula.broker.core.profiles import Profile
from nebula.broker.core.session import PLAIN_NACK, AckMode, Nack, Session
from nebula.broker.core.subscribe import SubscribeRequest
from nebula.errors import RemoteProtocolError
from nebula.globs import is_glob
from nebula.stomp.dialects import Dialect, negotiate
from nebula.stomp.frames import Frame
from nebula.stomp.heartbeat import parse_heart_beat

# Said by us, or asked of us: never passed on from the sender to the receivers (A.3). All others are, such as
# those of G.tracing.
_NOT_PASSED_ON: Final = frozenset(
    {"destination", "content-length", "transaction", "subscription", "message-id", "ack"}
    | {names.DELAY, names.DELIVER_AT, names.DEAD_LETTER_EXPIRES, names.ORIGINAL_DESTINATION}
    | {names.SENDER, names.REDELIVERED, names.DELIVERY_COUNT, names.SNAPSHOT}
    | {names.PERSISTENT, names.REQUIRE_CONSUMERS, names.EPHEMERAL, names.RECEIPT_ON_REJECTION}
    | {names.DEAD_LETTER_REASON, names.DEAD_LETTER_FROM, names.DEAD_LETTER_AT, names.DEAD_LETTER_DELIVERIES}
    | {names.DEAD_LETTER_CODE, names.DEAD_LETTER_TEXT, names.DEAD_LETTER_HANDLER}
)
# For a flag, `false` and an empty value are the same as no header (G.forms).
_FLAGS: Final = {"true": True, "false": False, "": False, None: False}
_ACK_MODES: Final = {mode.value: mode for mode in AckMode}
_PRIORITIES: Final = frozenset(map(str, range(PRIORITIES)))
_WISHES: Final = frozenset({names.EXPIRES, names.DELAY, names.DELIVER_AT, names.DEDUP_ID})

# What a NACK may say of why, for the dead letter; what is longer is cut to these numbers of characters.
_FAILURE: Final = {
    names.DEAD_LETTER_CODE: 100,
    names.DEAD_LETTER_TEXT: 1_000,
    names.DEAD_LETTER_HANDLER: 200,
}
_NACKS: Final = frozenset({names.REQUEUE, names.REDELIVERY_DELAY, *_FAILURE})

_Form: TypeAlias = Callable[[str, Profile], object | None]
"""Reads the value of a header; None: the value is outside its form."""


def _as_flag(text: str | None, profile: Profile) -> bool | None:
    if text and profile.flags_in_any_case:
        text = text.lower()
    return _FLAGS.get(text)


def _as_seconds(text: str, profile: Profile) -> float | None:  # noqa: ARG001
    number = _number(text)
    return None if number is None else number / 1000


def _as_priority(text: str, profile: Profile) -> int | None:  # noqa: ARG001
    return int(text) if text in _PRIORITIES else None


# Every extension header that the broker reads on a SEND. Its form is checked on every kind of destination,
# even where the header has no meaning, so that a sender learns of a mistake early.
_SEND_FORMS: Final[Mapping[str, _Form]] = {
    **dict.fromkeys(
        (
            names.REQUIRE_CONSUMERS,
            names.PERSISTENT,
            names.EPHEMERAL,
            names.RECEIPT_ON_REJECTION,
            names.RESPONSE,
            names.STREAM,
            names.STREAM_END,
        ),
        _as_flag,
    ),
    **dict.fromkeys((names.EXPIRES, names.DELAY, names.DELIVER_AT, names.TIMEOUT), _as_seconds),
    names.PRIORITY: _as_priority,
}
# Kept longer than the message, so their length is limited: the first for a window, the others as reply
# rights.
_SEND_IDENTIFIERS: Final = frozenset({names.DEDUP_ID, names.REPLY_TO, names.REPLY_ID})


def read_send(frame: Frame, broker: Broker, session: Session) -> Head | Verdict:
    """What is common to all SENDs with these headers: a head, or a verdict on all of them."""
    fields = frame.headers
    destination = read_destination(frame, broker.limits)
    kind = broker.kind_of(destination)
    if not _may_be_sent_to(destination, kind, session):
        return Verdict.INVALID  # D.6, D.47: policy, so the connection goes on
    profile = session.profile
    given: dict[str, Any] = {
        name: _SEND_FORMS[name](fields[name], profile) for name in _SEND_FORMS.keys() & fields.keys()
    }
    most = broker.limits.max_identifier_characters
    if None in given.values() or any(len(fields[name]) > most for name in _SEND_IDENTIFIERS & fields.keys()):
        return Verdict.INVALID
    is_queue = kind.holds_messages
    # What is in the dead-letter queue waits until it is taken (G.dead-letter).
    may_expire = destination != broker.queues.dead_letter
    policy = broker.context.policies.lookup(destination)
    is_response = given.get(names.RESPONSE, False)
    named = fields.get(names.REPLY_TO)
    # A reply gets no reply (D.46); the address that it names is for credit (G.credit).
    reply_to = None if is_response else named
    notify = fields.get(names.JOB_NOTIFY)
    passed_on = tuple(
        (name, value)
        for name, value in fields.items()
        # On a queue the time that is left belongs to each delivery; a topic passes it unread.
        if name not in _NOT_PASSED_ON and not (is_queue and name == names.TIMEOUT)
    )
    head = Head(
        kind,
        destination,
        session.principal,
        passed_on,
        requires_consumers=is_queue and given.get(names.REQUIRE_CONSUMERS, False),
        is_persistent=given.get(names.PERSISTENT, False),
        ephemeral_owner=session if kind.holds_value and given.get(names.EPHEMERAL) else None,
        is_quiet=given.get(names.RECEIPT_ON_REJECTION, False),
        time_to_live=given.get(names.TIMEOUT) if is_queue and may_expire else None,
        transaction=fields.get("transaction"),
        reply_to=reply_to,
        addresses=_addresses(named, notify) if named or notify else (),
        is_response=is_response,
        origin=None if reply_to is None else session.origin,
        is_stream=given.get(names.STREAM, False) and not given.get(names.STREAM_END),
        deletes_explicitly="content-length" in fields or frame.exchange is not None,
        check=None if policy is None else policy.check,
        wishes=_wishes(fields, given, destination, kind, broker.context.wall_offset, may_expire=may_expire),
        priority=given.get(names.PRIORITY, DEFAULT_PRIORITY) if is_queue else DEFAULT_PRIORITY,
        copy_to=None if policy is None else policy.copy_to,
        usage=session.usage,
    )
    # From here on the parser may hand it out again: its memory is accounted for (`known_heads`).
    session.heads.add(head)
    return head


def _addresses(reply_to: str | None, notify: str | None) -> tuple[tuple[str, bool], ...]:
    return tuple((name, is_notify) for name, is_notify in ((reply_to, False), (notify, True)) if name)


def _wishes(
    fields: Mapping[str, str],
    given: Mapping[str, Any],
    destination: str,
    kind: DestinationKind,
    wall_offset: float,
    *,
    may_expire: bool,
) -> Wishes | None:
    """What few SENDs ask for; None: nothing of that.

    Args:
        given: parsed values of the headers in `_SEND_FORMS`.
    """
    if not _WISHES & fields.keys():
        return None
    expires_at = given.get(names.EXPIRES) if not kind.holds_value else None
    is_queue = kind.holds_messages
    deliver_at = given.get(names.DELIVER_AT) if is_queue else None
    return Wishes(
        expires_at=expires_at - wall_offset if expires_at is not None and may_expire else None,
        delay=given.get(names.DELAY) if is_queue else None,
        deliver_at=None if deliver_at is None else deliver_at - wall_offset,
        # An inbox ends with its connection, so there is no later repetition to detect.
        dedup_id=None if destination.startswith(names.INBOX_PREFIX) else fields.get(names.DEDUP_ID) or None,
    )


def read_subscribe(frame: Frame, dialect: Dialect, broker: Broker, profile: Profile) -> SubscribeRequest:
    """What a SUBSCRIBE asks for."""
    fields = frame.headers
    destination = read_destination(frame, broker.limits)
    if "selector" in fields:
        # D.44: without it the wrong messages would be delivered.
        raise RemoteProtocolError("the header selector is not supported")
    ack = fields.get("ack", AckMode.AUTO.value)
    if ack not in _ACK_MODES:
        raise RemoteProtocolError(f"ack {ack[:40]!r} is not one of {', '.join(_ACK_MODES)}")
    check_length(fields, "id", broker.limits.max_identifier_characters)
    return SubscribeRequest(
        id=subscription_id(frame, dialect),
        destination=destination,
        kind=broker.kind_of(destination),
        ack_mode=_ACK_MODES[ack],
        prefetch=_prefetch(frame),
        exclusive=read_flag(frame, names.EXCLUSIVE, profile),
        auto_delete=read_flag(frame, names.AUTO_DELETE, profile),
        durable=read_flag(frame, names.DURABLE, profile),
        eager=read_flag(frame, names.EAGER, profile),
        tells_end=read_flag(frame, names.SNAPSHOT, profile),
    )


def read_removes(frame: Frame, profile: Profile) -> bool:
    """Whether an UNSUBSCRIBE ends a durable subscription for good.

    D.3: any other value than the one that removes pauses, so that nothing is lost by a misspelling.
    """
    text = frame.headers.get(names.DURABLE)
    flag = _as_flag(text, profile)
    if profile.false_removes:
        return text is not None and flag is False
    return flag is True


def read_settled(frame: Frame, dialect: Dialect) -> tuple[str | None, str, str | None]:
    """What an ACK or NACK names, in any version's form: the ids of subscription and message, and the
    transaction that it belongs to, or None.

    The first is None if it is left out: STOMP 1.0 allows that, and some clients of 1.1 do it.
    """
    fields = frame.headers
    transaction = fields.get("transaction")
    ack_id = fields.get("id")
    if ack_id and dialect.ack_on_message:
        # D.20. A message-id has no space, a subscription's id may have some.
        subscription, _, message = ack_id.rpartition(" ")
        return subscription, message, transaction
    named = fields.get("subscription")
    if named == "" and dialect.needs_subscription_id:
        # Where the profile lets it be left out, an empty one is still a mistake.
        raise RemoteProtocolError(f"{frame.command} has an empty header subscription")
    return named, fields["message-id"], transaction


def read_nack(frame: Frame, profile: Profile, limits: Limits) -> Nack:
    """What becomes of what is NACKed."""
    fields = frame.headers
    if not _NACKS & fields.keys():
        return PLAIN_NACK
    # The only flag that is true by default.
    requeue = not fields.get(names.REQUEUE) or read_flag(frame, names.REQUEUE, profile)
    # One that comes again too early does less harm than a connection that ends over it.
    delay = min(_milliseconds(frame, names.REDELIVERY_DELAY) / 1000, limits.max_delay_seconds)
    failure = tuple((name, fields[name][:most]) for name, most in _FAILURE.items() if fields.get(name))
    return Nack(requeue, delay, failure)


class NoCommonVersion(RemoteProtocolError):
    """The peer speaks no version of STOMP that we speak; its ERROR names those."""


class ConnectRequest(NamedTuple):
    """What a CONNECT or STOMP says, in its version's form; `heart_beat` in milliseconds."""

    login: str | None
    passcode: str | None
    client_id: str | None
    heart_beat: tuple[int, int]


def agree_on_version(frame: Frame, profile: Profile) -> Dialect:
    """The highest version in common (A.9.1, A.9.2).

    Raises:
        NoCommonVersion: the lists have no version in common.
    """
    dialect = negotiate(frame.headers.get("accept-version"), profile.dialects)
    if dialect is None:
        raise NoCommonVersion("no protocol version in common")
    return dialect


def read_connect(frame: Frame, dialect: Dialect, profile: Profile, limits: Limits) -> ConnectRequest:
    """What a CONNECT or STOMP says; its profile may want more of it than STOMP does (D.2, D.17)."""
    fields = frame.headers
    if "accept-version" not in fields:
        # D.45: by the rules of 1.0, which trims.
        fields = {name.strip(" "): value.strip(" ") for name, value in fields.items()}
    if profile.virtual_host is not None and fields.get("host") != profile.virtual_host:
        raise RemoteProtocolError(f"host must be {profile.virtual_host}")
    text = fields.get("heart-beat")
    most = profile.max_client_heart_beat
    if most is not None and (text is None or max(parse_heart_beat(text)) > most):
        raise RemoteProtocolError(f"heart-beat must be sent, with both numbers at most {most}")
    check_length(fields, names.CLIENT_ID, limits.max_identifier_characters)
    heart_beat = parse_heart_beat(text if dialect.announces_version else None)
    return ConnectRequest(
        fields.get("login"), fields.get("passcode"), fields.get(names.CLIENT_ID), heart_beat
    )


def read_destination(frame: Frame, limits: Limits) -> str:
    """The name that a frame is for."""
    check_length(frame.headers, "destination", limits.max_destination_characters)
    return frame.headers["destination"]


def check_length(fields: Mapping[str, str], name: str, most: int) -> None:
    """Refuse a text chosen by the peer that is too long to be kept (G.identifiers).

    Raises:
        RemoteProtocolError: it has more than `most` characters.
    """
    if len(fields.get(name, "")) > most:
        raise RemoteProtocolError(f"{name} exceeds {most} characters")


def _may_be_sent_to(destination: str, kind: DestinationKind, session: Session) -> bool:
    if kind.holds_messages:
        return session.profile.bare_names_are_queues or destination.startswith(QUEUE_PREFIX)
    return not is_glob(destination)


def subscription_id(frame: Frame, dialect: Dialect) -> str:
    """The id of a subscription, in any version's form."""
    if dialect.needs_subscription_id:
        return frame.headers["id"]
    # STOMP 1.0: one without an id is named by its destination. NUL keeps such names apart
    # from all that a peer can send.
    return frame.headers.get("id", f"\0{frame.headers.get('destination', '')}")


def _prefetch(frame: Frame) -> int | None:
    text = frame.headers.get(names.PREFETCH_COUNT)
    if text is None:
        return None
    prefetch = _number(text)
    if not prefetch:
        raise RemoteProtocolError(f"{names.PREFETCH_COUNT} {text[:20]!r} is not a number above 0")
    return prefetch


def _milliseconds(frame: Frame, name: str) -> int:
    text = frame.headers.get(name, "0")
    number = _number(text)
    if number is None:
        raise RemoteProtocolError(f"{name} {text[:20]!r} is not a number of milliseconds")
    return number


def read_flag(frame: Frame, name: str, profile: Profile) -> bool:
    """A header that is `true` or `false`; missing or empty it is false."""
    text = frame.headers.get(name)
    flag = _as_flag(text, profile)
    if flag is None:
        raise RemoteProtocolError(f"{name} {text!r:.40} is not true or false")
    return flag


def _number(text: str) -> int | None:
    # `int` would take signs, spaces and underscores too.
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_NUMBER_DIGITS else None
