"""The broker's heart: destinations by name, who is subscribed to them, and what happens on each request.

It decides and changes memory; it never writes to anybody. What it decided lies in the outboxes
of the sessions and in the journal, and `take_work` says which ones the shell has to look at. Time
is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from nebula.broker.core.access import ANONYMOUS, AccessPolicy, Grants
from nebula.broker.core.account import Account, Refusal
from nebula.broker.core.destinations.last_value import LastValues
from nebula.broker.core.destinations.queue import QUEUE_KIND
from nebula.broker.core.destinations.registry import Queues
from nebula.broker.core.destinations.topic import TOPIC_KIND, Topics
from nebula.broker.core.destinations.value_feed import LAST_VALUE_KIND
from nebula.broker.core.durable import StandingSession, StandingSessions
from nebula.broker.core.journal import Journal
from nebula.broker.core.limits import Limits
from nebula.broker.core.messages import (
    TOPIC_PREFIX,
    ContentCheck,
    DestinationKind,
    Head,
)
from nebula.broker.core.policies import PolicyTable
from nebula.broker.core.profiles import STANDARD, Profile
from nebula.broker.core.receipts import Awaiting
from nebula.broker.core.reply_rights import ReplyRights
from nebula.broker.core.restore import Restoring
from nebula.broker.core.routing import Placing
from nebula.broker.core.send import Sending
from nebula.broker.core.session import Session
from nebula.broker.core.shared_heads import SharedHeads
from nebula.broker.core.shares import Resource, Share, Usage
from nebula.broker.core.storage import PageRequest
from nebula.broker.core.subscribe import SubscribeRequest, Subscribing
from nebula.broker.core.subscription import Nack, Subscription
from nebula.broker.core.transaction import HeldSettlement, Outcome
from nebula.broker.core.transactions import Committing
from nebula.errors import Refused
from nebula.headers import DEAD_LETTER_QUEUE

__all__ = ["Broker", "Outcome", "SubscribeRequest", "Work"]


@dataclass(frozen=True, slots=True)
class Work:
    """What the shell has to do after an input.

    Attributes:
        dirty: sessions whose outbox is to be written (or who are to be ended).
        pages: to be read from the store, and handed in by `take_page`.
        resumed: sessions that were held back and may be read on; True where the wait was in
            vain and the policy of the destination decides now.
    """

    dirty: list[Session]
    resumed: list[tuple[Session, bool]]
    pages: list[PageRequest]


class Broker:
    """All destinations, and every rule that concerns more than one of them.

    Deterministic: the same inputs (with their times) give the same outputs.

    Args:
        limits: what peers may use.
        policies: what differs for single destinations, by pattern.
        shares: what principals may use, by pattern; for all others the limits apply.
        incarnation: begins every message-id, so that none comes again after a restart (D.20). No
            space, no colon, no backslash.
        first_number: of the first message; above all that an earlier run has used.
        access: who may do what; None: everybody everything but what is reserved.
        journal: gathers what is to be kept on disk; None: nothing is.
        wall_offset: what makes wall-clock time (seconds since 1970) of the times that are handed in.
        last_value_prefixes: what last-value destinations begin with.
        key_of: what a last value is kept under, where two destinations may share it (D.30).
        dead_letter: name of the dead-letter queue.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        policies: PolicyTable | None = None,
        *,
        shares: Sequence[Share] = (),
        incarnation: str = "m",
        first_number: int = 1,
        access: AccessPolicy | None = None,
        journal: Journal | None = None,
        wall_offset: float = 0.0,
        last_value_prefixes: Sequence[str] = ("X/",),
        key_of: Callable[[str], str] | None = None,
        dead_letter: str = DEAD_LETTER_QUEUE,
    ) -> None:
        self.limits = limits or Limits()
        self.policies = policies or PolicyTable(())
        self.incarnation = incarnation
        self.wall_offset = wall_offset
        self.access = access or AccessPolicy()
        self.journal = journal
        self.account = Account(self.limits, shares)
        if journal is not None:
            journal.usage_of = self.usage_of
        self._numbers = count(first_number)
        self.queues = Queues(
            self.account,
            self.limits,
            self.policies,
            self._numbers,
            journal=journal,
            wall_offset=wall_offset,
            dead_letter=dead_letter,
        )
        self.topics = Topics(self.account)
        self.values = LastValues(self.account, self._numbers, journal=journal, key_of=key_of)
        self.standing = StandingSessions(self.limits, self.account, journal)
        self.placing = Placing(
            self.account,
            self.limits,
            self._numbers,
            self.queues,
            self.topics,
            self.values,
            self.policies,
            journal,
        )
        self._sending = Sending(
            self.account,
            self.limits,
            self.access,
            self._numbers,
            self.queues,
            self.topics,
            self.values,
            self.placing,
            self.kind_of,
        )
        self._subscribing = Subscribing(
            self.limits, self.account, self.queues, self.topics, self.values, self.standing, self.policies
        )
        self.send = self._sending.send
        self.bury = self._sending.bury
        self.refuse = self._sending.refuse
        self.wait_on = self._sending.wait_on
        self.may_subscribe = self._subscribing.may_subscribe
        self.subscribe = self._subscribing.subscribe
        self._prefixes = tuple(last_value_prefixes)
        self._sessions: dict[str, Session] = {}
        self._dirty: list[Session] = []
        self.awaiting = Awaiting(self.limits, self.account, journal, self.queues, self.values)
        self.waiting = self.awaiting.waiting
        self.hold_receipt = self.awaiting.hold_receipt
        self.committed = self.awaiting.committed
        self.note_backlog = self.awaiting.note_backlog
        self._committing = Committing(
            self.limits, self.account, self._sending, self._subscribing, self._settle
        )
        self.begin_transaction = self._committing.begin_transaction
        self.hold_send = self._committing.hold_send
        self.refuse_send = self._committing.refuse_send
        self.hold_settlement = self._committing.hold_settlement
        self.abort = self._committing.abort
        self.commit = self._committing.commit
        if journal is not None:
            restoring = Restoring(
                self.account,
                journal,
                self.access,
                self.queues,
                self.values,
                self.standing,
                self._subscribing,
                self.placing,
                kind_of=self.kind_of,
                check_of=self.check_of,
            )
            self.restore = restoring.restore
            self.page_after = restoring.page_after
            self.take_page = restoring.take_page
        self.topics.is_judged = self.values.is_judged = not self.access.is_open

    @property
    def destinations(self) -> Mapping[str, Any]:
        """By name, for inspection."""
        return {**self.queues.by_name, **self.topics.topics, **self.values.topics}

    @property
    def sessions(self) -> Mapping[str, Session]:
        """Those that are connected, by id."""
        return self._sessions

    @property
    def held_back_count(self) -> int:
        """Sessions that are not read until there is room."""
        return len(self._sending.paused)

    @property
    def delayed_count(self) -> int:
        """Messages that wait for the time at which they are to be put into their queues."""
        return self._sending.delayed_count

    def usage_of(self, principal: str) -> Usage:
        """The usage of a principal, connected or not."""
        return self.account.usages.of(self.access.rights_of(principal))

    def kind_of(self, destination: str) -> DestinationKind:
        """What a destination is, by its name (D.10)."""
        if destination.startswith(TOPIC_PREFIX):
            return TOPIC_KIND
        return LAST_VALUE_KIND if destination.startswith(self._prefixes) else QUEUE_KIND

    def check_of(self, destination: str) -> ContentCheck | None:
        """What bodies sent there are judged by."""
        policy = self.policies.lookup(destination)
        return None if policy is None else policy.check

    def may_be_kept(self, head: Head) -> bool:
        """Whether messages with this head go to the disk, if they have to wait."""
        if head.kind.holds_messages:
            is_wanted = head.is_persistent or head.destination in self.policies.copies
            return is_wanted and self.queues.keeps(head.destination)
        return not head.is_ephemeral

    # --- sessions ---

    def open_session(
        self,
        id: str,  # noqa: A002
        principal: str,
        *,
        profile: Profile = STANDARD,
        place: str = "",
        connection: object = None,
    ) -> Session:
        """Make the session of a new connection; `enter` it at CONNECT, end it with `close_session`.

        Args:
            place: where the peer comes from. Anonymous peers of different places have shares of their own.
        """
        rights = self.access.rights_of(principal)
        return Session(
            id,
            rights,
            profile,
            self._dirty,
            high_water_bytes=self.limits.outbox_high_water_bytes,
            max_outbox_bytes=self.limits.max_outbox_bytes,
            value_credit=self.limits.max_unacked_values,
            account=self.account,
            usage=self.account.usages.of(rights, place),
            place=place,
            connection=connection,
        )

    def identify(self, session: Session, principal: str) -> None:
        """Set the principal of the peer. Call it before `enter`."""
        session.rights = self.access.rights_of(principal)
        session.usage = self.account.usages.of(session.rights, session.place)
        session.reply_rights = ReplyRights(self.account, session.usage)
        session.heads = SharedHeads(self.account, session.usage)

    def enter(self, session: Session, client_id: str | None, now: float) -> None:
        """The peer has connected, and it is known who it is.

        Args:
            client_id: what it wants its session to be called. A connection of the same principal
                that has it is ended (D.19).

        Raises:
            Refused: the session is somebody else's, or the principal has too many connections.
        """
        id_ = client_id or session.id
        former = self._sessions.get(id_)
        standing = self.standing.by_id.get(id_)
        owners = {each.rights.principal for each in (former, standing) if each is not None}
        if not owners <= {session.principal}:
            self.account.refuse(Refusal(session.principal, session.id, "CONNECT", id_, "another's session"))
            raise Refused("session", "the session cannot be had")
        if former is not None:
            former.end("session taken over")
            self.close_session(former, now, lost=True)
        if not self.account.has_room(Resource.CONNECTIONS, session.usage) or self._fills_its_address(session):
            self.account.exceed(Resource.CONNECTIONS, session.usage, session.id)
            raise Refused("too-many-connections", "the broker has no room for more of your connections")
        self.account.take(Resource.CONNECTIONS, session.usage)
        session.has_entered = True
        session.id = id_
        self._sessions[id_] = session
        self.standing.arrive(id_)

    def _fills_its_address(self, session: Session) -> bool:
        """Whether anonymous peers leave no places at their address for whoever logs in there."""
        if not session.place or session.principal != ANONYMOUS or session.rights.is_open:
            return False
        most = self.limits.max_connections_per_address
        reserved = int(most * self.limits.operator_reserve)
        return session.usage.used(Resource.CONNECTIONS) >= most - reserved

    def close_session(self, session: Session, now: float, *, lost: bool, is_told: bool = False) -> None:
        """Take back what the session did not settle and forget it. Idempotent.

        Args:
            lost: the connection broke; without it the peer said DISCONNECT, and its deliveries
                do not count as attempts (DESIGN 4).
            is_told: RECEIPTs that wait for the store are still sent.
        """
        # What one of its subscriptions gives back must not go to another one that ends too.
        session.is_choked = True
        self._committing.abort_all(session, now, lost=lost)
        for subscription in list(session.subscriptions.values()):
            self.unsubscribe(subscription, now, lost=lost)
        self.values.end_ephemerals(session)
        session.reply_rights.clear()
        session.heads.clear()
        if session.has_entered:
            session.has_entered = False
            self.account.give_back(Resource.CONNECTIONS, session.usage)
        self._sending.paused.pop(session, None)
        self.awaiting.forget(session, is_told=is_told)
        if self._sessions.get(session.id) is session:
            del self._sessions[session.id]
            self.standing.leave(session.id, now)

    def review(self, grants: Grants | None, now: float) -> None:
        """Rights have changed: what a subscription may have from now on is judged anew (D.36)."""
        self.access.replace(grants)
        self._sending.epoch = self.access.epoch
        self.topics.is_judged = self.values.is_judged = not self.access.is_open
        self.topics.forget_reached()
        self.values.forget_reached()
        for session in list(self._sessions.values()):
            for subscription in list(session.subscriptions.values()):
                subscription.destination.review(subscription, now)

    def end_durable_session(self, standing: StandingSession, now: float) -> None:
        """Remove a session's durable subscriptions and everything kept for them, and end its connection."""
        session = self._sessions.get(standing.id)
        if session is not None:
            session.end("an operator has ended the session")
            self.close_session(session, now, lost=True)
        self._subscribing.end_session(standing)

    def drop_backlog(self, standing: StandingSession) -> int:
        """Drop everything that waits for a session; see `Subscribing.drop_backlog`."""
        return self._subscribing.drop_backlog(standing)

    # --- subscriptions ---

    def begin(self, subscription: Subscription, now: float) -> None:
        """Let the messages flow: after the RECEIPT was said."""
        held = subscription.session.held
        if subscription.feed is not None and held:
            # D.43: the RECEIPT waits for the store, so that the snapshot does too.
            subscription.feed.is_held = True
            held.append((held[-1][0], subscription))
        subscription.destination.attach(subscription, now)

    def unsubscribe(
        self, subscription: Subscription, now: float, *, lost: bool = False, removes: bool = False
    ) -> str | None:
        """End a subscription; see `Subscribing.unsubscribe`. What open transactions have settled on it
        stays."""
        has_transactions = bool(subscription.session.transactions)
        kept = self._committing.claimed(subscription)[subscription] if has_transactions else ()
        return self._subscribing.unsubscribe(subscription, now, lost=lost, removes=removes, kept=kept)

    def drain(self, subscription: Subscription) -> bool:
        """End its deliveries and leave what is un-ACKed with it; see `Source.drain`."""
        return subscription.destination.drain(subscription)

    def remove_paused(self, session: Session, id: str) -> bool:  # noqa: A002
        """Remove a durable subscription that is paused; False: there is none."""
        return self._subscribing.remove_paused(session, id)

    def acknowledge(self, subscription: Subscription, number: int, now: float) -> bool:
        """Settle a message, or with the mode client it and all before it. False: not known."""
        is_known = subscription.destination.acknowledge(subscription, number, now)
        if is_known and subscription.is_drained and not subscription.unacked:
            self.unsubscribe(subscription, now)
        return is_known

    def negative_acknowledge(self, subscription: Subscription, number: int, now: float, nack: Nack) -> bool:
        """Give messages back; the scope is that of an ACK. False: not known, or it means nothing (D.23)."""
        is_known = subscription.destination.give_back(subscription, number, now, nack)
        if is_known and subscription.is_drained and not subscription.unacked:
            self.unsubscribe(subscription, now)
        return is_known

    def _settle(self, action: HeldSettlement, now: float) -> None:
        if action.target is None:
            return
        if action.nack is None:
            self.acknowledge(*action.target, now)
        else:
            self.negative_acknowledge(*action.target, now, action.nack)

    def consumer_count(self, name: str) -> int:
        """Subscriptions of a queue at this moment."""
        queue = self.queues.get(name)
        return 0 if queue is None else queue.consumer_count

    # --- time, and what is to be done ---

    def resume(self, session: Session, now: float) -> None:
        """The session's outbox was written: queues may dispatch to it again."""
        session.is_choked = False
        for subscription in list(session.subscriptions.values()):
            subscription.destination.resume(subscription, now)

    def advance(self, now: float) -> None:
        """Let time pass: drop what has expired, send what is due. Call it some times a second."""
        self.queues.advance(now)
        self._sending.advance()
        self.placing.advance(now)
        self.values.advance()
        self._subscribing.expire(now)
        self._subscribing.relieve(self._sessions.values())

    def take_work(self, now: float) -> Work:
        """What is to be done now. Ask after every input, and do all of it."""
        resumed = self._sending.take_resumed(now) if self._sending.paused else []
        dirty = self._dirty[:]
        self._dirty.clear()
        asked = self.queues.work.pages
        pages = asked[:]
        asked.clear()
        return Work(dirty, resumed, pages)
