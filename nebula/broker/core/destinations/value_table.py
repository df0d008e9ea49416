"""Table of last values by destination: their memory, their rows on disk, their keys and their owners.

Invariants, checked after each step of the tests:

- a destination is kept while it has a value, or while a feed has to do with it (`users`);
- the sender of a value pays for its memory, and the sender of the value in the store for its disk;
- of the destinations that share a key, one at most has a value (D.30).
"""

from __future__ import annotations

from typing import Final

from nebula.broker.core.context import CoreContext
from nebula.broker.core.costs import text_cost_bytes
from nebula.broker.core.messages import Message, ValueOwner
from nebula.broker.core.shares import Resource
from nebula.broker.core.tables import VALUES
from nebula.broker.core.value_feed import LastValueTopic

# What CPython takes for a last-value destination, without its name and its value.
TOPIC_COST_BYTES: Final = 300


class ValueTable:
    """All last-value destinations of a broker, by name.

    Args:
        context: what all parts of the core share.

    Attributes:
        topics: by destination. A deleted one stays while a feed has still to send the deletion.
        keys: the destination that has the value of each key, where destinations share keys.
    """

    def __init__(self, context: CoreContext) -> None:
        self._account = context.account
        self._journal = context.journal
        self._key_of = context.key_of
        self.topics: dict[str, LastValueTopic] = {}
        self.keys: dict[str, str] = {}

    def claim_key(self, destination: str) -> str | None:
        """D.30: a destination takes its key. Returns the one that had it, whose value must be deleted."""
        if self._key_of is None:
            return None
        key = self._key_of(destination)
        former, self.keys[key] = self.keys.get(key), destination
        return None if former == destination else former

    def replace(
        self, topic: LastValueTopic | None, message: Message, owner: ValueOwner | None, *, deletes: bool
    ) -> LastValueTopic:
        """Make a message the value of its destination, and follow it with `record`.

        Args:
            topic: the destination, which the caller has looked up; None: it is new.
            owner: the session that the value goes with; None: it stays.
            deletes: the message stands for a deletion.
        """
        destination, usage = message.head.destination, message.head.usage
        if topic is None:
            topic = self.topics[destination] = LastValueTopic(destination, message)
            cost_bytes = TOPIC_COST_BYTES + text_cost_bytes(destination)
            self._account.take(Resource.DESTINATIONS, usage, cost_bytes)
        else:
            self._account.release(topic.value.size_bytes, topic.value.head.usage)
        if topic.owner is not None:
            topic.owner.ephemerals.pop(destination, None)
        if owner is not None:
            owner.ephemerals[destination] = None
        topic.owner, topic.value, topic.is_live = owner, message, not deletes
        self._account.hold(message.size_bytes, usage)
        return topic

    def restore(self, message: Message, *, deletes: bool) -> None:
        """Take what was kept by an earlier run, before anything else happens."""
        topic = self.replace(None, message, None, deletes=deletes)
        self._note_stored(topic, message)
        if not deletes:
            self.claim_key(topic.destination)

    def record(self, topic: LastValueTopic, *, is_owed: bool) -> None:
        """Have the store keep the present value, or drop its row.

        Args:
            is_owed: a durable subscription has still to receive it. So a deletion is kept as well: otherwise
                the subscription would not hear of it after a restart.
        """
        if self._journal is None:
            return
        if topic.owner is None and (topic.is_live or is_owed):
            self._note_stored(topic, topic.value)
            self._journal.put_value(topic.value)
        elif topic.stored is not None or not topic.is_live:
            # A deletion of nothing leaves a row too: its RECEIPT shall not say that it is not durable.
            self._note_stored(topic, None)
            self._journal.drop(VALUES, topic.destination)

    def _note_stored(self, topic: LastValueTopic, value: Message | None) -> None:
        """Charge for the value that the store has from now on; None: it has none."""
        former, topic.stored = topic.stored, value
        if former is not None:
            former.head.usage.disk_bytes -= former.disk_bytes
        if value is not None:
            value.head.usage.disk_bytes += value.disk_bytes

    def forget_if_idle(self, topic: LastValueTopic) -> None:
        """Forget a destination without a value that no feed has to do with."""
        if topic.is_live or topic.users:
            return
        destination = topic.destination
        del self.topics[destination]
        self._account.release(topic.value.size_bytes, topic.value.head.usage)
        cost_bytes = TOPIC_COST_BYTES + text_cost_bytes(destination)
        self._account.give_back(Resource.DESTINATIONS, topic.creator, cost_bytes)
        if topic.stored is not None and self._journal is not None:
            self._note_stored(topic, None)
            self._journal.drop(VALUES, destination)
        if self._key_of is not None:
            key = self._key_of(destination)
            if self.keys.get(key) == destination:
                del self.keys[key]
