"""The room that a transaction takes, before anything of it has happened."""

from __future__ import annotations

from dataclasses import dataclass

from nebula.broker.core.context import CoreContext
from nebula.broker.core.destinations.queue import Queue
from nebula.broker.core.messages import HEAD_COST_BYTES, Message
from nebula.broker.core.routing import Routing
from nebula.broker.core.shares import Resource, Usage


@dataclass(slots=True)
class _Part:
    """The messages of a transaction for one queue.

    Attributes:
        left: messages that it will keep, whatever follows; None: all of them.
        messages, size_bytes: number and size of those.
    """

    queue: Queue
    left: int | None
    messages: int = 0
    size_bytes: int = 0

    def take(self, size_bytes: int) -> bool:
        """Whether there is room for one more."""
        messages, total_bytes = self.messages + 1, self.size_bytes + size_bytes
        if self.left != 0:
            self.messages, self.size_bytes = messages, total_bytes
            if self.left is not None:
                self.left -= 1
        # In a queue that drops its oldest, a waiting message makes room for the next one.
        return self.queue.store.could_take(messages, total_bytes) and self.queue.store.could_hold(size_bytes)


class Rooms:
    """The room that the messages of one transaction take together, before any of them is there."""

    def __init__(self, context: CoreContext, routing: Routing, sender: Usage, now: float) -> None:
        self._account = context.account
        self._routing = routing
        self._sender = sender
        self._now = now
        self._delayed_count = 0
        # Queues and values that are not there yet.
        self._new_names: set[str] = set()
        self._size_bytes = 0
        self._parts: dict[str, _Part] = {}

    def take(self, message: Message) -> bool:
        """Whether there is room for one more."""
        head = message.head
        copy_bytes = message.size_bytes + HEAD_COST_BYTES
        if head.copy_to is not None and not self._take_into(head.copy_to, message, copy_bytes):
            return False
        if head.kind.holds_messages:
            if self._ends_at_once(message):
                return True
            if head.wishes is not None and head.wishes.due(self._now) > self._now:
                return self._take_later(message)
            return self._take_into(head.destination, message, message.size_bytes)
        if head.kind.holds_value:
            self._size_bytes += message.size_bytes
            if message.body and head.destination not in self._routing.values.topics:
                self._new_names.add(head.destination)
        return self._account.has_room_for(self._size_bytes, self._sender) and self._has_places()

    def _ends_at_once(self, message: Message) -> bool:
        """Whether it expires before it reaches its queue, as in `Routing`."""
        wishes = message.head.wishes
        if wishes is not None and wishes.expires_at is not None and wishes.expires_at <= self._now:
            return True
        is_plain = wishes is None and message.head.copy_to is None
        return not is_plain and message.has_expired(self._now)

    def _take_later(self, message: Message) -> bool:
        self._size_bytes += message.size_bytes
        others, self._delayed_count = self._delayed_count, self._delayed_count + 1
        has_room = self._account.has_room_for(self._size_bytes, self._sender)
        return has_room and self._routing.delayed.has_room_for(message, others)

    def _take_into(self, name: str, message: Message, size_bytes: int) -> bool:
        self._size_bytes += size_bytes
        if not self._account.has_room_for(self._size_bytes, self._sender):
            return False
        part = self._parts.get(name)
        if part is None:
            queue = self._routing.queues.get(name)
            if queue is None:
                # Not registered: judging a SEND leaves no queue behind.
                queue = self._routing.queues.planned(name, self._sender)
                self._new_names.add(name)
                if not self._has_places():
                    return False
            left = queue.consumers.credit if queue.store.loses_oldest else None
            part = self._parts[name] = _Part(queue, left)
        return part.take(size_bytes) and part.queue.store.could_keep(message)

    def _has_places(self) -> bool:
        return self._account.pools[Resource.DESTINATIONS].room_for(self._sender) >= len(self._new_names)
