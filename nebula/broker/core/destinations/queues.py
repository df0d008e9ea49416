"""Queues by name: how they come and go, inboxes, and the dead-letter queue.

**They cost nothing when they are empty.** A queue is made by the first SEND or SUBSCRIBE that names it, and
forgotten when it has neither messages nor subscriptions. So names can be had by the million, one after the
other.

**Inboxes** hold the replies to one client. No other client may ever read them, so an inbox lives by one
exclusive subscription, and after its end its name cannot be taken for an hour (D.48): a reply that is late
must not reach another client. The broker remembers hashes, as peers choose the names and their lengths.

**Dead letters.** A message that cannot be delivered moves to the dead-letter queue, with headers that say
why. The dead letter and the end of the message are in one batch, so a crash leaves it in one of the two
queues and never in both. Dead letters have a payer of their own: their senders may go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from nebula import headers as names
from nebula.broker.core.access import Rights
from nebula.broker.core.context import CoreContext
from nebula.broker.core.costs import text_cost_bytes
from nebula.broker.core.destinations.queue import QUEUE_COST_BYTES, Queue
from nebula.broker.core.destinations.queue_store import QueueStore, QueueWork
from nebula.broker.core.fixed_limits import (
    EXPIRED_AT_ONCE,
    MAX_RETIRED_INBOXES,
    PUT_BACK_AT_ONCE,
    RETIRED_INBOX_SECONDS,
)
from nebula.broker.core.messages import QUEUE_KIND, Head, Message, Verdict
from nebula.broker.core.notes import MESSAGES_DEAD
from nebula.broker.core.policies import DestinationPolicy, QueueRules, WhenFull
from nebula.broker.core.shares import Resource, Usage
from nebula.broker.core.subscription import PLAIN_NACK, Nack
from nebula.broker.core.tables import Headers
from nebula.milliseconds import to_milliseconds

T = TypeVar("T")


class Queues:
    """The queues of a broker, by name.

    Args:
        context: what all parts of the core share.

    Attributes:
        by_name: all of them; changed here alone.
        work: which queues have something to do, those bound to topics too.
    """

    def __init__(self, context: CoreContext) -> None:
        self.dead_letter = context.dead_letter
        self.work = QueueWork()
        self._context = context
        self._account = context.account
        self.by_name: dict[str, Queue] = {}
        # When the names of ended inboxes are free again, by hash; and their hashes by owner, oldest first.
        self._retired_inboxes: dict[int, float] = {}
        self._retired_by: dict[str, deque[int]] = {}
        self.get: Callable[[str], Queue | None] = self.by_name.get
        self._now = 0.0
        # For messages that a queue had: their rows on disk are dropped at the same time.
        self._take_dead = partial(self.make_dead_letter, is_moved=True)

    def ensure(self, name: str, owner: Usage) -> Queue:
        """The queue of this name; if it is new, follow it up as after `create`."""
        return self.by_name.get(name) or self.create(name, owner)

    def create(
        self, name: str, owner: Usage, *, auto_delete: bool = False, has_levels: bool = False
    ) -> Queue:
        """A queue that is new. Follow it with what it is to hold or feed, or `forget_if_idle`.

        Args:
            owner: who pays for it as a destination, and for the messages of an inbox.
            auto_delete: it is removed with its last subscription, and nothing of it is stored.
            has_levels: it has priorities, whatever the policies say.
        """
        self._account.take(Resource.DESTINATIONS, owner, QUEUE_COST_BYTES + text_cost_bytes(name))
        queue = self.by_name[name] = self.planned(name, owner, auto_delete=auto_delete, has_levels=has_levels)
        return queue

    def planned(
        self, name: str, owner: Usage, *, auto_delete: bool = False, has_levels: bool = False
    ) -> Queue:
        """A queue as `create` would make it, but not registered: to find out what it would accept."""
        is_inbox = name.startswith(names.INBOX_PREFIX)
        is_reserved = name.startswith(names.RESERVED_QUEUE_PREFIX)
        is_dead_letter = name == self.dead_letter
        # A queue that others rely on is not removed with its last subscription.
        has_copies = name in self._context.policies.copies
        is_ours = is_dead_letter or is_reserved or has_copies
        auto_delete = auto_delete and not is_ours
        # The two queues in which messages of all principals may end up have bounds of their own.
        payer = self._account.own if name == names.BROKER_QUEUE else None
        if is_dead_letter:
            payer = self._account.dead
        # A crash ends the last subscription, and the queue with it: nothing need be stored.
        journal = None if auto_delete or is_inbox else self._context.journal
        store = QueueStore(
            name,
            self._account,
            self.work,
            # Operators' requests go before what all others may send there.
            self._rules(name, has_levels=has_levels or name == names.BROKER_QUEUE),
            # All may send to the broker's own service, so what it rejects must push out no dead letter.
            make_dead_letter=None if is_reserved or is_dead_letter else self._take_dead,
            journal=journal,
            keeps_all=has_copies,
            # Messages that a peer does not take from its inbox must not use up the shares of their senders.
            payer=owner if is_inbox else payer,
        )
        return Queue(
            store,
            owner,
            # D.48: an inbox exists through its subscription only, whatever that asked for.
            auto_delete=auto_delete or is_inbox,
            is_inbox=is_inbox,
            on_left=self.forget_if_idle,
        )

    def keeps(self, name: str) -> bool:
        """Whether messages of this queue may be stored."""
        queue = self.by_name.get(name)
        return queue is None or queue.store.journal is not None

    def _rules(self, name: str, *, has_levels: bool) -> QueueRules:
        is_dead_letter = name == self.dead_letter
        policy = self._context.policies.lookup(name) or DestinationPolicy()
        limits = self._context.limits
        return QueueRules(
            max_messages=policy.max_messages or limits.max_queue_messages,
            max_bytes=policy.max_bytes or limits.max_queue_bytes,
            max_memory_bytes=limits.max_queue_memory_bytes,
            window_bytes=limits.queue_window_bytes,
            # A dead letter stays until an operator takes it, or until newer ones need its place.
            max_deliveries=None if is_dead_letter else policy.max_deliveries or limits.max_deliveries,
            when_full=WhenFull.DROP_OLDEST if is_dead_letter else policy.when_full,
            time_to_live=None if is_dead_letter else policy.time_to_live,
            has_priorities=has_levels or (policy.has_priorities and not is_dead_letter),
        )

    def make_bound(
        self,
        name: str,
        rights: Rights,
        owner: Usage,
        *,
        is_durable: bool,
        when_full: WhenFull = WhenFull.REJECT,
        on_left: Callable[[Queue, float], None] | None = None,
    ) -> Queue:
        """A queue for one subscription to topics. No other subscription has it, and it is not in `by_name`.

        Args:
            owner: whose subscription it is. It asked for the messages, so it pays for them.
            when_full: of one that is not durable: what happens when its subscriber does not keep up. With
                REJECT that is ended.
            on_left: called when its subscription has ended.
        """
        limits = self._context.limits
        # What waits for a connected subscriber is bounded as its outbox is: with more it is too slow.
        most_bytes = limits.max_queue_memory_bytes if is_durable else limits.max_outbox_bytes
        rules = QueueRules(
            max_messages=limits.max_queue_messages,
            max_bytes=limits.max_queue_bytes if is_durable else most_bytes,
            max_memory_bytes=most_bytes,
            window_bytes=limits.queue_window_bytes,
            max_deliveries=limits.max_deliveries,
            when_full=when_full,
        )
        store = QueueStore(
            name,
            self._account,
            self.work,
            rules,
            make_dead_letter=partial(self._take_dead, was_kept=True) if is_durable else None,
            journal=self._context.journal if is_durable else None,
            keeps_all=is_durable,
            payer=owner,
        )
        return Queue(store, owner, auto_delete=not is_durable, rights=rights, on_left=on_left)

    def is_fresh_inbox(self, name: str, now: float) -> bool:
        """Whether it may be subscribed to as an inbox: it does not exist, and did not within the hour."""
        return name not in self.by_name and self._retired_inboxes.get(hash(name), now) <= now

    def forget_if_idle(self, queue: Queue, now: float) -> None:
        """Forget a queue that holds and feeds nothing: the next SEND or SUBSCRIBE makes it again."""
        if not queue.is_idle or self.by_name.get(queue.name) is not queue:
            return
        del self.by_name[queue.name]
        cost_bytes = QUEUE_COST_BYTES + text_cost_bytes(queue.name)
        self._account.give_back(Resource.DESTINATIONS, queue.owner, cost_bytes)
        if queue.is_inbox:
            self._retire(queue, now)

    def _retire(self, inbox: Queue, now: float) -> None:
        """Remember its name for a while. Beyond a limit the principal with most loses its oldest."""
        name, owner = hash(inbox.name), inbox.owner.name
        if name in self._retired_inboxes:
            self._forget_expired(now)  # its hour is over, and was not looked at since
        self._retired_inboxes[name] = now + RETIRED_INBOX_SECONDS
        self._retired_by.setdefault(owner, deque()).append(name)
        if len(self._retired_inboxes) > MAX_RETIRED_INBOXES:
            self._forget_retired(max(self._retired_by, key=lambda each: len(self._retired_by[each])))

    def _forget_expired(self, now: float) -> None:
        for owner, retired in list(self._retired_by.items()):
            while retired and self._retired_inboxes[retired[0]] <= now:
                self._forget_retired(owner)

    def _forget_retired(self, owner: str) -> None:
        retired = self._retired_by[owner]
        del self._retired_inboxes[retired.popleft()]
        if not retired:
            del self._retired_by[owner]

    def advance(self, now: float) -> None:
        """Let time pass: drop what has expired."""
        self._now = now
        _rotate(self.work.expiring, EXPIRED_AT_ONCE, lambda store, most: self._expire(store, now, most))
        self._forget_expired(now)
        _rotate(self.work.postponed, PUT_BACK_AT_ONCE, lambda queue, most: queue.put_back_due(now, most))

    def _expire(self, store: QueueStore, now: float, most: int) -> int:
        count = store.expire(now, most)
        queue = self.by_name.get(store.name)
        if queue is not None and queue.store is store:
            self.forget_if_idle(queue, now)
        return count

    def page_out(self, up_to: int) -> None:
        """Have large queues release the memory of messages that the store has.

        Args:
            up_to: the highest number that the store has.
        """
        for store in list(self.work.large):
            store.page_out(up_to)

    def make_dead_letter(
        self,
        message: Message,
        reason: str,
        deliveries: int = 0,
        nack: Nack = PLAIN_NACK,
        *,
        was_kept: bool = False,
        is_moved: bool = False,
    ) -> None:
        """Put a message that was not consumed into the dead-letter queue, with why, or count it.

        Args:
            nack: the last one.
            was_kept: it was on disk, whatever its SEND said, and so the dead letter is.
            is_moved: a queue had it.
        """
        head = message.head
        self._account.notes.add(MESSAGES_DEAD, reason, principal=head.sender, destination=head.destination)
        queue = self.by_name.get(self.dead_letter)
        if queue is None:
            if not self._account.has_room_for(message.size_bytes, self._account.dead):
                # A flood of them must not make a queue for each.
                self._account.dropped["dead-letter-full"] += 1
                return
            queue = self.create(self.dead_letter, self._account.own)
        wall = self._now + self._context.wall_offset
        about = (
            (names.DEAD_LETTER_REASON, reason),
            (names.DEAD_LETTER_FROM, head.destination),
            (names.DEAD_LETTER_AT, str(to_milliseconds(wall))),
            (names.DEAD_LETTER_DELIVERIES, str(deliveries)),
        )
        dead = Head(
            QUEUE_KIND,
            self.dead_letter,
            head.sender,
            (*about, *nack.failure, *_kept_headers(message)),
            is_persistent=head.is_persistent or was_kept,
            is_moved=is_moved,
            usage=head.usage,
        )
        letter = Message(dead, message.body, self._context.numbers.next(), self._now)
        # A crash before the commit leaves it in the queue where it died.
        if queue.send_once(letter, self._now) is not Verdict.ACCEPTED:
            self._account.dropped["dead-letter-full"] += 1
            self.forget_if_idle(queue, self._now)


def _kept_headers(message: Message) -> Headers:
    """A message's own headers. What is dead does not expire (G.dead-letter)."""
    return tuple(
        (names.DEAD_LETTER_EXPIRES if name == names.EXPIRES else name, value)
        for name, value in message.headers
    )


def _rotate(owners: dict[T, None], most: int, act: Callable[[T, int], int]) -> None:
    """Have each of `owners` do a part of at most `most` steps in all.

    One that did something goes to the end of the line, so that those that found no steps left come first the
    next time.

    Args:
        owners: an ordered set; `act` may remove its owner.
        act: is told how many steps are left, and returns how many it took.
    """
    for owner in list(owners):
        if most <= 0:
            break
        count = act(owner, most)
        most -= count
        if count and owner in owners:
            del owners[owner]
            owners[owner] = None
