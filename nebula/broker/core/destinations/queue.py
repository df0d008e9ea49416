"""Queues: first in, first out, each message to one of the competing consumers.

Invariants, checked after each step of the tests:

- a message is in exactly one place: waiting (in memory, or on disk alone), un-ACKed on one subscription, or
  put apart until it is due (see `postponed`);
- what waits is in order of arrival (numbers rise), also after messages came back;
- nothing waits while a subscription has credit, unless the next page is on its way, or it waits for a commit
  (its own, or that of a message before it);
- `stored_bytes` is the sum over those in memory, waiting and un-ACKed, and `paged_bytes` over the others;
- the journal was told of exactly those messages that are kept on disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from nebula.broker.core.access import Rights
from nebula.broker.core.account import Account
from nebula.broker.core.destinations.bounded import Bounded
from nebula.broker.core.destinations.queue_store import Bury
from nebula.broker.core.journal import Journal
from nebula.broker.core.messages import Message, Verdict
from nebula.broker.core.policies import QueueRules
from nebula.broker.core.session import PLAIN_NACK, AckMode, Nack, Subscription
from nebula.broker.core.shares import Usage
from nebula.broker.core.storage import PageRequest


class Queue(Bounded):
    """A FIFO queue with competing consumers, served in turn as far as their credit goes.

    Args:
        name: its destination.
        account, rules, bury, journal, keeps_all, has_levels, payer: as `Holding`.
        auto_delete: goes with its last subscription, whatever it holds.
        is_inbox: lives by its exclusive subscription only (D.48).
        rights: of whom it belongs to, where it is bound to one subscription to topics; it gets what
            these let it.
        owner: who created it, and pays for it as a destination.

    Attributes:
        taken_count: messages that it ever accepted, without those of earlier runs.
        subscriptions: those at this moment.
        drained: those that were drained before, and have still something to settle.
        exclusive_subscription: the one that lets no other in, if there is one.
    """

    __slots__ = (
        "_takers",
        "_time_to_live",
        "auto_delete",
        "drained",
        "exclusive_subscription",
        "is_inbox",
        "is_stalled",
        "owner",
        "rights",
        "subscriptions",
        "taken_count",
    )

    takes_nacks = True

    def __init__(
        self,
        name: str,
        account: Account,
        rules: QueueRules,
        *,
        bury: Bury | None = None,
        journal: Journal | None = None,
        keeps_all: bool = False,
        has_levels: bool = False,
        auto_delete: bool = False,
        is_inbox: bool = False,
        rights: Rights | None = None,
        payer: Usage | None = None,
        owner: Usage | None = None,
    ) -> None:
        super().__init__(
            name,
            account,
            rules,
            bury=bury,
            journal=journal,
            keeps_all=keeps_all,
            has_levels=has_levels,
            payer=payer,
        )
        self.owner = owner or account.own
        self.auto_delete = auto_delete
        self.is_inbox = is_inbox
        self.rights = rights
        self.is_stalled = False
        self.taken_count = 0
        self.subscriptions: list[Subscription] = []
        self.drained: list[Subscription] = []
        self.exclusive_subscription: Subscription | None = None
        # Those with credit, next one first. A session may choke behind our back: such a
        # subscription is dropped from here when its turn comes, and `resume` brings it back.
        self._takers: deque[Subscription] = deque()
        self._time_to_live = rules.time_to_live

    @property
    def consumer_count(self) -> int:
        """Its subscriptions."""
        return len(self.subscriptions)

    @property
    def is_idle(self) -> bool:
        """It may be forgotten: nobody is subscribed, and nothing waits (or is to go with the last)."""
        if self.subscriptions or self.drained:
            return False
        return self.auto_delete or not (len(self._line) or self.doomed or self._unacked_count)

    @property
    def is_consumed(self) -> bool:
        """Whether waiting for room makes sense."""
        return bool(self.subscriptions) and not self.is_stalled

    @property
    def credit(self) -> int:
        """How many messages could become un-ACKed now."""
        return sum(
            taker.prefetch - len(taker.unacked)
            for taker in self._takers
            if taker.ack_mode is not AckMode.AUTO and taker.has_credit
        )

    def may_take(self, destination: str) -> bool:
        """Whether what was sent to `destination` may be received from here."""
        return self.rights is None or self.rights.may_receive(destination)

    def send(self, message: Message, now: float) -> Verdict:
        """To the next consumer with credit, else behind what waits; FULL where there is no room for it."""
        line = self._line
        if self._time_to_live is not None:
            message.expire_at(now + self._time_to_live)
        takers = self._takers
        if line.front or line.depot is not None:
            taker = None
        elif takers and not takers[0].session.is_choked:
            taker = takers[0]  # as mostly: without a call
        else:
            taker = self._next_taker()
        if taker is not None and taker.ack_mode is AckMode.AUTO:
            # Nothing is kept, so there is no limit to look at.
            self._dispatch(taker, message, None, now)
        elif self._is_full(message) and not self._make_room(message, now):
            return Verdict.FULL
        else:
            if self._journal is not None and self._keeps(message):
                self._journal.put_message(line.name_of(message), message, self.payer or message.head.usage)
            if taker is not None:
                self._hold(message)
                self._dispatch(taker, message, None, now)
            else:
                self._wait(message)
                if takers and line.front:
                    # It need not wait for the page of a lower level.
                    self._pump(now)
        self.taken_count += 1
        return Verdict.ACCEPTED

    def send_once(self, message: Message, now: float) -> Verdict:
        """Like `send`, but a stored message is delivered only when its batch is committed.

        Later messages do not overtake it. So no crash can undo the SEND of a message that a consumer has.
        """
        journal = self._journal
        if journal is None or not self._keeps(message):
            return self.send(message, now)
        if self._time_to_live is not None:
            message.expire_at(now + self._time_to_live)
        if self._is_full(message) and not self._make_room(message, now):
            return Verdict.FULL
        journal.put_message(self._line.name_of(message), message, self.payer or message.head.usage)
        # Two batches at most: the one being written and the one being gathered. They are kept in the account
        # because CPython is slower with objects that have more attributes than this one.
        batches = self._account.uncommitted.setdefault(self, deque())
        if not batches or batches[-1][1] != journal.batch:
            batches.append((message.number, journal.batch))
        self._wait(message)
        self.taken_count += 1
        return Verdict.ACCEPTED

    def committed(self, batch: int, now: float) -> None:
        """Dispatch what waited for this batch, which is committed now."""
        batches = self._account.uncommitted[self]
        while batches and batches[0][1] <= batch:
            batches.popleft()
        if not batches:
            del self._account.uncommitted[self]
        self._pump(now)

    @property
    def first_uncommitted(self) -> int | None:
        """The number from which on messages wait for a commit; None: none does.

        It holds until the commit, even if its message is gone.
        """
        batches = self._account.uncommitted.get(self)
        return None if batches is None else batches[0][0]

    def take_page(self, request: PageRequest, page: Sequence[tuple[Message, int]], now: float) -> None:
        """Go on with a page that was asked for."""
        super().take_page(request, page, now)
        self._pump(now)

    def attach(self, subscription: Subscription, now: float) -> None:
        """Let it compete for what waits and what comes."""
        self.subscriptions.append(subscription)
        if subscription.exclusive:
            self.exclusive_subscription = subscription
        self.resume(subscription, now)

    def detach(self, subscription: Subscription, now: float, *, lost: bool) -> None:
        """Take back what it did not settle, to the front, for the others at once (D.12)."""
        if subscription.is_drained:
            self.drained.remove(subscription)
        else:
            self._leave(subscription)
        messages = list(subscription.unacked.values())
        subscription.unacked.clear()
        self._take_back(messages, now, counted=lost)
        if self.auto_delete and not self.subscriptions and not self.drained:
            self.clear("deleted")
        self._pump(now)

    def drain(self, subscription: Subscription) -> None:
        """Let it compete no more, and keep what it has: others may get what waits, as if it were gone."""
        self._leave(subscription)
        subscription.is_drained = True
        subscription.prefetch = subscription.window = 0
        self.drained.append(subscription)

    def part(self, subscription: Subscription, kept: Collection[int], now: float, *, lost: bool) -> None:
        """Detach a subscription except for those of its messages that open transactions have settled; see
        `detach`."""
        if not subscription.is_drained:
            self.drain(subscription)
        unacked = subscription.unacked
        returned = [unacked.pop(number) for number in list(unacked) if number not in kept]
        self._take_back(returned, now, counted=lost)
        self._pump(now)

    def drop_drained(self) -> None:
        """Drop and count what drained subscriptions have un-ACKed, because the queue is removed."""
        for subscription in self.drained:
            messages = list(subscription.unacked.values())
            subscription.unacked.clear()
            self._unacked_count -= len(messages)
            self._drop(messages, "deleted")
        self.drained.clear()

    def _leave(self, subscription: Subscription) -> None:
        self.subscriptions.remove(subscription)
        if subscription.exclusive:
            self.exclusive_subscription = None
        if subscription.in_turn:
            self._takers.remove(subscription)
            subscription.in_turn = False

    def suspend(self, subscription: Subscription) -> None:
        """Its principal may not receive from here any more: it gets nothing until `prefetch` is raised."""
        subscription.prefetch = 0
        if subscription.in_turn:
            self._takers.remove(subscription)
            subscription.in_turn = False

    def acknowledge(self, subscription: Subscription, messages: Sequence[Message], now: float) -> None:
        """Forget what was consumed; its credit is used at once."""
        self._release(messages)
        self.is_stalled = False
        self.resume(subscription, now)

    def give_back(
        self,
        subscription: Subscription,
        messages: Sequence[Message],
        now: float,
        nack: Nack = PLAIN_NACK,
    ) -> None:
        """Requeue at the front, or put apart for a while, or let them die: by the NACK's word, or because
        too many deliveries failed."""
        if nack.requeue:
            # A drain gives back messages that were never begun. Those of a transaction were, and so was what
            # is to come again later.
            is_drain = subscription.is_drained and subscription not in subscription.session.parted
            self._take_back(messages, now, counted=not is_drain or nack.delay > 0, nack=nack)
        else:
            self._unacked_count -= len(messages)
            for message in messages:
                self._let_die(message, "rejected", self._attempts.get(message.number, 0) + 1, now, nack)
        self.resume(subscription, now)

    def resume(self, subscription: Subscription, now: float) -> None:
        """Put it at the end of the line if it has credit."""
        if not subscription.in_turn and subscription.has_credit:
            self._takers.append(subscription)
            subscription.in_turn = True
        if self._line.front:
            self._pump(now)
        elif self.is_deep:
            self._refill()

    def put_back_due(self, now: float, most: int) -> int:
        """Go on with what was postponed and is due. Returns how many."""
        count = super().put_back_due(now, most)
        if count:
            self._pump(now)
        return count

    def _next_taker(self) -> Subscription | None:
        takers = self._takers
        while takers:
            taker = takers[0]
            if not taker.session.is_choked:
                return taker
            takers.popleft().in_turn = False
        return None

    def _pump(self, now: float) -> None:
        """Dispatch what waits, as far as credit goes."""
        line = self._line
        first_uncommitted = self.first_uncommitted if self._account.uncommitted else None
        postponed = self._account.postponed.get(self) if self._account.postponed else None
        while line.front:
            if first_uncommitted is not None and line.front[0].number >= first_uncommitted:
                break
            taker = self._next_taker()
            if taker is None:
                break
            message = line.pop()
            if postponed is not None and self._waits_for_its_time(message, postponed, now):
                continue
            if message.has_expired(now):
                self._let_die(message, "expired", self._attempts.get(message.number, 0), now)
                continue
            # Looked at again where it matters: what waits here was sent to many destinations.
            if not self.may_take(message.head.destination):
                self._drop([message], "unauthorised")
                continue
            if taker.ack_mode is AckMode.AUTO:
                self._let_go(message)
                if self._journal is not None and self._keeps(message):
                    payer = self.payer or message.head.usage
                    self._journal.drop_message(line.name_of(message), message, payer)
            self._dispatch(taker, message, self._attempts.get(message.number), now)
        if self.is_deep:
            self._refill()

    def _dispatch(self, taker: Subscription, message: Message, attempts: int | None, now: float) -> None:
        """Deliver to the first of the takers, and put the next one in its place.

        What is to be ACKed is held already, and what is not is held no more.
        """
        takers = self._takers
        if message.head.reply_to is not None:
            taker.session.reply_rights.grant(message, now)
        if taker.ack_mode is AckMode.AUTO:
            # Consumed when sent (STOMP 1.2, "SUBSCRIBE ack Header").
            self.is_stalled = False
            if attempts is not None:
                del self._attempts[message.number]
            if len(takers) > 1:
                takers.rotate(-1)
        else:
            taker.unacked[message.number] = message
            self._unacked_count += 1
            if len(taker.unacked) >= taker.prefetch:
                takers.popleft().in_turn = False
            elif len(takers) > 1:
                takers.rotate(-1)
        taker.deliver(message, attempts)
