"""Readers of client frames but SEND: from the headers of CONNECT, SUBSCRIBE, ACK and NACK to requests.

Functions of a frame that has the headers which its row in `nebula.broker.protocol.states` names. What a peer
wrote wrong is a `RemoteProtocolError`. For SEND see `nebula.broker.protocol.send_headers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from nebula import headers as names
from nebula.broker.core.broker import Broker
from nebula.broker.core.fixed_limits import MAX_NUMBER_DIGITS
from nebula.broker.core.limits import Limits
from nebula.broker.core.profiles import Profile
from nebula.broker.core.subscribe import SubscribeRequest
from nebula.broker.core.subscription import PLAIN_NACK, AckMode, Nack
from nebula.errors import RemoteProtocolError
from nebula.milliseconds import seconds_of, to_milliseconds, to_seconds
from nebula.stomp.dialects import Dialect, negotiate
from nebula.stomp.frames import Frame
from nebula.stomp.heartbeat import HeartBeat, parse_heart_beat

# For a flag, `false` and an empty value are the same as no header (G.forms).
_FLAGS: Final = {"true": True, "false": False, "": False, None: False}
_ACK_MODES: Final = {mode.value: mode for mode in AckMode}

# What a NACK may say of why, for the dead letter; what is longer is cut to these numbers of characters.
_FAILURE: Final = {names.DEAD_LETTER_CODE: 100, names.DEAD_LETTER_TEXT: 1_000, names.DEAD_LETTER_HANDLER: 200}
_NACKS: Final = frozenset({names.REQUEUE, names.REDELIVERY_DELAY, *_FAILURE})


def as_flag(text: str | None, profile: Profile) -> bool | None:
    """The value of a flag; None: it is neither true nor false."""
    if text and profile.flags_in_any_case:
        text = text.lower()
    return _FLAGS.get(text)


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
        kind=broker.context.kind_of(destination),
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
    flag = as_flag(text, profile)
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
    if _NACKS.isdisjoint(fields):
        return PLAIN_NACK
    # The only flag that is true by default.
    requeue = not fields.get(names.REQUEUE) or read_flag(frame, names.REQUEUE, profile)
    text = fields.get(names.REDELIVERY_DELAY, "0")
    delay = seconds_of(text)
    if delay is None:
        raise RemoteProtocolError(f"{names.REDELIVERY_DELAY} {text[:20]!r} is not a number of milliseconds")
    failure = tuple((name, fields[name][:most]) for name, most in _FAILURE.items() if fields.get(name))
    # One that comes again too early does less harm than a connection that ends over it.
    return Nack(requeue, min(delay, limits.max_delay_seconds), failure)


class NoCommonVersion(RemoteProtocolError):
    """The peer speaks no version of STOMP that we speak; its ERROR names those."""


class ConnectRequest(NamedTuple):
    """What a CONNECT or STOMP says, in its version's form."""

    login: str | None
    passcode: str | None
    client_id: str | None
    heart_beat: HeartBeat


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
    if most is not None and (text is None or max(map(to_seconds, parse_heart_beat(text))) > most):
        limit = to_milliseconds(most)
        raise RemoteProtocolError(f"heart-beat must be sent, with both numbers at most {limit}")
    check_length(fields, names.CLIENT_ID, limits.max_identifier_characters)
    theirs = parse_heart_beat(text if dialect.announces_version else None)
    return ConnectRequest(fields.get("login"), fields.get("passcode"), fields.get(names.CLIENT_ID), theirs)


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
    # `int` would take signs, spaces and underscores too.
    prefetch = int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_NUMBER_DIGITS else 0
    if not prefetch:
        raise RemoteProtocolError(f"{names.PREFETCH_COUNT} {text[:20]!r} is not a number above 0")
    return prefetch


def read_flag(frame: Frame, name: str, profile: Profile) -> bool:
    """A header that is `true` or `false`; missing or empty it is false."""
    text = frame.headers.get(name)
    flag = as_flag(text, profile)
    if flag is None:
        raise RemoteProtocolError(f"{name} {text!r:.40} is not true or false")
    return flag
