"""Headers of a SEND: which the broker reads, in which form, and which it passes on to receivers.

A new header on SEND has a place in these tables:

- `FORMS`: its value is a flag, a time or a number. It is checked on every kind of destination.
- `IDENTIFIERS`: its value is an id or a name that is kept longer than the message.
- `_WISHES`: few SENDs have it, so its value goes into `Wishes`; all others are fields of `Head`.
- `_NOT_PASSED_ON`: receivers do not get it. Any other header is passed on, most of them unread (`NAMES`).

A value outside its form is no fault of the protocol but a verdict on the SEND (G.forms).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from nebula import headers as names
from nebula.broker.core.broker import Broker
from nebula.broker.core.messages import (
    DEFAULT_PRIORITY,
    LEVELS,
    QUEUE_PREFIX,
    DestinationKind,
    Head,
    Verdict,
    Wishes,
)
from nebula.broker.core.profiles import Profile
from nebula.broker.core.session import Session
from nebula.broker.protocol.requests import as_flag, read_destination
from nebula.globs import is_glob
from nebula.milliseconds import seconds_of
from nebula.stomp.frames import Frame
from nebula.stomp.header_lines import HeaderNames

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
_WISHES: Final = frozenset({names.EXPIRES, names.DELAY, names.DELIVER_AT, names.DEDUP_ID})

_Form: TypeAlias = Callable[[str, Profile], object | None]
"""Reads the value of a header; None: the value is outside its form."""


_FLAGS: Final = (
    *(names.REQUIRE_CONSUMERS, names.PERSISTENT, names.EPHEMERAL, names.RECEIPT_ON_REJECTION),
    *(names.RESPONSE, names.STREAM, names.STREAM_END),
)
_TIMES: Final = (names.EXPIRES, names.DELAY, names.DELIVER_AT, names.TIMEOUT)
# Headers whose values are flags, times or numbers. The form is checked on every kind of destination,
# even where the header has no meaning, so that a sender learns of a mistake early.
FORMS: Final[Mapping[str, _Form]] = {
    **dict.fromkeys(_FLAGS, as_flag),
    **dict.fromkeys(_TIMES, lambda text, _: seconds_of(text)),
    names.PRIORITY: lambda text, _: int(text) if text in LEVELS else None,
}
# Kept longer than the message, so their length is limited: the first for a window, the others as reply
# rights.
IDENTIFIERS: Final = frozenset({names.DEDUP_ID, names.REPLY_TO})


# The headers of a SEND that `read_send` sees. All others stay as they came: the ids of requests and replies,
# which differ on each of them, are looked for where they are needed.
NAMES: Final = HeaderNames(
    read={"destination", "transaction", names.REPLY_TO, names.JOB_NOTIFY} | FORMS.keys() | _WISHES,
    dropped=_NOT_PASSED_ON | {"receipt"},
)


def read_send(frame: Frame, broker: Broker, session: Session) -> Head | Verdict:
    """What is common to all SENDs with these headers: a head, or a verdict on all of them."""
    fields = frame.headers
    destination = read_destination(frame, broker.limits)
    kind = broker.context.kind_of(destination)
    if not _may_be_sent_to(destination, kind, session):
        return Verdict.INVALID  # D.6, D.47: policy, so the connection goes on
    profile = session.profile
    read: dict[str, Any] = {name: FORMS[name](fields[name], profile) for name in FORMS.keys() & fields.keys()}
    most = broker.limits.max_identifier_characters
    if None in read.values() or any(len(fields[name]) > most for name in fields.keys() & IDENTIFIERS):
        return Verdict.INVALID
    is_queue = kind.holds_messages
    # What is in the dead-letter queue waits until it is taken (G.dead-letter).
    may_expire = destination != broker.queues.dead_letter
    policy = broker.context.policies.lookup(destination)
    is_response = read.get(names.RESPONSE, False)
    named, notify = fields.get(names.REPLY_TO), fields.get(names.JOB_NOTIFY)
    # A reply gets no reply (D.46); the address that it names is for credit (G.credit).
    reply_to = None if is_response else named
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
        requires_consumers=is_queue and read.get(names.REQUIRE_CONSUMERS, False),
        is_persistent=read.get(names.PERSISTENT, False),
        ephemeral_owner=session if kind.holds_value and read.get(names.EPHEMERAL) else None,
        is_quiet=read.get(names.RECEIPT_ON_REJECTION, False),
        time_to_live=read.get(names.TIMEOUT) if is_queue and may_expire else None,
        transaction=fields.get("transaction"),
        reply_to=reply_to,
        addresses=tuple((name, is_notify) for name, is_notify in ((named, False), (notify, True)) if name),
        is_response=is_response,
        origin=None if reply_to is None else session.origin,
        is_stream=read.get(names.STREAM, False) and not read.get(names.STREAM_END),
        deletes_explicitly="content-length" in fields,
        check=None if policy is None else policy.check,
        wishes=_wishes(fields, read, destination, kind, broker.context.wall_offset, may_expire=may_expire),
        priority=read.get(names.PRIORITY, DEFAULT_PRIORITY) if is_queue else DEFAULT_PRIORITY,
        copy_to=None if policy is None else policy.copy_to,
        usage=session.usage,
    )
    # From here on the parser may hand it out again: its memory is accounted for (`known_heads`).
    session.heads.add(head)
    return head


def _wishes(
    fields: Mapping[str, str],
    read: Mapping[str, Any],
    destination: str,
    kind: DestinationKind,
    wall_offset: float,
    *,
    may_expire: bool,
) -> Wishes | None:
    """What few SENDs ask for; None: nothing of that.

    Args:
        read: parsed values of the headers in `FORMS`.
    """
    if _WISHES.isdisjoint(fields):
        return None
    # JMS clients write 0 for "never".
    expires_at = None if kind.holds_value else read.get(names.EXPIRES) or None
    deliver_at = read.get(names.DELIVER_AT) if kind.holds_messages else None
    wishes = Wishes(
        expires_at=expires_at - wall_offset if expires_at is not None and may_expire else None,
        delay=read.get(names.DELAY) if kind.holds_messages else None,
        deliver_at=None if deliver_at is None else deliver_at - wall_offset,
        # An inbox ends with its connection, so there is no later repetition to detect.
        dedup_id=None if destination.startswith(names.INBOX_PREFIX) else fields.get(names.DEDUP_ID) or None,
    )
    return None if wishes == Wishes() else wishes


def _may_be_sent_to(destination: str, kind: DestinationKind, session: Session) -> bool:
    if kind.holds_messages:
        return session.profile.bare_names_are_queues or destination.startswith(QUEUE_PREFIX)
    return not is_glob(destination)
