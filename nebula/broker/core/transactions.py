"""Transactions of all sessions: begun, filled, and done or dropped as a whole (D.24)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from nebula.broker.core.account import Account
from nebula.broker.core.limits import Limits
from nebula.broker.core.messages import Verdict
from nebula.broker.core.send import Sending
from nebula.broker.core.session import Session
from nebula.broker.core.shares import Resource, text_cost_bytes
from nebula.broker.core.subscribe import Subscribing
from nebula.broker.core.subscription import Subscription
from nebula.broker.core.transaction import (
    HELD_COST_BYTES,
    Action,
    HeldSend,
    HeldSettlement,
    Outcome,
    Transaction,
)
from nebula.errors import Refused


class Committing:
    """What BEGIN, ABORT and COMMIT do, and the frames between them.

    Args:
        limits: what peers may use.
        account: what all destinations and transactions hold together.
        sending: judges and delivers.
        subscribing: keeps what transactions have settled on subscriptions that have ended.
        settle: does an ACK or NACK.
    """

    def __init__(
        self,
        limits: Limits,
        account: Account,
        sending: Sending,
        subscribing: Subscribing,
        settle: Callable[[HeldSettlement, float], None],
    ) -> None:
        self.limits = limits
        self.account = account
        self._sending = sending
        self._subscribing = subscribing
        self._settle = settle

    def begin_transaction(self, session: Session, name: str) -> None:
        """BEGIN.

        Raises:
            Refused: the name is taken, there are too many, or there is no room for one more.
        """
        if name in session.transactions:
            raise Refused("transaction", f"the transaction {name[:40]!r} has begun already")
        if len(session.transactions) >= self.limits.max_transactions:
            raise Refused("transaction", f"more than {self.limits.max_transactions} transactions")
        size_bytes = HELD_COST_BYTES + text_cost_bytes(name)
        # One at a time may always begin: its COMMIT says that there is no room.
        if session.transactions and not self._has_room(session, size_bytes):
            raise Refused("transaction", "the broker has no room for one more transaction")
        session.transactions[name] = Transaction()
        self._count_bytes(session, size_bytes)

    def hold_send(self, session: Session, name: str, send: HeldSend, now: float) -> None:
        """Hold a SEND until the COMMIT of this transaction. If it would be refused now, the transaction
        fails.

        Raises:
            Refused: there is no such transaction, or it grows too large.
        """
        transaction = self._find(session, name)
        if transaction.failure is None:
            verdict = self._sending.judge_held(session, send.head, send.body, send.exchange, now)
            if verdict is Verdict.ACCEPTED and not self._has_room(session, transaction.cost_bytes(send)):
                verdict = Verdict.FULL
            if verdict is Verdict.ACCEPTED:
                self._hold(session, transaction, send)
            else:
                self._fail(session, transaction, Outcome(verdict, send.receipt), send.head.destination, now)

    def refuse_send(self, session: Session, name: str, why: Outcome, destination: str, now: float) -> None:
        """Have the transaction fail, because one of its SENDs is refused.

        Raises:
            Refused: there is no such transaction.
        """
        transaction = self._find(session, name)
        if transaction.failure is None:
            self._fail(session, transaction, why, destination, now)

    def hold_settlement(self, session: Session, name: str, settlement: HeldSettlement) -> None:
        """Hold an ACK or NACK until the COMMIT of this transaction.

        Raises:
            Refused: there is no such transaction, it grows too large, or there is no room for it.
        """
        transaction = self._find(session, name)
        if transaction.failure is None:
            if not self._has_room(session, transaction.cost_bytes(settlement)):
                raise Refused("transaction", "the broker has no room for it")
            self._hold(session, transaction, settlement)

    def _find(self, session: Session, name: str) -> Transaction:
        transaction = session.transactions.get(name)
        if transaction is None:
            raise Refused("transaction", f"there is no transaction {name[:40]!r}")
        return transaction

    def _hold(self, session: Session, transaction: Transaction, action: Action) -> None:
        limits = self.limits
        if len(transaction.actions) >= limits.max_transaction_frames:
            raise Refused("transaction", f"more than {limits.max_transaction_frames} frames in a transaction")
        held_bytes = sum(each.size_bytes for each in session.transactions.values())
        if held_bytes + transaction.cost_bytes(action) > limits.max_transaction_bytes:
            raise Refused("transaction", f"more than {limits.max_transaction_bytes} bytes in transactions")
        before_bytes = transaction.size_bytes
        transaction.add(action)
        self._count_bytes(session, transaction.size_bytes - before_bytes)

    def _fail(
        self, session: Session, transaction: Transaction, why: Outcome, destination: str, now: float
    ) -> None:
        """D.24: what refuses one SEND refuses all, so the others need not be held."""
        self._sending.refuse(why.verdict, session, destination)
        before_bytes, actions = transaction.size_bytes, transaction.actions
        transaction.fail(why)
        self._count_bytes(session, transaction.size_bytes - before_bytes)
        self._let_go(session, actions, now)

    def _has_room(self, session: Session, size_bytes: int) -> bool:
        has_room = self.account.has_room_for(size_bytes, session.usage)
        if not has_room:
            self.account.exceed(Resource.MEMORY, session.usage, session.id)
        return has_room

    def _count_bytes(self, session: Session, size_bytes: int) -> None:
        """Charge what a session's transactions hold. The only place that does."""
        self.account.hold(size_bytes, session.usage)

    def claimed(self, *subscriptions: Subscription) -> Mapping[Subscription, Collection[int]]:
        """What open transactions have ACKed or NACKed on each of these subscriptions of one session.

        Returns:
            The numbers of the messages; all of them are still un-ACKed.
        """
        numbers: dict[Subscription, set[int]] = {each: set() for each in subscriptions}
        for transaction in subscriptions[0].session.transactions.values():
            for action in transaction.actions:
                if isinstance(action, HeldSettlement) and action.target and action.target[0] in numbers:
                    numbers[action.target[0]].add(action.target[1])
        return {each: each.scope(theirs) if theirs else theirs for each, theirs in numbers.items()}

    def abort(self, session: Session, name: str, now: float) -> None:
        """ABORT: nothing of it happens.

        Raises:
            Refused: there is no such transaction.
        """
        self._let_go(session, self._take(session, name).actions, now)

    def abort_all(self, session: Session, now: float, *, lost: bool) -> None:
        """The session ends, and its transactions have no effect.

        Args:
            lost: the connection broke, so that each delivery counts as an attempt.
        """
        for name in list(session.transactions):
            self._take(session, name)
        for subscription in list(session.parted):
            self._subscribing.part(subscription, frozenset(), now, lost=lost)

    def _take(self, session: Session, name: str) -> Transaction:
        transaction = self._find(session, name)
        del session.transactions[name]
        self._count_bytes(session, -(transaction.size_bytes + HELD_COST_BYTES + text_cost_bytes(name)))
        return transaction

    def _let_go(self, session: Session, actions: Sequence[Action], now: float) -> None:
        """These transactions have ended. What they did not settle on ended subscriptions is requeued
        (D.12)."""
        if not session.parted:
            return
        settlements = (action for action in actions if isinstance(action, HeldSettlement))
        # Settling may have ended some of them.
        theirs = [each.target[0] for each in settlements if each.target and each.target[0] in session.parted]
        if theirs:
            for subscription, kept in self.claimed(*theirs).items():
                self._subscribing.part(subscription, kept, now, lost=False)

    def commit(self, session: Session, name: str, now: float) -> Outcome:
        """COMMIT: all of it in order, or nothing. It ends the transaction in both cases.

        Raises:
            Refused: there is no such transaction.
        """
        transaction = self._take(session, name)
        if transaction.failure is not None:
            return transaction.failure
        sends = [action for action in transaction.actions if isinstance(action, HeldSend)]
        judged = self._sending.commit(session, sends, now)
        if isinstance(judged, Outcome):
            self._let_go(session, transaction.actions, now)
            return judged
        messages = iter(judged)
        for action in transaction.actions:
            if isinstance(action, HeldSend):
                self._sending.deliver(session, next(messages), now)
            else:
                self._settle(action, now)
        self._let_go(session, transaction.actions, now)
        return Outcome(Verdict.ACCEPTED)
