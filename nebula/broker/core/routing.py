"""Routing: all destinations of a broker, and the way of an accepted message to them.

A message goes to its destination at once, or when it is due (`delay`, `deliver-at`), or nowhere because its
time is over. A copy of it may go to a queue of its own, for a recorder. The caller of `put` has judged the
message; the only question left is whether there is room.
"""

from __future__ import annotations

from itertools import islice

from nebula.broker.core.context import CoreContext
from nebula.broker.core.delayed import Delayed
from nebula.broker.core.destinations.last_value import LastValues
from nebula.broker.core.destinations.queue import Queue
from nebula.broker.core.destinations.queues import Queues
from nebula.broker.core.destinations.topic import Topics
from nebula.broker.core.duplicates import DedupKey, Duplicates
from nebula.broker.core.fixed_limits import DUE_AT_ONCE
from nebula.broker.core.messages import (
    ACCEPTED,
    LAST_VALUE_KIND,
    QUEUE_KIND,
    TOPIC_KIND,
    Head,
    Message,
    Verdict,
)
from nebula.broker.core.shares import Resource
from nebula.headers import EXPIRES, INBOX_PREFIX, ORIGINAL_DESTINATION, TIMEOUT


class Routing:
    """The destinations, and what is on its way to them.

    Args:
        context: what all parts of the core share.

    Attributes:
        queues, topics, values: the destinations.
        by_kind: those of the kinds that are one destination each.
        delayed: messages that are put into a queue later.
        duplicates: the `dedup-id`s of the current window.
    """

    def __init__(self, context: CoreContext) -> None:
        self._context = context
        self._account = context.account
        self._journal = context.journal
        self._next_number = context.numbers.next
        self.queues = Queues(context)
        self.topics = Topics(context.account, self.queues.make_dead_letter)
        self.values = LastValues(context)
        self.by_kind = {TOPIC_KIND: self.topics, LAST_VALUE_KIND: self.values}
        self.delayed = Delayed(context.account, context.journal)
        self.duplicates = Duplicates(context.account, context.journal)

    def put(self, message: Message, now: float) -> Queue | None:
        """Hand over a message that was judged, and its copy.

        Returns:
            None; or the queue that has no room for it, and nothing has happened.
        """
        head = message.head
        # Wishes, copies and what waits for a commit are rare: all others are spared their questions.
        if not head.is_plain:
            return self._put_with_wishes(message, now)
        if head.kind.holds_messages:
            queue = self.queues.ensure(head.destination, head.usage)
            return None if queue.send(message, now) is ACCEPTED else queue
        self.by_kind[head.kind].send(message, now)
        return None

    def _put_with_wishes(self, message: Message, now: float) -> Queue | None:
        head, journal = message.head, self._journal
        # A COMMIT has told the store of other messages before this one.
        told_before = None if journal is None else journal.told
        if journal is not None:
            journal.told = None
        copy = self._copy_of(message, now)
        full = self._put_when_due(message, now) if copy is None else self._put_with_copy(message, copy, now)
        key = dedup_key(head)
        if full is None and key is not None:
            # Of what is persistent also where it was consumed at once, and never touched the disk.
            is_kept = journal is not None and (
                journal.told is not None
                or (head.kind.holds_messages and head.is_persistent and self.queues.keeps(head.destination))
            )
            policy = self._context.policies.lookup(head.destination)
            window = None if policy is None else policy.dedup_window
            until = now + (self._context.limits.dedup_seconds if window is None else window)
            self.duplicates.add(key, until, head.usage, is_kept=is_kept)
        if journal is not None and told_before is not None:
            journal.told = told_before
        return full

    def _put_with_copy(self, message: Message, copy: Message, now: float) -> Queue | None:
        copies = self.queues.ensure(copy.head.destination, copy.head.usage)
        # Those of a transaction were judged together.
        if message.head.transaction is None and not copies.store.could_accept(copy, other=message):
            return copies
        # First the message, then its copy: of what was refused there must be no copy.
        full = self._put_when_due(message, now)
        if full is not None:
            self.queues.forget_if_idle(copies, now)
            return full
        send = copies.send_once if copy.head.is_once else copies.send
        self._account.judged = copy
        # There was room for both a moment ago. If the message itself took it, the copy is kept as a dead
        # letter: the sender cannot be refused any more.
        if send(copy, now) is not ACCEPTED:
            self.queues.make_dead_letter(copy, "full", was_kept=True)
            self.queues.forget_if_idle(copies, now)
        self._account.judged = None
        return None

    def _put_when_due(self, message: Message, now: float) -> Queue | None:
        head = message.head
        wishes = head.wishes
        if wishes is not None and wishes.expires_at is not None:
            message.expire_at(wishes.expires_at)
        if message.has_expired(now):
            self._expire_at_once(message)
        elif not head.kind.holds_messages:
            self.by_kind[head.kind].send(message, now)
        elif wishes is not None and wishes.due(now) > now:
            if not self.delayed.has_room_for(message):
                return self.queues.ensure(head.destination, head.usage)
            self.delayed.add(message, wishes.due(now))
        else:
            queue = self.queues.ensure(head.destination, head.usage)
            send = queue.send_once if head.is_once else queue.send
            return None if send(message, now) is ACCEPTED else queue
        return None

    def _expire_at_once(self, message: Message, *, is_moved: bool = False) -> None:
        head = message.head
        if message.is_request or not head.kind.holds_messages or head.destination.startswith(INBOX_PREFIX):
            self._account.drop(head, "expired")
        else:
            self.queues.make_dead_letter(message, "expired", is_moved=is_moved)

    def _copy_of(self, message: Message, now: float) -> Message | None:
        """What a recorder gets of it (G.copies)."""
        head = message.head
        if head.copy_to is None or head.copy_to == head.destination:
            return None
        if head.copy is None:
            passed_on = tuple(pair for pair in head.headers[2:] if pair[0] not in (EXPIRES, TIMEOUT))
            about = (ORIGINAL_DESTINATION, head.destination)
            head.copy = Head(
                QUEUE_KIND,
                head.copy_to,
                head.sender,
                (about, *passed_on),
                is_persistent=True,
                priority=head.priority,
                is_once=head.is_once,
                usage=head.usage,
            )
        return Message(head.copy, message.body, self._next_number(), now, message.unread)

    def knows(self, head: Head, now: float) -> bool:
        """Whether a message with the same `dedup-id` was accepted before."""
        key = dedup_key(head)
        return key is not None and self.duplicates.knows(key, now)

    def is_duplicate(self, head: Head, now: float) -> bool:
        """Like `knows`, for a message that is sent now: a duplicate is counted."""
        if not self.knows(head, now):
            return False
        # Its RECEIPT must wait like that of the first one: the sender repeats it because it knows of none.
        self._account.drop(head, Verdict.DUPLICATE.value)
        if self._journal is not None:
            self._journal.touch()
        return True

    def advance(self, now: float) -> None:
        """Let time pass: put what is due into its queue, as the newest there."""
        self.duplicates.advance(now)
        # One moved head for all messages of a head, so that they go on sharing it.
        moved: dict[Head, Head] = {}
        for message in islice(self.delayed.take_due(now), DUE_AT_ONCE):
            name = message.head.destination
            message.number = self._next_number()
            if self._account.is_disk_low or message.head.usage.is_disk_full:
                # It is on the disk, in another place: there it takes no more room than it did.
                head = message.head
                message.head = moved.get(head) or moved.setdefault(head, head.as_moved())
            if message.has_expired(now):
                self._expire_at_once(message, is_moved=True)
            elif name.startswith(INBOX_PREFIX) and self.queues.get(name) is None:
                self._account.drop(message.head, Verdict.NO_CONSUMER.value)
            elif not self._takes_due(message, now):
                self.queues.make_dead_letter(message, "full", is_moved=True)

    def _takes_due(self, message: Message, now: float) -> bool:
        """Put a message that is due into its queue; False: there is no room for it, or for the queue."""
        name, usage = message.head.destination, message.head.usage
        queue = self.queues.get(name)
        if queue is None:
            # When it was sent there was: but many may wait for queues that are not there.
            if not self._account.allows(Resource.DESTINATIONS, usage):
                return False
            queue = self.queues.create(name, usage)
        # A crash before this is committed leaves it among the delayed ones.
        is_taken = queue.send_once(message, now) is ACCEPTED
        if not is_taken:
            self.queues.forget_if_idle(queue, now)
        return is_taken


def dedup_key(head: Head) -> DedupKey | None:
    """What messages with this head have in common with their repetitions; None: they have no `dedup-id`."""
    id_ = None if head.wishes is None else head.wishes.dedup_id
    return None if id_ is None else DedupKey(head.destination, head.sender, id_)
