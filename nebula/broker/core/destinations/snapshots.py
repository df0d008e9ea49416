"""Snapshots of last values in portions: there may be very many, and others want their turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from nebula.broker.core.account import Account
from nebula.broker.core.destinations.value_feed import LastValueTopic, ValueFeed
from nebula.broker.core.fixed_limits import SNAPSHOT_DESTINATIONS_AT_ONCE
from nebula.broker.core.shares import Resource
from nebula.errors import Refused
from nebula.globs import compile_glob, is_glob


class Snapshots:
    """Puts what is there already into the lines of feeds.

    Args:
        account: what all destinations of a broker hold together.
        topics: all last-value destinations, by name.
        may_have: whether a feed may receive from a destination.
    """

    def __init__(
        self,
        account: Account,
        topics: Mapping[str, LastValueTopic],
        may_have: Callable[[ValueFeed, LastValueTopic], bool],
    ) -> None:
        self._account = account
        self._topics = topics
        self._may_have = may_have

    def begin(self, feed: ValueFeed, *, tells_end: bool) -> None:
        """Have `feed` send all that is live and permitted now (G.snapshot). Follow it with `walk_on`."""
        matches = compile_glob(feed.pattern)
        feed.begin_walk(
            self._candidates(feed.pattern),
            lambda topic: matches(topic.destination) and self._may_have(feed, topic),
            tells_end=tells_end,
        )

    def walk_on(self, feed: ValueFeed) -> bool:
        """Go on with it. True: there is more; call it again when others had their turn.

        Raises:
            Refused: the broker has no room for the snapshot.
        """
        goes_on = feed.walk_on(SNAPSHOT_DESTINATIONS_AT_ONCE)
        if self._account.is_overdrawn(feed.owner):
            self._account.exceed(Resource.MEMORY, feed.owner)
            raise Refused("memory", "the broker has no room for all that you would be told")
        return goes_on

    def finish(self, feed: ValueFeed) -> None:
        """Go on to its end, if it has begun: a durable feed is owed all of it."""
        while feed.is_walking:
            feed.walk_on(SNAPSHOT_DESTINATIONS_AT_ONCE)

    def owe(self, feed: ValueFeed, destinations: Iterable[str] | None, since: int) -> None:
        """After a restart: what a durable feed has still to send.

        Args:
            destinations: those, or None where that is not known: then all that changed `since` the
                message of this number.
        """
        if destinations is not None:
            topics = [self._topics[each] for each in destinations if each in self._topics]
        else:
            matches = compile_glob(feed.pattern)
            candidates = self._candidates(feed.pattern)
            topics = [each for each in candidates if each.value.number > since and matches(each.destination)]
        for topic in topics:
            feed.notify(topic)

    def _candidates(self, pattern: str) -> list[LastValueTopic]:
        if is_glob(pattern):
            return list(self._topics.values())
        return [self._topics[pattern]] if pattern in self._topics else []
