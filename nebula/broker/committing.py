"""Transactions of all sessions: begun, filled, and done or dropped as a whole (D.24)."""

from __future__ import annotations

from collections.abc import Callable

from nebula.broker.destinations.base import Account
from nebula.broker.limits import Limits
from nebula.broker.messages import Verdict
from nebula.broker.sending import Sending
from nebula.broker.session import Session
from nebula.broker.transactions import Action, HeldSend, HeldSettlement, Outcome, Transaction
from nebula.errors import Refused


class Committing:
    """What BEGIN, ABORT and COMMIT do, and the frames between them.

    Args:
        limits: what peers may use.
        account: what all destinations and transactions hold together.
        sending: judges and delivers.
        settle: does an ACK or NACK.
    """

    def __init__(
        self,
        limits: Limits,
        account: Account,
        sending: Sending,
        settle: Callable[[HeldSettlement, float], None],
    ) -> None:
        self.limits = limits
        self.account = account
        self._sending = sending
        self._settle = settle

    def begin_transaction(self, session: Session, name: str) -> None:
        """BEGIN.

        Raises:
            Refused: the name is taken, or there are too many.
        """
        if name in session.transactions:
            raise Refused("transaction", f"the transaction {name[:40]!r} has begun already")
        if len(session.transactions) >= self.limits.max_transactions:
            raise Refused("transaction", f"more than {self.limits.max_transactions} transactions")
        session.transactions[name] = Transaction()

    def hold_send(self, session: Session, name: str, send: HeldSend, now: float) -> None:
        """Do a SEND at the COMMIT of this transaction. Where it would be refused now, the transaction fails.

        Raises:
            Refused: there is no such transaction, or it grows too large.
        """
        transaction = self._find(session, name)
        if transaction.failure is None:
            verdict = self._sending.judge_held(session, send.head, send.body, send.exchange, now)
            if verdict is Verdict.ACCEPTED and not self.account.has_room_for(transaction.cost_bytes(send)):
                verdict = Verdict.FULL
            if verdict is Verdict.ACCEPTED:
                self._hold(session, transaction, send)
            else:
                self._fail(session, transaction, verdict, send.head.destination, send.receipt)

    def refuse_send(
        self, session: Session, name: str, verdict: Verdict, destination: str, receipt: str | None
    ) -> None:
        """A SEND of this transaction is refused, whatever it says: the transaction fails.

        Raises:
            Refused: there is no such transaction.
        """
        transaction = self._find(session, name)
        if transaction.failure is None:
            self._fail(session, transaction, verdict, destination, receipt)

    def hold_settlement(self, session: Session, name: str, settlement: HeldSettlement) -> None:
        """Do an ACK or NACK at the COMMIT of this transaction.

        Raises:
            Refused: there is no such transaction, it grows too large, or there is no room for it.
        """
        transaction = self._find(session, name)
        if transaction.failure is None:
            if not self.account.has_room_for(transaction.cost_bytes(settlement)):
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
        self._count_bytes(transaction.size_bytes - before_bytes)

    def _fail(
        self,
        session: Session,
        transaction: Transaction,
        verdict: Verdict,
        destination: str,
        receipt: str | None,
    ) -> None:
        """D.24: what refuses one refuses all, so that nothing of the others is to be held."""
        self._sending.refuse(verdict, session, destination)
        before_bytes = transaction.size_bytes
        transaction.fail(Outcome(verdict, receipt))
        self._count_bytes(transaction.size_bytes - before_bytes)

    def _count_bytes(self, size_bytes: int) -> None:
        """So much more (or less) is held by transactions. All of that goes by here."""
        self.account.stored_bytes += size_bytes

    def abort(self, session: Session, name: str) -> Transaction:
        """ABORT: nothing of it happens. Returns what it held.

        Raises:
            Refused: there is no such transaction.
        """
        transaction = self._find(session, name)
        del session.transactions[name]
        self._count_bytes(-transaction.size_bytes)
        return transaction

    def commit(self, session: Session, name: str, now: float) -> Outcome:
        """COMMIT: all of it in order, or nothing. It ends the transaction in both cases.

        Raises:
            Refused: there is no such transaction.
        """
        transaction = self.abort(session, name)
        if transaction.failure is not None:
            return transaction.failure
        sends = [action for action in transaction.actions if isinstance(action, HeldSend)]
        judged = self._sending.commit(session, sends, now)
        if isinstance(judged, Outcome):
            return judged
        messages = iter(judged)
        for action in transaction.actions:
            if isinstance(action, HeldSend):
                self._sending.deliver(session, next(messages), now)
            else:
                self._settle(action, now)
        return Outcome(Verdict.ACCEPTED)
