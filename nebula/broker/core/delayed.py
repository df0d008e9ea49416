"""Delayed messages: put into their queues later (`delay`, `deliver-at`; G.delay)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from heapq import heapify, heappop, heappush
from operator import itemgetter

from nebula.broker.core.account import Account
from nebula.broker.core.journal import Journal
from nebula.broker.core.messages import Message
from nebula.broker.core.shares import Resource


class Delayed:
    """What waits for its time, in memory; persistent messages on disk too.

    Args:
        account: what all destinations hold together.
        journal: gets persistent messages; None: none survives.
    """

    def __init__(self, account: Account, journal: Journal | None) -> None:
        self._account = account
        self._journal = journal
        self._heap: list[tuple[float, int, Message]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def has_room_for(self, message: Message, others: int = 0) -> bool:
        """Whether one more may wait, in addition to `others` that come before it."""
        is_kept = message.head.is_persistent and self._journal is not None
        usage = message.head.usage
        return (
            self._account.pools[Resource.DELAYED].room_for(usage) > others
            and self._account.has_room_for(message.size_bytes, usage)
            and not (is_kept and (self._account.is_disk_low or usage.is_disk_full))
        )

    def add(self, message: Message, due: float) -> None:
        """Hold `message` until then. There is room for it."""
        self.restore(message, due)
        if message.head.is_persistent and self._journal is not None:
            self._journal.put_delayed(message, due)

    def restore(self, message: Message, due: float) -> None:
        """Hold what an earlier run has held."""
        # The number breaks ties, in the order of arrival, and keeps the heap from comparing messages.
        heappush(self._heap, (due, message.number, message))
        self._account.take(Resource.DELAYED, message.head.usage, message.size_bytes)
        if message.head.is_persistent and self._journal is not None:
            message.head.usage.disk_bytes += message.disk_bytes

    def waiting(self) -> list[tuple[float, Message]]:
        """Delayed messages in order of arrival, each with the time at which it is due."""
        return [(due, message) for due, _, message in sorted(self._heap, key=itemgetter(1))]

    def remove(self, unwanted: Collection[int]) -> int:
        """Drop the messages with these numbers. Returns how many there were."""
        # By an operator, who is rare: one pass and a new heap, instead of an index for every message.
        gone = [message for _, number, message in self._heap if number in unwanted]
        self._heap = [entry for entry in self._heap if entry[1] not in unwanted]
        heapify(self._heap)
        for message in gone:
            self._forget(message)
        return len(gone)

    def take_due(self, now: float) -> Iterator[Message]:
        """Hand over what is due, in order; what is due at once in that of arrival."""
        while self._heap and self._heap[0][0] <= now:
            *_, message = heappop(self._heap)
            self._forget(message)
            yield message

    def _forget(self, message: Message) -> None:
        self._account.give_back(Resource.DELAYED, message.head.usage, message.size_bytes)
        if message.head.is_persistent and self._journal is not None:
            self._journal.drop_delayed(message)
            message.head.usage.disk_bytes -= message.disk_bytes
