"""What must hold between any two inputs. The harness asks after every step of every test."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise

from nebula.broker.core import Broker
from nebula.broker.destinations.queue import Queue
from nebula.broker.destinations.topic import Topic
from nebula.broker.messages import Message
from nebula.broker.session import Session
from nebula.broker.subscriptions import AckMode, Subscription
from nebula.headers import INBOX_PREFIX


def check(broker: Broker, sessions: Collection[Session], blocked: Collection[Session]) -> None:
    """Fail if anything is out of order.

    Args:
        sessions: those that are open.
        blocked: whose sockets take no more.
    """
    assert not broker.take_work(float("-inf")).dirty, "somebody is told nothing of what waits for them"
    for name, destination in broker.destinations.items():
        assert name == destination.name
        assert not destination.is_idle, f"{name} is kept for nothing"
        if isinstance(destination, Topic):
            _check_topic(destination)
    queues = list(_queues(broker))
    for queue in queues:
        _check_queue(queue)
    assert broker.account.stored_bytes == sum(queue.stored_bytes for queue in queues)
    _check_who_is_subscribed(broker, sessions)
    for session in sessions:
        _check_session(session, is_blocked=session in blocked)


def _queues(broker: Broker) -> Iterator[Queue]:
    for destination in broker.destinations.values():
        if isinstance(destination, Queue):
            yield destination
        else:
            yield from destination._queues.values()


def _check_topic(topic: Topic) -> None:
    assert all(each.ack_mode is AckMode.AUTO for each in topic._direct)
    for subscription, queue in topic._queues.items():
        assert subscription.ack_mode is not AckMode.AUTO
        assert queue._subscriptions == [subscription], "a private queue has one subscription"


def _check_queue(queue: Queue) -> None:
    waiting = list(queue._waiting)
    unacked = [message for each in queue._subscriptions for message in each.unacked.values()]
    held = waiting + unacked
    numbers = [message.number for message in held]
    assert len(numbers) == len(set(numbers)), "a message is in two places"
    assert _rises(waiting), "what waits is not in order of arrival"
    assert queue.depth == len(held)
    assert queue.stored_bytes == sum(message.size_bytes for message in held)
    assert queue.stored_bytes <= queue.max_bytes
    assert queue.depth <= queue.max_messages
    assert set(queue._attempts) <= set(numbers), "attempts are remembered of what is gone"
    expiries = [message.expires_at for message in waiting if message.expires_at is not None]
    assert not expiries or (queue._next_expiry is not None and queue._next_expiry <= min(expiries))
    _check_turns(queue)
    if queue.exclusive_subscription is not None:
        assert queue.consumer_count == 1
    if queue.name.startswith(INBOX_PREFIX):
        assert queue.exclusive_subscription is not None, "an inbox outlived its subscription"


def _rises(messages: list[Message]) -> bool:
    return all(one.number < following.number for one, following in pairwise(messages))


def _check_turns(queue: Queue) -> None:
    takers = list(queue._takers)
    assert len(takers) == len(set(takers))
    assert set(takers) == {each for each in queue._subscriptions if each.in_turn}
    for subscription in queue._subscriptions:
        assert len(subscription.unacked) <= subscription.prefetch
        assert subscription.ack_mode is not AckMode.AUTO or not subscription.unacked
        if subscription.in_turn:
            assert len(subscription.unacked) < subscription.prefetch
        if subscription.has_credit:
            assert subscription.in_turn, "a subscription with credit never gets its turn"
            assert not queue._waiting, "something waits while a subscription has credit"


def _check_who_is_subscribed(broker: Broker, sessions: Collection[Session]) -> None:
    theirs = {each for session in sessions for each in session.subscriptions.values()}
    fed: set[Subscription] = set()
    for destination in broker.destinations.values():
        if isinstance(destination, Queue):
            fed.update(destination._subscriptions)
        else:
            fed.update(destination._direct, destination._queues)
    assert theirs == fed, "a subscription of a session that is gone is fed, or one is not fed"
    assert all(broker.destinations[each.destination.name] is each.destination for each in theirs)
    assert set(broker._paused) <= set(sessions)


def _check_session(session: Session, *, is_blocked: bool) -> None:
    assert not session.is_too_slow, "a slow peer was not ended"
    assert session.is_choked == is_blocked, "the choke does not say whether the socket takes more"
    if is_blocked:
        costs = [len(each) if isinstance(each, bytes) else each[1].size_bytes for each in session.outbox]
        assert session.outbox_bytes == sum(costs)
    else:
        assert not session.outbox
        assert session.outbox_bytes == 0
    for id_, subscription in session.subscriptions.items():
        assert (subscription.id, subscription.session) == (id_, session)
