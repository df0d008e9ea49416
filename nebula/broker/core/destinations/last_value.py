"""Last-value destinations: one value each, of which a subscriber receives the latest (B.5).

Invariants, checked after each step of the tests:

- a feed has at most one message of a destination in flight;
- nothing waits for a connected feed while its session has credit and reads;
- a destination without a value is kept only while a feed has to do with it.

**Conflation.** A subscription has a line of destinations that changed, not of messages. When a destination's
turn comes, its present value is sent. So a slow subscriber costs memory for destinations, never for values,
and always receives the last one. A destination that changes while it waits keeps its place in the line; one
that changes while its message is in flight goes to the end of the line at the ACK, so that all destinations
stay about equally fresh (docs/decisions/0011).

`value_table` has the values, `value_feed` what one subscription has still to receive, `feeds` all of these
and their snapshots; here they meet.
"""

from __future__ import annotations

from collections.abc import Callable

from nebula.broker.core.context import CoreContext
from nebula.broker.core.destinations.base import Destination
from nebula.broker.core.destinations.feeds import Feeds
from nebula.broker.core.destinations.value_table import ValueTable
from nebula.broker.core.messages import LAST_VALUE_KIND, Content, Head, Message, ValueOwner, Verdict
from nebula.broker.core.shares import Usage
from nebula.broker.core.subscription import Ending, Feed, Receiver, Subscription
from nebula.broker.core.value_feed import LastValueTopic


