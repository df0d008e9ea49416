"""What must hold between any two inputs. The harness asks after every step of every test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import chain, pairwise
from typing import Any

from nebula.broker.core.broker import Broker
from nebula.broker.core.costs import text_cost_bytes
from nebula.broker.core.destinations.line import Line
from nebula.broker.core.destinations.queue import QUEUE_COST_BYTES, Queue
from nebula.broker.core.destinations.value_table import TOPIC_COST_BYTES
from nebula.broker.core.duplicates import ID_COST_BYTES
from nebula.broker.core.durable import SESSION_COST_BYTES
from nebula.broker.core.messages import Message
from nebula.broker.core.policies import WhenFull
from nebula.broker.core.session import Session
from nebula.broker.core.shares import Resource, Usage
from nebula.broker.core.subscribe import subscription_cost_bytes
from nebula.broker.core.subscription import AckMode, Feed, Subscription
from nebula.broker.core.transactions import HELD_COST_BYTES
from nebula.broker.core.value_feed import ENTRY_COST_BYTES, LastValueTopic
from nebula.headers import INBOX_PREFIX


def check(broker: Broker, sessions: Collection[Session], blocked: Collection[Session]) -> None:
    """Fail if anything is out of order.

    Args:
        sessions: those that are open.
        blocked: whose sockets take no more.
    """
    work = broker.take_work(float("-inf"))
    assert work is None or not work.dirty, "somebody is told nothing of what waits for them"
    for name, queue in broker.queues.by_name.items():
        assert name == queue.name
        assert not queue.is_idle, f"{name} is kept for nothing"
    for pattern, topic in broker.topics.topics.items():
        assert topic.subscriber_count, f"{pattern} is kept for nothing"
        assert all(each.ack_mode is AckMode.AUTO for each in topic.direct)
        assert all(len(each.consumers.subscriptions) <= 1 for each in topic.queues)
    queues = list(_queues(broker))
    for queue in queues:
        _check_queue(queue)
    _check_values(broker)
    _check_memory(broker, sessions)
    _check_disk(broker)
    _check_counts(broker, sessions)
    _check_who_is_subscribed(broker, sessions)
    for session in sessions:
        _check_parted(broker, session)
        _check_session(session, is_blocked=session in blocked)


def _check_memory(broker: Broker, sessions: Collection[Session]) -> None:
    """Everybody pays for what is theirs, and all of them together for everything."""
    paid: Counter[Usage] = Counter()
    for name, queue in broker.queues.by_name.items():
        paid[queue.owner] += QUEUE_COST_BYTES + text_cost_bytes(name)
    for queue in _queues(broker):
        for message in _in_memory(queue):
            paid[queue.store.payer or message.head.usage] += message.size_bytes
    for destination, topic in broker.values.topics.items():
        paid[topic.value.head.usage] += topic.value.size_bytes
        paid[topic.creator] += TOPIC_COST_BYTES + text_cost_bytes(destination)
    for feed in (*_feeds(broker), *broker.values.feeds._departed):
        paid[feed.owner] += ENTRY_COST_BYTES * len(feed._states) + feed._walk_bytes
    for *_, message in broker.routing.delayed._heap:
        paid[message.head.usage] += message.size_bytes
    for key, known in broker.routing.duplicates._known.items():
        paid[known.usage] += ID_COST_BYTES + text_cost_bytes(*key)
    for session in sessions:
        for transaction_name, transaction in broker.transactions.of(session).items():
            paid[session.usage] += transaction.size_bytes + HELD_COST_BYTES
            paid[session.usage] += text_cost_bytes(transaction_name)
        paid[session.usage] += sum(map(subscription_cost_bytes, session.subscriptions.values()))
        paid[session.usage] += sum(map(subscription_cost_bytes, session.parted))
        paid[session.usage] += session.reply_rights._size_bytes
    for standing in broker.durable_sessions.by_id.values():
        paid[standing.usage] += SESSION_COST_BYTES + text_cost_bytes(standing.id)
        paid[standing.usage] += sum(each.cost_bytes for each in standing.durables.values())
    paid.update(broker.account.heads_bytes)
    assert broker.account.stored_bytes == sum(paid.values())
    usages = {*broker.account.usages.all, broker.account.own}
    assert {each.name: each.memory_bytes for each in usages if each.memory_bytes} == {
        each.name: size_bytes for each, size_bytes in paid.items() if size_bytes
    }


def _check_disk(broker: Broker) -> None:
    """Everybody pays for what is theirs on disk, as far as it is known whose it is."""
    paid: Counter[Usage] = Counter()
    for queue in _queues(broker):
        if queue.store.journal is not None:
            for message in _in_memory(queue):
                if queue.store.keeps(message):
                    paid[queue.store.payer or message.head.usage] += message.disk_bytes
            paid.update(queue.store.paging._paged_by)
            assert queue.store.paging.is_deep or not any(queue.store.paging._paged_by.values()), (
                "nothing is there that is paid for"
            )
    if broker.journal is not None:
        for *_, message in broker.routing.delayed._heap:
            if message.head.is_persistent:
                paid[message.head.usage] += message.disk_bytes
    for topic in broker.values.topics.values():
        if topic.stored is not None:
            paid[topic.stored.head.usage] += topic.stored.disk_bytes
    usages = {*broker.account.usages.all, broker.account.own}
    assert {each.name: each.disk_bytes for each in usages if each.disk_bytes} == {
        each.name: size_bytes for each, size_bytes in paid.items() if size_bytes
    }


def destinations(broker: Broker) -> dict[str, Any]:
    """All destinations of a broker, by name."""
    return {**broker.queues.by_name, **broker.topics.topics, **broker.values.topics}


def _check_counts(broker: Broker, sessions: Collection[Session]) -> None:
    globs = {*broker.topics.table.globs, *broker.values.feeds.table.globs}
    expected = {
        Resource.DESTINATIONS: len(destinations(broker)),
        Resource.SUBSCRIPTIONS: sum(len(each.subscriptions) + len(each.parted) for each in sessions),
        Resource.GLOBS: len(globs),
        Resource.SESSIONS: len(broker.durable_sessions.by_id),
        Resource.DURABLES: sum(len(each.durables) for each in broker.durable_sessions.by_id.values()),
        Resource.DELAYED: len(broker.routing.delayed),
        Resource.CONNECTIONS: len(broker.sessions),
        Resource.DEDUP_IDS: len(broker.routing.duplicates),
    }
    usages = {*broker.account.usages.all, broker.account.own}
    for resource, count in expected.items():
        assert broker.account.pools[resource].used == count, f"{resource} are miscounted"
        assert sum(each.used(resource) for each in usages) == count, f"who has {resource} is miscounted"
    for session in sessions:
        inboxes = [each for each in session.subscriptions.values() if each.pattern.startswith(INBOX_PREFIX)]
        assert session.inbox_count == len(inboxes)


def _in_memory(queue: Queue) -> list[Message]:
    unacked = (each.unacked.values() for each in (*queue.consumers.subscriptions, *queue.consumers.drained))
    return [*queue.store.line.in_memory(), *chain.from_iterable(unacked), *queue.store.purged, *_apart(queue)]


def _apart(queue: Queue) -> list[Message]:
    postponed = queue.store.postponed
    assert postponed is None or postponed.due.keys() >= postponed.apart.keys()
    assert postponed is None or postponed.due, "it is kept for nothing"
    return [] if postponed is None else list(postponed.apart.values())


def _queues(broker: Broker) -> Iterator[Queue]:
    yield from broker.queues.by_name.values()
    for topic in broker.topics.topics.values():
        yield from topic.queues


def _feeds(broker: Broker) -> Iterator[Feed]:
    for feeds in broker.values.feeds.table.things.values():
        yield from feeds


def _check_values(broker: Broker) -> None:
    users: Counter[LastValueTopic] = Counter()
    for feed in _feeds(broker):
        users.update(feed._states.keys())
        _check_feed(feed)
    for feed in broker.values.feeds._departed:
        users.update(feed._states.keys())
    for destination, topic in broker.values.topics.items():
        assert destination == topic.destination
        assert topic.users == users[topic], f"{destination}: users are miscounted"
        assert topic.is_live or topic.users, f"{destination} is kept for nothing"
        assert topic.owner is None or destination in topic.owner.ephemerals
    assert set(broker.values._values.keys.values()) <= set(broker.values.topics), "a key of what is forgotten"
    markers = {feed.marker for feed in _feeds(broker)}
    assert set(users) - markers <= set(broker.values.topics.values()), "a feed knows of what is forgotten"


def _check_feed(feed: Feed) -> None:
    in_flight = list(feed._in_flight.values())
    assert len(in_flight) == len(set(in_flight)), "two messages of one destination are in flight"
    assert len(feed._line) == len(set(feed._line))
    assert set(feed._states) == set(in_flight) | set(feed._line)
    assert not set(in_flight) & set(feed._line)
    assert feed.snapshot is None or feed.snapshot <= set(feed._states), "a snapshot that never ends"
    subscription = feed.subscription
    if subscription is None:
        assert feed.is_durable
        assert not feed.is_walking
        assert not in_flight
        return
    assert set(subscription.unacked) == set(feed._in_flight)
    session = subscription.session
    assert feed.in_line == (feed in session.value_feeds)
    if feed.is_ready:
        assert feed.in_line, "a feed with something to tell never gets its turn"
        assert session.is_throttled or session.value_credit <= 0, "something waits that could be told"


def _check_queue(queue: Queue) -> None:
    waiting = list(queue.store.line.in_memory())
    paged = [line.paged for line in queue.store.line.lines if line.paged is not None]
    assert len(queue._uncommitted) <= 2
    assert bool(queue._uncommitted) == (queue in queue.store.work.uncommitted)
    assert queue.store.postponed is None or queue in queue.store.work.postponed
    for line in queue.store.line.lines:
        _check_line(queue, line)
    assert queue.store.paging.paged_bytes == sum(paged.size_bytes for paged in paged)
    consumers = [*queue.consumers.subscriptions, *queue.consumers.drained]
    unacked = [message for each in consumers for message in each.unacked.values()]
    held = _in_memory(queue)
    numbers = [message.number for message in held]
    assert len(numbers) == len(set(numbers)), "a message is in two places"
    apart = _apart(queue)
    assert (queue.store.unacked_count, queue.store.postponed_count) == (len(unacked), len(apart))
    assert queue.store.depth == len(waiting) + len(unacked) + len(apart) + sum(paged.count for paged in paged)
    assert queue.store.stored_bytes == sum(message.size_bytes for message in held)
    assert queue.store.stored_bytes <= queue.store.rules.max_memory_bytes
    # What was kept is kept, though it takes more room by now or the limits are lower: until it is consumed.
    was_kept = paged or (queue.store.journal is not None and queue.store.rules.when_full is WhenFull.REJECT)
    assert was_kept or queue.store.stored_bytes <= queue.store.rules.max_bytes
    assert was_kept or queue.store.depth <= queue.store.rules.max_messages
    assert set(queue.store.attempts) <= set(numbers), "attempts are remembered of what is gone"
    expiries = [message.expires_at for message in waiting if message.expires_at is not None]
    assert not expiries or (
        queue.store._next_expiry is not None and queue.store._next_expiry <= min(expiries)
    )
    _check_turns(queue)
    if queue.consumers.exclusive is not None:
        assert len(queue.consumers.subscriptions) == 1
    if queue.name.startswith(INBOX_PREFIX):
        assert queue.consumers.exclusive is not None, "an inbox outlived its subscription"


def _check_line(queue: Queue, line: Line) -> None:
    assert _rises(list(line.front)), "what waits is not in order of arrival"
    paged = line.paged
    if paged is None:
        return
    assert paged.count, "a paged of nothing"
    assert paged.after < paged.up_to
    assert _rises(list(paged.behind)), "what waits behind is not in order of arrival"
    behind = [message.number for message in paged.behind]
    assert not behind or behind[0] > paged.after, "something waits behind pages with higher numbers"
    front = [message.number for message in line.front]
    assert not front or front[-1] <= paged.after, "something waits before pages with lower numbers"
    unacked = [
        message.number
        for each in (*queue.consumers.subscriptions, *queue.consumers.drained)
        for message in each.unacked.values()
        if queue.store.line.name_of(message) == line.name
    ]
    unacked += [each.number for each in _apart(queue) if queue.store.line.name_of(each) == line.name]
    assert not unacked or max(unacked) <= paged.after, "what is un-ACKed belongs behind a page"


def _rises(messages: list[Message]) -> bool:
    return all(one.number < following.number for one, following in pairwise(messages))


def _check_turns(queue: Queue) -> None:
    ready = list(queue.consumers.ready)
    assert len(ready) == len(set(ready))
    assert set(ready) == {each for each in queue.consumers.subscriptions if each.in_turn}
    for drained in queue.consumers.drained:
        assert drained.is_drained
        assert drained.unacked, "a subscription is kept for nothing"
        assert not drained.has_credit
    for subscription in queue.consumers.subscriptions:
        assert len(subscription.unacked) <= subscription.window
        assert subscription.prefetch in (0, subscription.window)
        assert subscription.ack_mode is not AckMode.AUTO or not subscription.unacked
        if subscription.in_turn:
            assert len(subscription.unacked) < subscription.prefetch
        if subscription.has_credit:
            assert subscription.in_turn, "a subscription with credit never gets its turn"
            assert not _may_go(queue), "something waits while a subscription has credit"


def _may_go(queue: Queue) -> bool:
    front, uncommitted = queue.store.line.front, queue._uncommitted
    return bool(front) and (not uncommitted or front[0].number < uncommitted[0][0])


def _check_who_is_subscribed(broker: Broker, sessions: Collection[Session]) -> None:
    known = {*_queues(broker), broker.topics, broker.values}
    # Kinds that a test has invented.
    others = set(broker.routing.by_kind.values()) - known
    all_ = {each for session in sessions for each in (*session.subscriptions.values(), *session.parted)}
    theirs = {each for each in all_ if each.destination not in others}
    fed: set[Subscription] = set()
    for queue in _queues(broker):
        fed.update(queue.consumers.subscriptions)
        fed.update(queue.consumers.drained)
    for topic in broker.topics.topics.values():
        fed.update(topic.direct)
    fed.update(feed.subscription for feed in _feeds(broker) if feed.subscription is not None)
    assert theirs == fed, "a subscription of a session that is gone is fed, or one is not fed"
    for each in theirs:
        assert each.destination in known
    assert set(broker.sends.paused) <= set(sessions)
    for session in sessions:
        in_flight = sum(len(each.unacked) for each in session.subscriptions.values() if each.feed is not None)
        assert session.value_credit == broker.limits.max_unacked_values - in_flight
    standing = broker.durable_sessions.by_id.values()
    assert all(each.durables for each in standing), "a session is kept for nothing"
    assert all((each.away_since is None) == (each.id in broker.sessions) for each in standing)


def _check_parted(broker: Broker, session: Session) -> None:
    for parted in session.parted:
        assert parted.session is session
        assert parted.id not in session.subscriptions or session.subscriptions[parted.id] is not parted
        assert parted.unacked.keys() == broker.transactions.claimed(parted)[parted], "it is kept for nothing"


def _check_session(session: Session, *, is_blocked: bool) -> None:
    assert session.ending is None, "a peer that is to be ended was not"
    assert session.is_throttled == is_blocked, "`is_throttled` does not say whether the socket takes more"
    if is_blocked:
        costs = [len(each) if isinstance(each, bytes) else each[1].size_bytes for each in session.outbox]
        assert session.outbox_bytes == sum(costs)
    else:
        assert not session.outbox
        assert session.outbox_bytes == 0
    for id_, subscription in session.subscriptions.items():
        assert (subscription.id, subscription.session) == (id_, session)
