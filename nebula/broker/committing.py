"""Transactions of all sessions: begun, filled, and done or dropped as a whole (D.24)."""

from __future__ import annotations

from collections.abc import Callable

from nebula.broker.account import Account
from nebula.broker.limits import Limits
from nebula.broker.messages import Verdict
from nebula.broker.sending import Outcome, Sending
from nebula.broker.session import Session
from nebula.broker.shares import Resource, text_cost_bytes
from nebula.broker.transactions import HELD_COST_BYTES, Action, HeldSend, HeldSettlement, Transaction
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
        self.account.hold(HELD_COST_BYTES + text_cost_bytes(name), session.usage)

    def hold(self, session: Session, name: str, action: Action) -> None:
        """Do `action` at the COMMIT of this transaction.

        Raises:
            Refused: there is no such transaction, or it grows too large.
        """
        transaction = session.transactions.get(name)
        if transaction is None:
            raise Refused("transaction", f"there is no transaction {name[:40]!r}")
        size = transaction.cost_bytes(action)
        limits = self.limits
        if len(transaction.actions) >= limits.max_transaction_frames:
            raise Refused("transaction", f"more than {limits.max_transaction_frames} frames in a transaction")
        held_bytes = sum(each.size_bytes for each in session.transactions.values())
        if held_bytes + size > limits.max_transaction_bytes:
            raise Refused("transaction", f"more than {limits.max_transaction_bytes} bytes in transactions")
        if not self.account.has_room_for(size, session.usage):
            self.account.exceed(Resource.MEMORY, session.usage, session.id)
            raise Refused("transaction", "the broker has no room for it")
        transaction.add(action)
        self.account.hold(size, session.usage)

    def abort(self, session: Session, name: str) -> Transaction:
        """ABORT: nothing of it happens. Returns what it held.

        Raises:
            Refused: there is no such transaction.
        """
        transaction = session.transactions.pop(name, None)
        if transaction is None:
            raise Refused("transaction", f"there is no transaction {name[:40]!r}")
        held_bytes = transaction.size_bytes + HELD_COST_BYTES + text_cost_bytes(name)
        self.account.release(held_bytes, session.usage)
        return transaction

    def commit(self, session: Session, name: str, now: float) -> Outcome:
        """COMMIT: all of it in order, or nothing. It ends the transaction in both cases.

        Raises:
            Refused: there is no such transaction.
        """
        transaction = self.abort(session, name)
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