class LastValues(Destination):
    """All last-value destinations, and the feeds of their subscriptions.

    Args:
        context: what all parts of the core share.
    """

    def __init__(self, context: CoreContext) -> None:
        # A number above all that were given, and below all that will be.
        self.next_number: Callable[[], int] = context.numbers.next
        self._values = ValueTable(context)
        # By destination. A deleted one stays while a feed has still to send the deletion.
        self.topics = self._values.topics
        self.restore = self._values.restore
        self.feeds = Feeds(context, self._values)
        # Destinations whose values are kept encoded, as several feeds send them. `advance` lets the bytes go.
        self._shared: set[LastValueTopic] = set()

    # --- values ---

    def send(self, message: Message, now: float) -> Verdict:  # noqa: ARG002
        """Replace or delete the value of a destination, and let all feeds know (D.29). Always ACCEPTED."""
        head, body = message.head, message.body
        former = self._values.claim_key(head.destination)
        if former is not None:
            self._delete(former, head.sender, head.usage)
        deletes = not body or (head.check is not None and head.check(body) is Content.TOMBSTONE)
        self._replace(message, None if deletes else head.ephemeral_owner, deletes=deletes)
        return Verdict.ACCEPTED

    def _replace(self, message: Message, owner: ValueOwner | None, *, deletes: bool) -> None:
        """As `send`.

        Args:
            owner: the session that the value goes with; None: it stays.
            deletes: the message stands for a deletion, and is delivered as such.
        """
        destination = message.head.destination
        topic = self.topics.get(destination)
        was_ordinary = topic is not None and topic.is_live and topic.owner is None
        topic = self._values.replace(topic, message, owner, deletes=deletes)
        topic.users += 1  # ours, until all feeds know: none of them may forget it meanwhile
        is_owed, is_judged = False, self.feeds.judges(destination)
        table, tell_of = self.feeds.table, self.feeds.tell_of
        groups = table.reached(destination) if is_judged else table.matching(destination)
        if sum(map(len, groups)) > 1:
            message.shared = {}
            self._shared.add(topic)
        for feeds in groups:
            for feed in feeds:
                # A deletion cannot carry the mark of a snapshot's end.
                if deletes and feed.snapshot is not None:
                    feed.strike_silently(topic, self.next_number)
                if not is_judged or feed.rights.may_receive(destination):
                    tell_of(feed, topic, was_ordinary=was_ordinary)
                elif feed.subscription is not None:  # there may be the marker to send
                    self.feeds.line_up(feed, feed.subscription.session)
                is_owed = is_owed or (feed.is_durable and feed.knows(topic))
        self._values.record(topic, is_owed=is_owed)
        topic.users -= 1
        self._values.forget_if_idle(topic)

    def end_ephemerals(self, session: Receiver) -> None:
        """The session has ended, and the values that go with it do."""
        for destination in list(session.ephemerals):
            self._delete(destination, session.principal, session.usage)

    def sweep(self) -> None:
        """After `restore` and `owe`: forget the deletions that no feed has to send."""
        for topic in list(self.topics.values()):
            self._values.forget_if_idle(topic)

    def advance(self) -> None:
        """Let time pass: a value stays, what it was encoded to for its first receivers need not."""
        for topic in self._shared:
            topic.value.shared = None
        self._shared.clear()
        self.feeds.advance()

    def _delete(self, destination: str, sender: str, usage: Usage) -> None:
        topic = self.topics.get(destination)
        if topic is not None and topic.is_live:
            head = Head(LAST_VALUE_KIND, destination, sender, (), usage=usage)
            # Not by `send`: its key may be another destination's by now.
            self._replace(Message(head, b"", self.next_number(), 0.0), None, deletes=True)

    # --- feeds ---

    def drop_waiting(self, feed: Feed) -> int:
        """Drop what is pending for `feed`. Returns the number of destinations."""
        dropped = feed.drop_waiting()
        for topic in dropped:
            feed.strike_silently(topic, self.next_number)
            self._values.forget_if_idle(topic)
        return len(dropped)

    def take_snapshot(self, feed: Feed, *, tells_end: bool) -> None:
        """Have `feed` send all that is live and permitted now (`eager`; G.snapshot).

        Where there is much to look at, it `is_walking` after this: call `walk_on`.

        Raises:
            Refused: the broker has no room for the snapshot.
        """
        feed.begin_walk(self.feeds.candidates(feed.pattern), tells_end=tells_end)
        self.walk_on(feed)

    def walk_on(self, feed: Feed) -> bool:
        """Go on with a snapshot, and send it when it is complete.

        Returns:
            Whether there is more to look at: call it again when others had their turn.

        Raises:
            Refused: the broker has no room for the snapshot.
        """
        goes_on = self.feeds.walk_on(feed)
        if not goes_on and feed.subscription is not None:
            self._begin_to_tell(feed, feed.subscription)
        return goes_on

    def attach(self, subscription: Subscription, now: float) -> None:  # noqa: ARG002
        """Feed it from now on, and with what its feed has to tell already."""
        feed = subscription.feed
        assert feed is not None
        feed.subscription = subscription
        self._begin_to_tell(feed, subscription)

    def _begin_to_tell(self, feed: Feed, subscription: Subscription) -> None:
        if feed.snapshot is not None and not (feed.snapshot or feed.is_walking):
            feed.mark_end(self.next_number())
        self.feeds.line_up(feed, subscription.session)

    def review(self, subscription: Subscription, now: float) -> None:  # noqa: ARG002
        """Rights have changed: what is no longer permitted is struck off its snapshot."""
        feed = subscription.feed
        assert feed is not None
        for topic in list(feed.snapshot or ()):
            if not self.feeds.permits(feed, topic):
                feed.strike_silently(topic, self.next_number)
        self.feeds.line_up(feed, subscription.session)

    def release(self, subscription: Subscription) -> None:
        """Its RECEIPT was said: send what waits for that."""
        feed = subscription.feed
        if feed is not None and feed.subscription is subscription:
            feed.is_held = False
            self.feeds.line_up(feed, subscription.session)

    def detach(self, subscription: Subscription, now: float, ending: Ending) -> bool:  # noqa: ARG002
        """Feed it no more. The feed of a durable one remembers what was in flight."""
        feed = subscription.feed
        assert feed is not None
        session = subscription.session
        session.value_credit += len(subscription.unacked)
        subscription.unacked.clear()
        if feed.in_line:
            session.value_feeds.remove(feed)
            feed.in_line = False
        feed.subscription = None
        feed.is_held = False
        if feed.is_durable:
            self.feeds.complete_snapshot(feed)  # it is owed all of it
            # What was in flight may not have arrived, so the next connection receives it again.
            feed.land()
            feed.seen_number = self.next_number()
        else:
            self.feeds.remove(feed)
        feed.snapshot = None
        self.feeds.pump(session)
        return False

    # D.23: a NACK means nothing here, so the value stays in flight until an ACK. Nor does a drain: a value
    # that was not ACKed is sent again to the next subscription.

    def ack(self, subscription: Subscription, number: int, now: float) -> bool:  # noqa: ARG002
        """These were told; what has changed since goes to the end of the line."""
        messages = subscription.settle(number)
        feed = subscription.feed
        assert feed is not None
        for message in messages:
            topic = feed.settle(message.number)
            if topic is not None:
                self._values.forget_if_idle(topic)
        if messages:
            subscription.session.value_credit += len(messages)
            self.feeds.line_up(feed, subscription.session)
        return bool(messages)

    def resume(self, subscription: Subscription, now: float) -> None:  # noqa: ARG002
        """Tell on."""
        self.feeds.pump(subscription.session)
