"""The room that a transaction takes, before anything of it has happened."""

from __future__ import annotations

from collections import Counter

from nebula.broker.account import Account
from nebula.broker.delayed import Delayed
from nebula.broker.destinations.last_value import LastValues
from nebula.broker.destinations.queue import Queue
from nebula.broker.destinations.queues import Queues
from nebula.broker.messages import HEAD_COST_BYTES, Kind, Message
from nebula.broker.shares import Resource, Usage


class Rooms:
    """The room that the messages of one transaction take together, before any of them is there."""

    def __init__(
        self,
        account: Account,
        queues: Queues,
        values: LastValues,
        delayed: Delayed,
        sender: Usage,
        now: float,
    ) -> None:
        self._account = account
        self._queues = queues
        self._values = values
        self._delayed = delayed
        self._sender = sender
        self._now = now
        self._delayed_count = 0
        self._new_values: set[str] = set()
        self._size_bytes = 0
        self._by_queue: Counter[str] = Counter()
        self._depths: Counter[str] = Counter()
        self._created: list[Queue] = []

    def take(self, message: Message) -> bool:
        """Whether there is room for one more."""
        head = message.head
        if head.copy_to is not None and not self._take_into(
            head.copy_to, message, message.size_bytes + HEAD_COST_BYTES
        ):
            return False
        if head.kind is Kind.QUEUE:
            if head.wishes is not None and head.wishes.due(self._now) > self._now:
                return self._take_later(message)
            return self._take_into(head.destination, message, message.size_bytes)
        if head.kind is Kind.LAST_VALUE:
            self._size_bytes += message.size_bytes
            if message.body and head.destination not in self._values.topics:
                self._new_values.add(head.destination)
        return self._account.has_room_for(self._size_bytes, self._sender) and self._has_places()

    def _take_later(self, message: Message) -> bool:
        self._size_bytes += message.size_bytes
        others, self._delayed_count = self._delayed_count, self._delayed_count + 1
        has_room = self._account.has_room_for(self._size_bytes, self._sender)
        return has_room and self._delayed.has_room_for(message, others)

    def _take_into(self, name: str, message: Message, size_bytes: int) -> bool:
        self._size_bytes += size_bytes
        if not self._account.has_room_for(self._size_bytes, self._sender):
            return False
        queue = self._queues.get(name)
        if queue is None:
            if not self._has_places(1):
                return False
            queue = self._queues.create(name, self._sender)
            self._created.append(queue)
        self._by_queue[name] += size_bytes
        self._depths[name] += 1
        return (
            queue.could_take(self._depths[name], self._by_queue[name])
            and queue.could_hold(size_bytes)
            and queue.could_keep(message)
        )

    def _has_places(self, more: int = 0) -> bool:
        # Queues have their places already.
        wanted = len(self._new_values) + more
        return self._account.pools[Resource.DESTINATIONS].room_for(self._sender) >= wanted

    def give_back(self, now: float) -> None:
        """Nothing comes of it."""
        for queue in self._created:
            self._queues.forget_if_idle(queue, now)
