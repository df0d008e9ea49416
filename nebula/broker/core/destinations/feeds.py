"""Feeds of all subscriptions to last values, by pattern, and the snapshots that they begin with (G.snapshot).

**Snapshots.** An eager subscription first receives all values that are there. There may be very many, so they
are looked at in portions, and other connections have their turn in between
(docs/decisions/0015). Nothing is sent before the last portion: a snapshot shows the values as they are at its
end. The last value of a snapshot is marked. Where that value goes away before its turn, an empty message, the
marker, takes its place; see `ValueFeed.strike_silently`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from nebula.broker.core.account import Account
from nebula.broker.core.destinations.value_table import ValueTable
from nebula.broker.core.fixed_limits import SNAPSHOT_DESTINATIONS_AT_ONCE
from nebula.broker.core.patterns import PatternTable
from nebula.broker.core.shares import Resource, Usage
from nebula.broker.core.subscription import Feed
from nebula.broker.core.value_feed import LastValueTopic
from nebula.errors import Refused
from nebula.globs import compile_glob, is_glob
from nebula.headers import RESERVED_VALUE_PREFIX


class Feeds:
    """The feeds of a broker.

    Args:
        account: what all destinations of a broker hold together.
        values: what they are fed from.

    Attributes:
        table: by pattern.
        is_judged: rights are configured, so that each feed's are looked at.
    """

    def __init__(self, account: Account, values: ValueTable) -> None:
        self._account = account
        self._values = values
        self.table: PatternTable[list[Feed]] = PatternTable(self._reaches)
        self.is_judged = False
        # Feeds without a subscription that still hold entries. Nothing waits for that memory, so it is
        # released in portions: an unsubscribe from 100,000 values must not hold up all other connections.
        self._departed: deque[Feed] = deque()

    def add(self, feed: Feed) -> None:
        """Let `feed` know of changes from now on. Raises ValueError for a malformed glob."""
        feeds = self.table.get(feed.pattern)
        if feeds is None:
            self.table.add(feed.pattern, [feed])
        else:
            feeds.append(feed)
            self.table.note_change(feed.pattern)

    def users_of(self, pattern: str) -> Iterator[Usage]:
        """Whose feeds of exactly this pattern there are."""
        return (feed.owner for feed in self.table.get(pattern) or ())

    def remove(self, feed: Feed) -> None:
        """Forget a feed without a subscription."""
        feeds = self.table.get(feed.pattern)
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

    def begin_snapshot(self, feed: Feed, *, tells_end: bool) -> None:
        """Have `feed` send all that is live and permitted now: `walk_on` until it is complete."""
        feed.begin_walk(self._candidates(feed.pattern), tells_end=tells_end)

    def walk_on(self, feed: Feed) -> bool:
        """Look at a portion more of what is there; False: the snapshot is complete.

        Raises:
            Refused: the broker has no room for the snapshot.
        """
        goes_on = self._walk_some(feed)
        if self._account.is_overdrawn(feed.owner):
            self._account.exceed(Resource.MEMORY, feed.owner)
            raise Refused("memory", "the broker has no room for all that you would be told")
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
            candidates = self._candidates(feed.pattern)
            topics = [each for each in candidates if each.value.number > since and matches(each.destination)]
        for topic in topics:
            feed.notify(topic)

    def _candidates(self, pattern: str) -> list[LastValueTopic]:
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
