"""Views of the core for operators: plain values that hold no reference into it."""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Final

from nebula.broker.core.account import Account
from nebula.broker.core.destinations.queue import Queue
from nebula.broker.core.destinations.topic import Topic
from nebula.broker.core.destinations.value_feed import LastValueTopic
from nebula.broker.core.durable import Durable, DurableSession
from nebula.broker.core.messages import Message
from nebula.broker.core.session import Session, Subscription
from nebula.broker.core.shares import Resource, Usage

# How many subscriptions of one queue, topic or session are shown: a reply stays far below `max_body_bytes`.
MOST_SUBSCRIPTIONS: Final = 1_000


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue.

    Attributes:
        depth: messages held: waiting, un-ACKed and postponed.
        paged_out: those of them that lie on disk alone.
        stored_bytes: what those in memory count for against limits, and `paged_bytes` the others.
        taken: messages that it has accepted since it was made. What `taken - depth` grows by has left it.
        oldest_seconds: how long its first message has been here, at least; None: nothing waits in memory.
        postponed: messages that were NACKed, and are delivered again later (`redelivery-delay`).
    """

    queue: str
    depth: int
    unacked: int
    paged_out: int
    stored_bytes: int
    paged_bytes: int
    consumers: int
    taken: int
    oldest_seconds: float | None
    postponed: int


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    """A subscription of a connected session. `destination` may be a glob."""

    session: str
    principal: str
    id: str
    destination: str
    ack: str
    prefetch: int
    unacked: int


@dataclass(frozen=True, slots=True)
class QueueDetails:
    """A queue, what it may hold, and who consumes (the first thousand)."""

    summary: QueueRow
    max_messages: int
    max_bytes: int
    is_exclusive: bool
    auto_delete: bool
    subscriptions: list[SubscriptionRow]


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic, or a glob of topics, that is subscribed to; or a last-value destination.

    Attributes:
        kind: `topic` or `last-value`.
        subscribers: of a topic: who gets its messages, those who are away too.
        waiting: of a topic: messages that wait for subscribers; of a last value: subscribers that have not
            received the latest change.
        has_value: of a last value: it exists, and was not deleted.
        changed_seconds: of a last value: how long ago it changed, at least.
        sender: of a last value: who sent it.
        owner: of a last value: the session that it goes with.
    """

    topic: str
    kind: str
    subscribers: int | None
    waiting: int
    stored_bytes: int
    has_value: bool | None = None
    changed_seconds: float | None = None
    sender: str | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class TopicDetails:
    """A topic or a last value; of a topic also its connected subscribers (the first thousand)."""

    summary: TopicRow
    subscriptions: list[SubscriptionRow]


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session with durable subscriptions, which outlives its connection.

    Attributes:
        away_seconds: since its connection ended; None: it is connected.
        waiting: messages that wait for it, and last values that changed meanwhile.
    """

    session: str
    principal: str
    away_seconds: float | None
    subscriptions: int
    waiting: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class DurableRow:
    """A durable subscription, with what waits for it."""

    id: str
    destination: str
    ack: str
    prefetch: int
    is_active: bool
    waiting: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class SessionDetails:
    """A session with its durable subscriptions (the first thousand)."""

    summary: SessionRow
    subscriptions: list[DurableRow]


@dataclass(frozen=True, slots=True)
class PrincipalRow:
    """What one principal uses of the broker's bounds.

    Attributes:
        principal: its name; for an anonymous peer with its address.
        used_fraction: how much of its share it uses, for the resource that is closest to the limit; 1.0: all.
        refusals: how often it was refused because its share was used up.
        is_operator: it may use the reserve.
        memory_bytes: messages, values, transactions, subscriptions and names that it pays for.
        disk_bytes: messages that it pays for on disk.
    """

    principal: str
    used_fraction: float
    refusals: int
    is_operator: bool
    memory_bytes: int
    disk_bytes: int
    connections: int
    destinations: int
    subscriptions: int
    globs: int
    durable_sessions: int
    durable_subscriptions: int
    delayed_messages: int
    dedup_ids: int


@dataclass(frozen=True, slots=True)
class DelayedRow:
    """A delayed message.

    Attributes:
        number: identifies it.
        due_seconds: until it is put into its queue.
        size_bytes: the memory that it counts for.
    """

    number: int
    destination: str
    principal: str
    due_seconds: float
    size_bytes: int
    is_persistent: bool


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    """What a connection's shell knows of it.

    Attributes:
        peer: address and port, or `in process`.
        scheme: of the URL by which it came: `stomp`, `stomps`, `ws` or `wss`.
        profile: how its listener behaves.
        version: of STOMP.
        since_seconds: since it was accepted.
        read_bytes, written_bytes: so far. With TLS, of what is inside.
        sent_frames: so far.
        buffered_bytes: written, and not taken by the system yet.
        is_held_back: it sends more than there is room for, or than the store keeps up with: it is not read.
    """

    peer: str
    scheme: str
    profile: str
    version: str | None
    since_seconds: float
    read_bytes: int
    written_bytes: int
    sent_frames: int
    buffered_bytes: int
    is_held_back: bool


@dataclass(frozen=True, slots=True)
class ConnectionRow:
    """A connection that has a session.

    Attributes:
        session: its id, or the client-id that it gave.
        unacked: messages that it was sent and has not settled.
        outbox_bytes: what is still to be written to it.
    """

    session: str
    principal: str
    subscriptions: int
    unacked: int
    outbox_bytes: int
    link: ConnectionFacts


@dataclass(frozen=True, slots=True)
class ConnectionDetails:
    """A connection with its subscriptions (the first thousand)."""

    summary: ConnectionRow
    transactions: int
    subscriptions: list[SubscriptionRow]


class Arrivals:
    """When messages arrived, estimated from their numbers. Numbers rise, so no time is noted for each
    message.

    Args:
        first_number: of this run. What has a lower one came earlier, and is as old as the run.
        now: when it begins.
    """

    # The precision of an age: one part in this many. That is a second in four minutes, an hour in ten days.
    _PARTS: Final = 256
    # Twice as many as are left of a month, so that thinning out is rare.
    _MOST: Final = 8_192

    def __init__(self, first_number: int, now: float) -> None:
        self._numbers = [first_number - 1]
        self._times = [now]

    def note(self, number: int, now: float) -> None:
        """All that has come until now has a lower number, and what comes later a higher one."""
        self._numbers.append(number)
        self._times.append(now)
        if len(self._numbers) > self._MOST:
            self._thin_out(now)

    def age_of(self, number: int, now: float) -> float:
        """Seconds for which a message has been there, at least."""
        place = bisect_left(self._numbers, number)
        return now - self._times[place] if place < len(self._times) else 0.0

    def _thin_out(self, now: float) -> None:
        """Forget what lies closer together than its age asks for."""
        kept = [0]
        for place, at in enumerate(self._times):
            if (at - self._times[kept[-1]]) * self._PARTS >= now - at:
                kept.append(place)
        self._numbers = [self._numbers[place] for place in kept]
        self._times = [self._times[place] for place in kept]


def queue_row(queue: Queue, arrivals: Arrivals, now: float) -> QueueRow:
    """A queue as a row."""
    first = next(at_hand(queue), None)
    return QueueRow(
        queue.name,
        queue.store.depth,
        queue.store.unacked_count,
        queue.store.paging.paged_count,
        queue.store.stored_bytes,
        queue.store.paging.paged_bytes,
        queue.consumer_count,
        queue.taken_count,
        None if first is None else arrivals.age_of(first.number, now),
        queue.store.postponed_count,
    )


def at_hand(queue: Queue, after: int = 0) -> Iterator[Message]:
    """What waits in memory before anything that is on disk alone. To be looked at before anything changes.

    Args:
        after: of each level only what has a higher number.
    """
    fronts = (line.front for line in reversed(queue.store.line.lines))
    # Numbers rise along each: what comes before is skipped, not looked at.
    return chain.from_iterable(islice(front, bisect(front, after, key=_by_number), None) for front in fronts)


def _by_number(message: Message) -> int:
    return message.number


def queue_details(queue: Queue, arrivals: Arrivals, now: float) -> QueueDetails:
    """A queue with who consumes."""
    return QueueDetails(
        queue_row(queue, arrivals, now),
        queue.store.max_messages,
        queue.store.max_bytes,
        queue.exclusive_subscription is not None,
        queue.auto_delete,
        subscription_rows(queue.subscriptions),
    )


def subscription_rows(subscriptions: Iterable[Subscription]) -> list[SubscriptionRow]:
    """The first of these as rows."""
    return [
        SubscriptionRow(
            each.session.id,
            each.session.principal,
            each.id,
            each.pattern,
            each.ack_mode.value,
            each.window,
            len(each.unacked),
        )
        for each in islice(subscriptions, MOST_SUBSCRIPTIONS)
    ]


def principal_row(usage: Usage, account: Account) -> PrincipalRow:
    """The row of a principal."""
    return PrincipalRow(
        usage.name,
        round(used_fraction(usage, account), 4),
        usage.refusals,
        usage.is_operator,
        usage.memory_bytes,
        usage.disk_bytes,
        *(usage.used(resource) for resource in _COUNTED),
    )


def used_fraction(usage: Usage, account: Account) -> float:
    """The fraction of its share that a principal uses, for the resource that is closest to the limit."""
    room = {resource: pool.room_for(usage) for resource, pool in account.pools.items()}
    room[Resource.MEMORY] = account.room_bytes(usage)
    fractions = (
        used / (used + more) for resource, more in room.items() if (used := usage.used(resource)) > 0
    )
    return max(fractions, default=0.0)


# In the order of the fields of `PrincipalRow`.
_COUNTED: Final = (
    Resource.CONNECTIONS,
    Resource.DESTINATIONS,
    Resource.SUBSCRIPTIONS,
    Resource.GLOBS,
    Resource.SESSIONS,
    Resource.DURABLES,
    Resource.DELAYED,
    Resource.DEDUP_IDS,
)


def delayed_row(due: float, message: Message, now: float) -> DelayedRow:
    """A delayed message as a row."""
    head = message.head
    return DelayedRow(
        message.number, head.destination, head.sender, due - now, message.size_bytes, head.is_persistent
    )


def topic_row(name: str, topic: Topic | LastValueTopic, arrivals: Arrivals, now: float) -> TopicRow:
    """A topic or a last value as a row."""
    seen = topic.view()
    row = TopicRow(name, seen.kind.name, seen.consumers, seen.waiting, seen.stored_bytes)
    if seen.value is None:
        return row
    return replace(
        row,
        has_value=seen.is_live,
        changed_seconds=arrivals.age_of(seen.value.number, now),
        sender=seen.value.head.sender,
        owner=seen.owner,
    )


def topic_details(name: str, topic: Topic | LastValueTopic, arrivals: Arrivals, now: float) -> TopicDetails:
    """A topic with who is subscribed, or a last value."""
    subscriptions = subscription_rows(list(islice(topic.view().subscriptions, MOST_SUBSCRIPTIONS)))
    return TopicDetails(topic_row(name, topic, arrivals, now), subscriptions)


def session_row(session: DurableSession, now: float) -> SessionRow:
    """A session with durable subscriptions as a row."""
    since = session.away_since
    durables = [_durable_row(each) for each in session.durables.values()]
    return SessionRow(
        session.id,
        session.rights.principal,
        None if since is None else now - since,
        len(durables),
        sum(each.waiting for each in durables),
        sum(each.stored_bytes for each in durables),
    )


def session_details(session: DurableSession, now: float) -> SessionDetails:
    """A session with its durable subscriptions."""
    durables = [_durable_row(each) for each in islice(session.durables.values(), MOST_SUBSCRIPTIONS)]
    return SessionDetails(session_row(session, now), durables)


def _durable_row(durable: Durable) -> DurableRow:
    return DurableRow(
        durable.id,
        durable.pattern,
        durable.ack_mode.value,
        durable.prefetch,
        durable.subscription is not None,
        durable.waiting_count,
        0 if durable.queue is None else durable.queue.store.stored_bytes,
    )


def connection_row(session: Session, now: float) -> ConnectionRow:
    """The connection of a session as a row."""
    return ConnectionRow(
        session.id,
        session.principal,
        len(session.subscriptions),
        unacked_of(session),
        session.outbox_bytes,
        session.connection.facts(now),
    )


def unacked_of(session: Session) -> int:
    """Messages that a connected session was sent and has not settled."""
    return sum(len(each.unacked) for each in session.subscriptions.values())


def connection_details(session: Session, transactions: int, now: float) -> ConnectionDetails:
    """The connection of a session with its subscriptions."""
    return ConnectionDetails(
        connection_row(session, now),
        transactions,
        subscription_rows(session.subscriptions.values()),
    )
