"""Feeds of all subscriptions to last values: what each may receive, what it begins with, whose turn it is.

**Fairness.** The feeds of a session with something to send take turns, one value each. All of them share one
window of un-ACKed values (D.8).

**Snapshots.** An eager subscription first receives all values that are there (G.snapshot). There may be very
many, so they are looked at in portions, and other connections have their turn in between
(docs/decisions/0015). Nothing is sent before the last portion: a snapshot shows the values as they are at its
end. The last value of a snapshot is marked. Where that value goes away before its turn, an empty message, the
marker, takes its place; see `ValueFeed.strike_silently`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from nebula.broker.core.context import CoreContext
from nebula.broker.core.destinations.value_table import ValueTable
from nebula.broker.core.fixed_limits import SNAPSHOT_DESTINATIONS_AT_ONCE
from nebula.broker.core.patterns import PatternTable
from nebula.broker.core.shares import Usage
from nebula.broker.core.subscription import AUTO, SNAPSHOT_END, Feed, Receiver, Subscription
from nebula.broker.core.value_feed import LastValueTopic
from nebula.globs import compile_glob, is_glob
from nebula.headers import RESERVED_VALUE_PREFIX


class Feeds:
    """The feeds of a broker.

    Args:
        context: what all parts of the core share.
        values: what they are fed from.

    Attributes:
        table: by pattern.
        is_judged: rights are configured, so that each feed's are looked at.
    """

    def __init__(self, context: CoreContext, values: ValueTable) -> None:
        self._account = context.account
        self._next_number = context.numbers.next
        self._values = values
        self.table: PatternTable[list[Feed]] = PatternTable(self._reaches)
        self.is_judged = False
        # Feeds without a subscription that still hold entries. Nothing waits for that memory, so it is
        # released in portions: an unsubscribe from 100,000 values must not hold up all other connections.
        self._departed: deque[Feed] = deque()

    def add(self, feed: Feed) -> None:
        """Let `feed` know of changes from now on. Raises ValueError for a malformed glob."""
        feeds = self.table.things.get(feed.pattern)
        if feeds is None:
            self.table.add(feed.pattern, [feed])
        else:
            feeds.append(feed)
            self.table.note_change(feed.pattern)

    def users_of(self, pattern: str) -> Iterator[Usage]:
        """Whose feeds of exactly this pattern there are."""
        return (feed.owner for feed in self.table.things.get(pattern) or ())

    def remove(self, feed: Feed) -> None:
        """Forget a feed without a subscription."""
        feeds = self.table.things.get(feed.pattern)
        assert feeds is not None
        feeds.remove(feed)
        self.table.note_change(feed.pattern)
        if not feeds:
            self.table.remove(feed.pattern)
        feed.end_walk()
        if self._let_go_some(feed):
            self._departed.append(feed)

    def advance(self) -> None:
        """Let time pass: release a portion of what is held by feeds that were removed."""
        if self._departed and not self._let_go_some(self._departed[0]):
            self._departed.popleft()

    def _let_go_some(self, feed: Feed) -> bool:
        """Let go a portion of what a feed without a subscription holds. Whether it holds more."""
        for topic in feed.let_go_some(SNAPSHOT_DESTINATIONS_AT_ONCE):
            self._values.forget_if_idle(topic)
        return feed.holds_any

    def judges(self, destination: str) -> bool:
        """Whether the rights to a destination are looked at."""
        # What is reserved is shown only to whom it is meant for, also where no rights are configured.
        return self.is_judged or destination.startswith(RESERVED_VALUE_PREFIX)

    def permits(self, feed: Feed, topic: LastValueTopic) -> bool:
        """Whether `feed` may receive from `topic`."""
        return not self.judges(topic.destination) or feed.rights.may_receive(topic.destination)

    def walk_on(self, feed: Feed) -> bool:
        """Look at a portion more of what is there; False: the snapshot is complete.

        Raises:
            Refused: the broker has no room for the snapshot.
        """
        goes_on = self._walk_some(feed)
        self._account.need_memory(feed.owner, "all that you would be told")
        return goes_on

    def complete_snapshot(self, feed: Feed) -> None:
        """Look at all the rest of what is there at once, whatever room there is."""
        while feed.is_walking:
            self._walk_some(feed)

    def _walk_some(self, feed: Feed) -> bool:
        matches, permits = compile_glob(feed.pattern), self.permits
        return feed.walk_on(
            SNAPSHOT_DESTINATIONS_AT_ONCE, lambda topic: matches(topic.destination) and permits(feed, topic)
        )

    def owe(self, feed: Feed, destinations: Iterable[str] | None, since: int) -> None:
        """After a restart: line up what a durable feed has still to send.

        Args:
            destinations: those, or None where that is not known: then all that changed `since` the
                message of this number.
        """
        if destinations is not None:
            topics = [self._values.topics[each] for each in destinations if each in self._values.topics]
        else:
            matches = compile_glob(feed.pattern)
            candidates = self.candidates(feed.pattern)
            topics = [each for each in candidates if each.value.number > since and matches(each.destination)]
        for topic in topics:
            feed.notify(topic)

    def candidates(self, pattern: str) -> list[LastValueTopic]:
        """All that a pattern may match."""
        if is_glob(pattern):
            return list(self._values.topics.values())
        return [self._values.topics[pattern]] if pattern in self._values.topics else []

    def _reaches(self, feeds: Sequence[Feed], destination: str) -> bool:
        """Whether one of these may receive from a destination, or holds it from when it might."""
        topic = self._values.topics.get(destination)
        for feed in feeds:  # of very many a generator takes three times as long
            if feed.rights.may_receive(destination) or (topic is not None and feed.knows(topic)):
                return True
        return False

    def tell_of(self, feed: Feed, topic: LastValueTopic, *, was_ordinary: bool) -> None:
        """`topic` has changed. Now if nothing is before it, otherwise when its turn comes."""
        subscription = feed.subscription
        if subscription is None:
            # An ephemeral value is not kept for a subscription that is away, unless it ended a value that the
            # subscription knows (G.ephemeral).
            is_unknown = not topic.is_live and topic.first_number > feed.seen_number
            if was_ordinary or not (is_unknown or topic.owner is not None):
                feed.notify(topic)
        elif subscription.session.takes_values and feed.is_free_for(topic):
            # As by way of the line, in a third of the time.
            if subscription.ack_mode is not AUTO:
                feed.send_at_once(topic)
                self._await_ack(subscription, topic)
            subscription.deliver(topic.value)
        elif feed.notify(topic) or feed.marker is not None:
            self.line_up(feed, subscription.session)

    def line_up(self, feed: Feed, session: Receiver) -> None:
        """`feed` may have something to send now."""
        if feed.is_ready and not feed.in_line:
            feed.in_line = True
            session.value_feeds.append(feed)
        self.pump(session)

    def pump(self, session: Receiver) -> None:
        """Tell what can be told, the session's subscriptions in turn.

        D.8: one window of un-ACKed messages for the whole connection; when it is full everything
        waits, subscriptions that acknowledge nothing too.
        """
        feeds = session.value_feeds
        while feeds and session.value_credit > 0 and not session.is_throttled:
            feed = feeds[0]
            if not feed.is_ready:
                feeds.popleft()
                feed.in_line = False
                continue
            if len(feeds) > 1:
                feeds.rotate(-1)
            self._tell(feed, feed.take())

    def _tell(self, feed: Feed, topic: LastValueTopic) -> None:
        subscription = feed.subscription
        assert subscription is not None
        is_marker = topic is feed.marker
        if not is_marker and not self.permits(feed, topic):
            feed.let_go(topic)
            feed.strike_silently(topic, self._next_number)
            self._values.forget_if_idle(topic)
            return
        message = topic.value
        ends = is_marker or (topic.is_live and feed.strike(topic))
        if subscription.ack_mode is AUTO:
            feed.let_go(topic)
        else:
            feed.send(topic)
            self._await_ack(subscription, topic)
        subscription.deliver(message, SNAPSHOT_END if ends else None)
        self._values.forget_if_idle(topic)

    def _await_ack(self, subscription: Subscription, topic: LastValueTopic) -> None:
        subscription.unacked[topic.value.number] = topic.value
        subscription.session.value_credit -= 1
