"""Messages, their heads, and the verdicts on them.

A `Head` is all that the SENDs with one header block have in common: what they ask for, what is passed on,
what is known of the sender's rights. Most publishers repeat their headers, so most messages cost a body and a
few references. See `known_heads` for how heads come to be shared, and who pays for them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass, field
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias

from nebula import headers
from nebula.broker.core.shares import Usage
from nebula.stomp import header_lines

QUEUE_PREFIX: Final = "/queue/"
TOPIC_PREFIX: Final = "/topic/"


class Verdict(Enum):
    """What became of a SEND (B.8). Values are the `disposition` of its RECEIPT."""

    ACCEPTED = headers.ACCEPTED
    INVALID = headers.REJECTED_INVALID
    UNAUTHORISED = headers.REJECTED_UNAUTHORISED
    FULL = headers.REJECTED_FULL
    NO_CONSUMER = headers.REJECTED_NO_CONSUMER
    DUPLICATE = headers.DUPLICATE
    """Its `dedup-id` was used before: it is accepted, and nothing happens."""
    WAIT = "wait"
    """Nothing happened yet: read the sender no further until the broker says so."""

    # Members are compared by identity all over the hot path, and hashed in the RECEIPT table.
    __hash__ = object.__hash__


# A constant, because looking up `Verdict.ACCEPTED` costs time for each message.
ACCEPTED: Final = Verdict.ACCEPTED


@dataclass(frozen=True, slots=True, eq=False)
class DestinationKind:
    """What a kind of destination does with messages (D.10).

    Attributes:
        name: as in settings and replies.
        holds_messages: each message waits for one consumer, may be delayed, and may become a dead letter.
        fans_out: each message goes to all who are subscribed at that moment.
        holds_value: a message replaces the one before it.
    """

    name: str
    holds_messages: bool = False
    fans_out: bool = False
    holds_value: bool = False


QUEUE_KIND: Final = DestinationKind("queue", holds_messages=True)
TOPIC_KIND: Final = DestinationKind("topic", fans_out=True)
LAST_VALUE_KIND: Final = DestinationKind("last-value", holds_value=True)


def kinds_by_prefix(last_value_prefixes: Iterable[str]) -> dict[str, DestinationKind]:
    """The table of kinds by the prefixes of their names."""
    return {TOPIC_PREFIX: TOPIC_KIND} | dict.fromkeys(last_value_prefixes, LAST_VALUE_KIND)


class Content(Enum):
    """What a body is under the schema of its destination."""

    VALID = "valid"
    TOMBSTONE = "tombstone"
    INVALID = "invalid"

    __hash__ = object.__hash__


ContentCheck: TypeAlias = Callable[[bytes], Content]
"""Judges a body. Never raises; bounded in time and memory, whatever the body is."""


PRIORITIES: Final = 10
DEFAULT_PRIORITY: Final = 4

LEVELS: Final = frozenset(map(str, range(PRIORITIES)))


def wanted_priority(fields: Mapping[str, str]) -> int:
    """The level that headers ask for, or the usual one."""
    text = fields.get(headers.PRIORITY, "")
    return int(text) if text in LEVELS else DEFAULT_PRIORITY


@dataclass(frozen=True, slots=True)
class Wishes:
    """Rare requests of a SEND.

    Attributes:
        expires_at: when the message becomes a dead letter, or None.
        delay: seconds until it goes into its queue, or None.
        deliver_at: when it goes there, or None. The later one counts.
        dedup_id: an id that no other message there may have within a window, or None.
    """

    expires_at: float | None = None
    delay: float | None = None
    deliver_at: float | None = None
    dedup_id: str | None = None

    def due(self, now: float) -> float:
        """When the message goes into its queue."""
        return max(now, now + (self.delay or 0.0), self.deliver_at or now)


# What keeping a message costs besides its body, a head besides its headers, and a header besides its
# text: the objects of CPython around them. Counting a little too much is safe, too little is not.
MESSAGE_COST_BYTES = 320
HEAD_COST_BYTES = 1100
LINES_COST_BYTES = 40
HEADER_COST_BYTES = 180


class ValueOwner(Protocol):
    """A session that ephemeral values go with.

    Attributes:
        ephemerals: last-value destinations whose present value goes with it.
    """

    id: str
    ephemerals: dict[str, None]


@dataclass(slots=True, eq=False, repr=False)
class Head:
    """What all messages of one header block have in common. Shared; only the broker writes to it.

    Args:
        passed_on: the headers that receivers get, without destination and sender.

    Attributes:
        destination: where the SEND goes; `kind` is the kind of that.
        headers: passed on to receivers, in order; nothing of them belongs to one delivery. The first is the
            destination, the second the sender.
        sender: the principal of the sender.
        usage: pays for the messages unless something else is said: that of the sender.
        requires_consumers: refuse the message when the queue has no consumer (D.49).
        is_persistent: keep it on disk, where it waits.
        ephemeral_owner: the session that the value goes with (G.ephemeral), or None.
        is_quiet: a RECEIPT comes only if the verdict is not that it is accepted.
        is_moved: its former row on disk is dropped at the same time, so that it takes no more room there.
        time_to_live: of a request: seconds from arrival, after which it is dropped. None: it is no
            request, or does not expire. A stored one has a time of its own.
        wishes: rare requests, or None.
        priority: 0 to 9, for queues that look at it.
        copy_to: the queue that gets a copy of each, or None; `copy` is the head of those, once made.
        transaction: the transaction that its SENDs belong to, or None.
        is_once: stored messages of a queue are delivered only when their batch is committed, so that a sender
            that repeats one after a crash does not duplicate it.
        is_plain: the messages have no wishes and no copy, and do not wait for a commit.
        reply_to: where the reply to these requests goes, or None.
        is_response: they have `neb-response:true`.
        addresses: where the messages ask others to send something. Each has a flag: true for notices of a
            job, false for replies or credit. Mostly it is empty.
        origin: for requests, the `Session.origin` of their sender; None if it is no longer known.
        is_stream: they ask for a stream, or are parts of one that goes on.
        deletes_explicitly: the SEND had a `content-length`, so that an empty body deletes under any
            profile (D.28).
        check: judges bodies, or None.
        judged_in: the epoch of the access policy in which `is_permitted` was found.
        is_permitted: whether the sender may publish there.
        free_in: the epoch in which its messages need no check, as long as their destination exists; or -1.
        own_bytes: what the head costs to keep.
        cost_bytes: what the next message counts for it: all of it if it is the first.
        later_bytes: what the messages after the first count: nothing, as they share it, until it is closed.
        uses: messages that it had so far.
        on_gone: called when nothing refers to it any more, or None.
        text_characters: length of all headers together.
        blocks: for the protocol: the headers encoded, by what they are encoded for.
    """

    kind: DestinationKind
    destination: str
    sender: str
    passed_on: InitVar[tuple[tuple[str, str], ...]]
    _: KW_ONLY
    requires_consumers: bool = False
    is_persistent: bool = False
    ephemeral_owner: ValueOwner | None = None
    is_quiet: bool = False
    is_moved: bool = False
    time_to_live: float | None = None
    transaction: str | None = None
    reply_to: str | None = None
    addresses: tuple[tuple[str, bool], ...] = ()
    origin: Any = None
    is_response: bool = False
    is_stream: bool = False
    deletes_explicitly: bool = True
    check: ContentCheck | None = None
    wishes: Wishes | None = None
    priority: int = DEFAULT_PRIORITY
    copy_to: str | None = None
    is_once: bool = False
    usage: Usage = field(default_factory=lambda: Usage(""))
    headers: tuple[tuple[str, str], ...] = field(init=False)
    copy: Head | None = None
    is_plain: bool = field(init=False)
    judged_in: int = -1
    is_permitted: bool = False
    free_in: int = -1
    text_characters: int = field(init=False)
    own_bytes: int = field(init=False)
    cost_bytes: int = field(init=False)
    later_bytes: int = 0
    uses: int = 0
    on_gone: Callable[[], None] | None = None
    blocks: dict[Any, bytes] = field(default_factory=dict)

    def __post_init__(self, passed_on: tuple[tuple[str, str], ...]) -> None:
        self.headers = (("destination", self.destination), (headers.SENDER, self.sender), *passed_on)
        has_id = self.wishes is not None and self.wishes.dedup_id is not None
        self.is_once = self.is_once or has_id or self.transaction is not None
        self.is_plain = self.wishes is None and self.copy_to is None and not self.is_once
        # Twice: as text and as an encoded block. One rare character makes a text four times as wide.
        text = "".join(map("".join, self.headers))
        self.text_characters = len(text)
        text_bytes = len(text) * (2 if text.isascii() else 8)
        self.own_bytes = HEAD_COST_BYTES + HEADER_COST_BYTES * len(self.headers) + text_bytes
        self.cost_bytes = self.own_bytes

    def __del__(self) -> None:
        if self.on_gone is not None:
            self.on_gone()

    def as_moved(self) -> Head:
        """The same, of what was elsewhere on the disk."""
        # The copy must not give back what the original pays for.
        moved = copy.copy(self)
        moved.is_moved = True
        moved.on_gone = None
        return moved

    def header(self, name: str, unread: bytes) -> str | None:
        """The value of a header, of the message that has these lines."""
        value = next((value for each, value in self.headers if each == name), None)
        return header_lines.find(unread, header_lines.start_of(name)) if value is None else value

    def close(self) -> bool:
        """From now on each message counts for all of it.

        Returns:
            Whether there are messages that count for none of it.
        """
        self.cost_bytes = self.later_bytes = self.own_bytes
        return self.uses > 1


class Numbers:
    """Gives messages their numbers, which rise for a broker's whole life.

    Args:
        first: the first one, above all that an earlier run has given.
    """

    __slots__ = ("_last",)

    def __init__(self, first: int) -> None:
        self._last = first - 1

    def next(self) -> int:
        """A number above all that were given."""
        self._last += 1
        return self._last


class Message:
    """Content that was sent once, on its way to one receiver or to many.

    Attributes:
        head: shared with others of the same header block.
        body: bytes, as they came.
        number: its place in the order of arrival, unique in a broker's life.
        unread: further headers, as lines that were not read; see `nebula.stomp.header_lines`.
        expires_at: when it is no longer worth delivering, or None; see `is_request`.
        size_bytes: what it counts against the limits.
        shared: for the protocol: the bytes that its receivers have in common, by what they are
            encoded for; None where there is one receiver at most.
    """

    __slots__ = ("body", "expires_at", "head", "number", "shared", "size_bytes", "unread")

    def __init__(self, head: Head, body: bytes, number: int, now: float, unread: bytes = b"") -> None:
        self.head = head
        self.body = body
        self.number = number
        self.unread = unread
        # The first message of a head pays for it, and later ones for nothing; see `known_heads`.
        self.size_bytes = MESSAGE_COST_BYTES + head.cost_bytes + len(body)
        head.cost_bytes = head.later_bytes
        head.uses += 1
        if unread:
            self.size_bytes += LINES_COST_BYTES + len(unread)
        self.expires_at = None if head.time_to_live is None else now + head.time_to_live
        self.shared: dict[Any, Any] | None = None

    @property
    def disk_bytes(self) -> int:
        """About how many bytes it takes on disk."""
        return self.size_bytes + self.head.text_characters

    @property
    def is_request(self) -> bool:
        """Whether it expires unnoticed: it asked for a reply in time."""
        return self.head.time_to_live is not None

    def expire_at(self, at: float) -> None:
        """It is no longer worth delivering then, if it still is."""
        if self.expires_at is None or at < self.expires_at:
            self.expires_at = at

    def has_expired(self, now: float) -> bool:
        """Whether its time to live is over."""
        return self.expires_at is not None and self.expires_at <= now

    def header(self, name: str) -> str | None:
        """The value of a header that is passed on."""
        return self.head.header(name, self.unread)

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Those that receivers get, but for destination and sender. Of repeated ones the first counts."""
        return self.head.headers[2:] + header_lines.read(self.unread)
