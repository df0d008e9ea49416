"""The broker core: sessions, and every rule that concerns more than one of its parts.

It decides and changes memory; it never writes to a peer, waits, or reads a clock. What it decided lies in
the outboxes of the sessions and in the journal, and `take_work` says which of them the shell has to look at.
Time is an argument. The same inputs (with their times) give the same outputs.

    Broker           send, settle, sessions, time
      sends          judgement of SENDs, publishers that wait for room
      subscriptions  SUBSCRIBE and UNSUBSCRIBE, durable subscriptions
      transactions   BEGIN, COMMIT, ABORT and what is between
      receipts       what waits for the store
      routing        queues, topics and last values
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nebula.broker.core.access import ANONYMOUS, Grants
from nebula.broker.core.account import Refusal
from nebula.broker.core.context import CoreContext
from nebula.broker.core.destinations.line import level_of
from nebula.broker.core.destinations.queue import Queue
from nebula.broker.core.durable import DurableSession
from nebula.broker.core.messages import ACCEPTED, QUEUE_KIND, Head, Message, Verdict
from nebula.broker.core.profiles import STANDARD, Profile
from nebula.broker.core.receipts import Receipts
from nebula.broker.core.routing import Routing
from nebula.broker.core.send import Sends
from nebula.broker.core.session import Session
from nebula.broker.core.shares import Resource, Usage
from nebula.broker.core.storage import PageRequest, StoredMessage
from nebula.broker.core.subscribe import Subscriptions
from nebula.broker.core.subscription import Ending, Nack, Subscription
from nebula.broker.core.transactions import Transactions
from nebula.errors import Refused


@dataclass(frozen=True, slots=True)
class Work:
    """What the shell has to do after an input.

    Attributes:
        dirty: sessions whose outbox has to be written, or that have to be ended.
        pages: to be read from the store, and handed in by `take_page`.
        resumed: sessions that were held back and may be read on. True: no room was found, and the policy of
            the destination decides now.
    """

    dirty: list[Session]
    resumed: list[tuple[Session, bool]]
    pages: list[PageRequest]


class Broker:
    """The broker, without its sockets, clock and disk.

    Args:
        context: limits, rights, accounts and journal: what every part of the core gets.
    """

    def __init__(self, context: CoreContext) -> None:
        self.context = context
        self.limits, self.frame_limits = context.limits, context.limits.frames
        self.access = context.access
        self.account = context.account
        self.journal = context.journal
        self.incarnation = context.incarnation
        self.routing = routing = Routing(context)
        self.queues = routing.queues
        self.topics = routing.topics
        self.values = routing.values
        self.sends = Sends(context, routing)
        self.subscriptions = Subscriptions(context, routing)
        self.durable_sessions = self.subscriptions.durable_sessions
        self.transactions = Transactions(context, self.sends, self.subscriptions, self.settle)
        self.receipts = Receipts(context, routing)
        self.sessions: dict[str, Session] = {}
        self._dirty: list[Session] = []
        # Bound once for `send`, which every message passes: a local step less for each of them.
        self._epoch = self.access.epoch
        self._queues_by_name = self.queues.by_name
        self._numbers = context.numbers
        self._max_backlog_bytes = context.limits.max_commit_backlog_bytes
        # Where rights are configured, those of each receiver are looked at.
        self.topics.is_judged = self.values.feeds.is_judged = not self.access.is_open
        if self.journal is not None:
            self.journal.usage_of = self.usage_of

    def usage_of(self, principal: str) -> Usage:
        """The usage of a principal, connected or not."""
        return self.account.usages.of(self.access.rights_of(principal))

    def may_be_kept(self, head: Head) -> bool:
        """Whether messages with this head go to disk, if they have to wait."""
        if head.kind.holds_messages:
            is_wanted = head.is_persistent or head.destination in self.context.policies.copies
            return is_wanted and self.queues.keeps(head.destination)
        return head.ephemeral_owner is None

    # --- messages ---

    def send(
        self,
        session: Session,
        head: Head,
        body: bytes,
        now: float,
        unread: bytes = b"",
        may_wait: bool = True,
    ) -> Verdict:
        """Hand a message to its destination.

        Args:
            unread: further headers of this message, as lines that were not read.
            may_wait: the session can be held back when there is no room. Then nothing has
                happened, and the session turns up among those `resumed` when it may try again.
                Positional: the interpreter does not inline calls with keywords, and all messages come here.

        Returns:
            The verdict. Any other than ACCEPTED means that nothing happened.
        """
        # The epoch rises with each reload of the rights, so one comparison tells whether what was found for
        # this head still holds. Most publishers repeat their headers: then it does.
        if head.free_in != self._epoch:
            verdict = self.sends.send(session, head, body, now, unread, may_wait=may_wait)
        # As most are: all with this head may go to their destination, as was found before.
        elif head.kind.holds_messages:
            queue = self._queues_by_name.get(head.destination)
            if queue is None or (head.requires_consumers and not queue.consumers.subscriptions):
                verdict = self.sends.send(session, head, body, now, unread, may_wait=may_wait)
            else:
                message = Message(head, body, self._numbers.next(), now, unread)
                verdict = queue.send(message, now)
                if verdict is not ACCEPTED:
                    size_bytes = message.size_bytes
                    verdict = self.sends.wait_or_refuse(session, queue, size_bytes, now, may_wait=may_wait)
        else:
            message = Message(head, body, self._numbers.next(), now, unread)
            verdict = self.topics.send(message, now)
        if self.journal is not None and self.journal.backlog_bytes >= self._max_backlog_bytes:
            self.receipts.hold_back(session)
        if self.context.note_flow is not None and verdict is ACCEPTED:
            self.context.note_flow(head.sender, head.destination)
        return verdict

    def settle(self, subscription: Subscription, number: int, now: float, nack: Nack | None = None) -> bool:
        """ACK or NACK a message, or with the mode client it and all before it.

        Args:
            nack: what a NACK asks for; None: it is an ACK.

        Returns:
            False: the message is not known, or a NACK means nothing there (D.23).
        """
        # The destination finds out what the number covers: only it knows what a NACK means there.
        if nack is None:
            is_known = subscription.destination.ack(subscription, number, now)
        else:
            is_known = subscription.destination.give_back(subscription, number, now, nack)
        # A drained subscription ends with its last message, without another frame of the peer's.
        if is_known and subscription.is_drained and not subscription.unacked:
            self.unsubscribe(subscription, now)
        return is_known

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
            place: the peer's address. Anonymous peers of different addresses have shares of their own.
            connection: for the shell, which finds it in the session; the core does not look at it.
        """
        session = Session(id, self._dirty, profile, self.context, place=place, connection=connection)
        session.identify(principal)
        return session

    def enter(self, session: Session, client_id: str | None, now: float) -> None:
        """The peer has connected, and it is known who it is.

        Args:
            client_id: what it wants its session to be called. A connection of the same principal
                that has it is ended (D.19).

        Raises:
            Refused: the session is another principal's, or the principal has too many connections.
        """
        # Connected or away: a session of another principal is refused with the same words.
        id_ = client_id or session.id
        former = self.sessions.get(id_)
        durable_session = self.durable_sessions.by_id.get(id_)
        owners = {each.rights.principal for each in (former, durable_session) if each is not None}
        if not owners <= {session.principal}:
            self.account.refuse(Refusal(session.principal, session.id, "CONNECT", id_, "another's session"))
            raise Refused("session", "the session cannot be had")
        if former is not None:
            # Lost, not disconnected: what it had in hand may have been processed, and counts as attempted.
            former.end("session taken over")
            self.close_session(former, now, lost=True)
        if not self.account.has_room(Resource.CONNECTIONS, session.usage) or self._fills_its_address(session):
            self.account.refuse_more(Resource.CONNECTIONS, session.usage, session.id)
        self.account.take(Resource.CONNECTIONS, session.usage)
        session.has_entered = True
        session.id = id_
        self.sessions[id_] = session
        self.durable_sessions.arrive(id_)

    def _fills_its_address(self, session: Session) -> bool:
        """Whether anonymous peers leave no places at their address for peers that log in there."""
        if not session.place or session.principal != ANONYMOUS or session.rights.is_open:
            return False
        most = self.limits.max_connections_per_address
        reserved = int(most * self.limits.operator_reserve)
        return session.usage.used(Resource.CONNECTIONS) >= most - reserved

    def close_session(self, session: Session, now: float, *, lost: bool, is_told: bool = False) -> None:
        """Take back what the session did not settle and forget it. Idempotent.

        Args:
            lost: the connection broke; without it the peer said DISCONNECT, and its deliveries
                do not count as attempts (D.12).
            is_told: RECEIPTs that wait for the store are still sent.
        """
        # What one of its subscriptions gives back must not go to another one that ends too.
        session.is_throttled = True
        self.transactions.abort_all(session, now, lost=lost)
        for subscription in list(session.subscriptions.values()):
            self.unsubscribe(subscription, now, lost=lost)
        self.values.end_ephemerals(session)
        session.reply_rights.clear()
        session.heads.clear()
        if session.has_entered:
            session.has_entered = False
            self.account.give_back(Resource.CONNECTIONS, session.usage)
        self.sends.paused.pop(session, None)
        self.receipts.forget(session, is_told=is_told)
        if self.sessions.get(session.id) is session:
            del self.sessions[session.id]
            self.durable_sessions.leave(session.id, now)

    def end_durable_session(self, durable_session: DurableSession, now: float) -> None:
        """Remove a session's durable subscriptions and everything kept for them, and end its connection."""
        session = self.sessions.get(durable_session.id)
        if session is not None:
            session.end("an operator has ended the session")
            self.close_session(session, now, lost=True)
        self.subscriptions.end_session(durable_session)

    def begin(self, subscription: Subscription, now: float) -> None:
        """Let the messages flow: after the RECEIPT was said."""
        self.receipts.begin_after(subscription)
        subscription.destination.attach(subscription, now)

    def unsubscribe(
        self, subscription: Subscription, now: float, *, lost: bool = False, removes: bool = False
    ) -> str | None:
        """End a subscription; see `Subscriptions.unsubscribe`. What open transactions have settled on it
        stays."""
        # Hardly any session has open transactions: no dictionary is made for the others.
        has_transactions = bool(self.transactions.of(subscription.session))
        kept = self.transactions.claimed(subscription)[subscription] if has_transactions else ()
        ending = Ending(lost=lost, removes=removes, kept=kept)
        return self.subscriptions.unsubscribe(subscription, now, ending)

    def review(self, grants: Grants | None, now: float) -> None:
        """Rights have changed: judge anew what a subscription may have from now on (D.36)."""
        self.access.replace(grants)
        self._epoch = self.access.epoch  # all heads are judged anew
        self.topics.is_judged = self.values.feeds.is_judged = not self.access.is_open
        self.topics.table.forget_reached()
        self.values.feeds.table.forget_reached()
        for session in list(self.sessions.values()):
            for subscription in list(session.subscriptions.values()):
                subscription.destination.review(subscription, now)

    # --- the store ---

    def page_after(self, request: PageRequest, rows: Sequence[StoredMessage]) -> PageRequest | None:
        """The page to read next, while `take_page` is called with what was."""
        queue = self._reader_of(request)
        return None if queue is None or not rows else queue.store.page_after(request, rows[-1].number)

    def take_page(self, request: PageRequest, rows: Sequence[StoredMessage], now: float) -> None:
        """Go on with a page that the store has read."""
        queue = self._reader_of(request)
        if queue is not None:
            queue.take_page(request, self.messages_of(request.line, rows), now)

    def _reader_of(self, request: PageRequest) -> Queue | None:
        """The queue that wants a page; None: it is gone."""
        queue = self.subscriptions.queue_of(request.line)
        # While the page was read the queue may have gone, and another of the same name come.
        return queue if queue is not None and queue.store is request.purpose else None

    def messages_of(self, line: str, rows: Sequence[StoredMessage]) -> list[tuple[Message, int]]:
        """The messages that rows of a line were made of, each with its deliveries that failed."""
        assert self.journal is not None
        restore, level = self.journal.restore, level_of(line)
        is_dead = line == self.queues.dead_letter
        return [(restore(row, QUEUE_KIND, is_dead=is_dead, priority=level), row.attempts) for row in rows]

    def committed(self, batch: int, now: float) -> None:
        """The store has this batch and all before it."""
        self.receipts.committed(batch, now)

    # --- time and work ---

    def resume(self, session: Session, now: float) -> None:
        """The session's outbox was written: queues may dispatch to it again."""
        session.is_throttled = False
        for subscription in list(session.subscriptions.values()):
            subscription.destination.resume(subscription, now)

    def advance(self, now: float) -> None:
        """Let time pass: drop what has expired, send what is due. Call it some times a second."""
        self.queues.advance(now)
        self.sends.advance()
        self.routing.advance(now)
        self.values.advance()
        self.subscriptions.expire(now)
        self.subscriptions.relieve(self.sessions.values())

    def take_work(self, now: float) -> Work | None:
        """What has to be done now; None: nothing. Ask after every input, and do all of it."""
        resumed = self.sends.take_resumed(now) if self.sends.paused else []
        work = self.queues.work
        if not (self._dirty or resumed or work.pages):
            return None
        found = Work(self._dirty[:], resumed, work.pages)
        self._dirty.clear()
        work.pages = []
        return found
