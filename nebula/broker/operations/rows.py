"""Rows of operators' views, made from the core. They hold no reference into it."""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final

from nebula.broker.core.account import Account
from nebula.broker.core.destinations.queue import Queue
from nebula.broker.core.destinations.topic import Topic
from nebula.broker.core.durable import Durable, DurableSession
from nebula.broker.core.messages import LAST_VALUE_KIND, TOPIC_KIND, Message
from nebula.broker.core.session import Session
from nebula.broker.core.shares import Resource, Usage
from nebula.broker.core.subscription import Subscription
from nebula.broker.core.value_feed import LastValueTopic
from nebula.broker.operations.views import (
    ConnectionDetails,
    ConnectionRow,
    DelayedRow,
    DurableRow,
    PrincipalRow,
    QueueDetails,
    QueueRow,
    SessionDetails,
    SessionRow,
    SubscriptionRow,
    TopicDetails,
    TopicRow,
)

# Subscriptions shown of one queue, topic or session: a reply stays far below `max_body_bytes`.
MOST_SUBSCRIPTIONS: Final = 1_000


class Arrivals:
    """Arrival times of messages, derived from their numbers: those rise, so no time is kept for each message.

    Args:
        first_number: of this run. What has a lower one came earlier, and is as old as the run.
        now: when it begins.
    """

    # Theory. `note` records a few times a second which number the counter has reached, and `age_of` finds the
    # time for a number by bisection. `_thin_out` drops pairs that lie closer together than their age
    # requires, so memory grows with the logarithm of the uptime only.

    # An age is exact to this part of it: a second in four minutes, an hour in ten days.
    _PARTS: Final = 256
    # Twice as many as remain of a month, so that thinning out is rare.
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
        # The first pair with a number as high: the message came no later, so the age is a lower bound.
        place = bisect_left(self._numbers, number)
        return now - self._times[place] if place < len(self._times) else 0.0

    def _thin_out(self, now: float) -> None:
        """Forget what lies closer together than its age asks for."""
        kept = [0]
        for place, at in enumerate(self._times):
            # Kept if the gap to the pair before is at least a 256th of its age.
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
        len(queue.consumers.subscriptions),
        queue.taken_count,
        None if first is None else arrivals.age_of(first.number, now),
        queue.store.postponed_count,
    )


def at_hand(queue: Queue, after: int = 0) -> Iterator[Message]:
    """Messages in memory that precede all that are only on disk. Use it up before the queue changes.

    Args:
        after: of each level only what has a higher number.
    """
    # Highest priority first, as they are delivered.
    fronts = (line.front for line in reversed(queue.store.line.lines))
    # Numbers rise along each front, so what comes before `after` is skipped by bisection: a front may hold
    # half a million messages.
    return chain.from_iterable(islice(front, bisect(front, after, key=_by_number), None) for front in fronts)


def _by_number(message: Message) -> int:
    return message.number


def queue_details(queue: Queue, arrivals: Arrivals, now: float) -> QueueDetails:
    """A queue with who consumes."""
    return QueueDetails(
        queue_row(queue, arrivals, now),
        queue.store.rules.max_messages,
        queue.store.rules.max_bytes,
        queue.consumers.exclusive is not None,
        queue.auto_delete,
        subscription_rows(queue.consumers.subscriptions),
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
    # Its share is what it uses plus what it could still get, which depends on what others use.
    room = {resource: pool.room_for(usage) for resource, pool in account.pools.items()}
    # Memory has no pool in the account; see `status`.
    room[Resource.MEMORY] = account.room_bytes(usage)
    fractions = (
        # Without unused resources, for which there may be no room either: 0 of 0.
        used / (used + more)
        for resource, more in room.items()
        if (used := usage.used(resource)) > 0
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


def topic_row(name: str, topic: Topic) -> TopicRow:
    """A topic as a row."""
    waiting = sum(queue.store.depth for queue in topic.queues)
    stored_bytes = sum(queue.store.stored_bytes for queue in topic.queues)
    return TopicRow(name, TOPIC_KIND.name, topic.subscriber_count, waiting, stored_bytes)


def value_row(name: str, topic: LastValueTopic, arrivals: Arrivals, now: float) -> TopicRow:
    """A last value as a row. Globs may reach it as well, so it is not known how many consumers it has."""
    return TopicRow(
        name,
        LAST_VALUE_KIND.name,
        None,
        topic.users,
        topic.value.size_bytes,
        has_value=topic.is_live,
        changed_seconds=arrivals.age_of(topic.value.number, now),
        sender=topic.value.head.sender,
        owner=None if topic.owner is None else topic.owner.id,
    )


def topic_details(name: str, topic: Topic) -> TopicDetails:
    """A topic with its subscriptions."""
    bound = (each for queue in topic.queues for each in queue.consumers.subscriptions)
    subscriptions = list(islice(chain(topic.direct, bound), MOST_SUBSCRIPTIONS))
    return TopicDetails(topic_row(name, topic), subscription_rows(subscriptions))


def session_row(session: DurableSession, now: float) -> SessionRow:
    """A session with durable subscriptions as a row."""
    since = session.away_since
    # All of them, because the totals below need each.
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
    queue, feed = durable.queue, durable.feed
    return DurableRow(
        durable.id,
        durable.pattern,
        durable.ack_mode.value,
        durable.prefetch,
        durable.subscription is not None,
        (0 if queue is None else queue.store.depth) + (0 if feed is None else feed.pending_count),
        0 if queue is None else queue.store.stored_bytes,
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
