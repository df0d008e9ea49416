"""Transactions: what a peer's frames hold back until its COMMIT (STOMP 1.2, "BEGIN"; A.11.1, D.24).

A transaction is a list of SENDs, ACKs and NACKs. A SEND that could not be done now fails the whole
transaction at once, so that its actions need not be kept. The COMMIT judges all SENDs together, with the
room that they take from each other, before the first one has any effect; then it does all actions in order,
or none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from nebula.broker.core.context import CoreContext
from nebula.broker.core.costs import text_cost_bytes
from nebula.broker.core.messages import Head, Verdict
from nebula.broker.core.send import HeldSend, Outcome, Sends
from nebula.broker.core.session import Session
from nebula.broker.core.shares import Resource
from nebula.broker.core.subscribe import Subscriptions
from nebula.broker.core.subscription import Ending, Nack, Receiver, Subscription
from nebula.errors import Refused

# What an action costs besides its texts and its head: the objects of CPython around them.
HELD_COST_BYTES = 500


@dataclass(frozen=True, slots=True)
class HeldSettlement:
    """An ACK, or a NACK (`nack` is what it says; None: an ACK). The target of an unknown message is None."""

    target: tuple[Subscription, int] | None
    nack: Nack | None


Action: TypeAlias = HeldSend | HeldSettlement


@dataclass(slots=True, eq=False, repr=False)
class Transaction:
    """The actions of one transaction, in order.

    Attributes:
        size_bytes: what holding them costs.
        failure: the result of its COMMIT, because a SEND was refused; None: none was. A failed transaction
            holds no actions.
    """

    actions: list[Action] = field(default_factory=list)
    size_bytes: int = 0
    failure: Outcome | None = None
    # Headers are held once for all SENDs that have the same.
    _heads: set[Head] = field(default_factory=set)

    def cost_bytes(self, action: Action) -> int:
        """What holding one more would cost."""
        if not isinstance(action, HeldSend):
            failure = () if action.nack is None else action.nack.failure
            return HELD_COST_BYTES + sum(len(value) for _, value in failure)
        cost = HELD_COST_BYTES + len(action.body) + len(action.receipt or "")
        cost += len(action.unread)
        if action.head not in self._heads:
            cost += action.head.cost_bytes
        return cost

    def add(self, action: Action, size_bytes: int) -> None:
        """Hold one more, with its `cost_bytes`."""
        self.size_bytes += size_bytes
        self.actions.append(action)
        if isinstance(action, HeldSend):
            self._heads.add(action.head)

    def fail(self, failure: Outcome) -> None:
        """Drop the actions and keep the reason."""
        self.failure = failure
        self.actions = []
        self._heads.clear()
        self.size_bytes = HELD_COST_BYTES + len(failure.failed_receipt or "")


class Transactions:
    """The open transactions of all sessions.

    Args:
        context: what all parts of the core share.
        sends: judges SENDs.
        subscriptions: keeps messages that transactions have settled on subscriptions that have ended.
        settle: does an ACK or NACK.
    """

    def __init__(
        self,
        context: CoreContext,
        sends: Sends,
        subscriptions: Subscriptions,
        settle: Callable[[Subscription, int, float, Nack | None], object],
    ) -> None:
        self._limits = context.limits
        self._account = context.account
        self._sends = sends
        self._subscriptions = subscriptions
        self._settle = settle
        self._open: dict[Receiver, dict[str, Transaction]] = {}

    def of(self, session: Receiver) -> Mapping[str, Transaction]:
        """The open transactions of a session, by name."""
        return self._open.get(session, {})

    def begin(self, session: Session, name: str) -> None:
        """BEGIN.

        Raises:
            Refused: the name is taken, there are too many, or there is no room for one more.
        """
        others = self.of(session)
        if name in others:
            raise Refused("transaction", f"the transaction {name[:40]!r} has begun already")
        if len(others) >= self._limits.max_transactions:
            raise Refused("transaction", f"more than {self._limits.max_transactions} transactions")
        size_bytes = HELD_COST_BYTES + text_cost_bytes(name)
        # What names cost counts as well: a peer could begin a hundred with names and no actions.
        # One at a time may always begin: its COMMIT says that there is no room.
        if others and not self._has_room(session, size_bytes):
            raise Refused("transaction", "the broker has no room for one more transaction")
        self._open.setdefault(session, {})[name] = Transaction()
        self._account.hold(size_bytes, session.usage)

    def hold_send(self, session: Session, name: str, send: HeldSend, now: float) -> None:
        """Hold a SEND until the COMMIT of this transaction. If it would be refused now, the transaction
        fails.

        Raises:
            Refused: there is no such transaction, or it grows too large.
        """
        transaction = self._find(session, name)
        if transaction.failure is None:
            verdict = self._sends.judge_held(session, send, now)
            if verdict is Verdict.ACCEPTED and not self._hold(session, transaction, send):
                verdict = Verdict.FULL
            if verdict is not Verdict.ACCEPTED:
                self._fail(session, transaction, Outcome(verdict, send.receipt), send.head.destination, now)

    def refuse_send(self, session: Session, name: str, why: Outcome, destination: str, now: float) -> None:
        """Fail the transaction, because one of its SENDs is refused.

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
        if transaction.failure is None and not self._hold(session, transaction, settlement):
            raise Refused("transaction", "the broker has no room for it")

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
        for name in list(self.of(session)):
            self._take(session, name)
        # No transaction holds on to their messages any more, so each goes back as a whole.
        for subscription in list(session.parted):
            self._subscriptions.part(subscription, now, Ending(lost=lost))

    def commit(self, session: Session, name: str, now: float) -> Outcome:
        """COMMIT: all of it in order, or nothing. It ends the transaction in both cases.

        Raises:
            Refused: there is no such transaction.
        """
        transaction = self._take(session, name)
        if transaction.failure is not None:
            return transaction.failure
        sends = [action for action in transaction.actions if isinstance(action, HeldSend)]
        judged = self._sends.judge_together(session, sends, now)
        if isinstance(judged, Outcome):
            self._let_go(session, transaction.actions, now)
            return judged
        # From here on nothing can refuse it. In the peer's order: a SEND behind an ACK may go to the consumer
        # whose credit that ACK has freed.
        messages = iter(judged)
        for action in transaction.actions:
            if isinstance(action, HeldSend):
                self._sends.deliver(next(messages), now)
            elif action.target is not None:
                self._settle(*action.target, now, action.nack)
        self._let_go(session, transaction.actions, now)
        return Outcome(Verdict.ACCEPTED)

    def claimed(self, *subscriptions: Subscription) -> Mapping[Subscription, Collection[int]]:
        """What open transactions have ACKed or NACKed on each of these subscriptions of one session.

        Returns:
            The numbers of the messages; all of them are still un-ACKed.
        """
        # One pass over the actions for all subscriptions: there may be many of both.
        numbers: dict[Subscription, set[int]] = {each: set() for each in subscriptions}
        for transaction in self.of(subscriptions[0].session).values():
            for action in transaction.actions:
                if isinstance(action, HeldSettlement) and action.target and action.target[0] in numbers:
                    numbers[action.target[0]].add(action.target[1])
        return {each: each.scope(theirs) if theirs else theirs for each, theirs in numbers.items()}

    def _find(self, session: Session, name: str) -> Transaction:
        transaction = self.of(session).get(name)
        if transaction is None:
            raise Refused("transaction", f"there is no transaction {name[:40]!r}")
        return transaction

    def _take(self, session: Session, name: str) -> Transaction:
        transaction = self._find(session, name)
        theirs = self._open[session]
        del theirs[name]
        if not theirs:
            del self._open[session]
        self._account.release(transaction.size_bytes + HELD_COST_BYTES + text_cost_bytes(name), session.usage)
        return transaction

    def _hold(self, session: Session, transaction: Transaction, action: Action) -> bool:
        """Hold one more action. False, and nothing done: its principal has no memory for it."""
        limits, size_bytes = self._limits, transaction.cost_bytes(action)
        if not self._has_room(session, size_bytes):
            return False
        if len(transaction.actions) >= limits.max_transaction_frames:
            raise Refused("transaction", f"more than {limits.max_transaction_frames} frames in a transaction")
        held_bytes = sum(each.size_bytes for each in self.of(session).values())
        if held_bytes + size_bytes > limits.max_transaction_bytes:
            raise Refused("transaction", f"more than {limits.max_transaction_bytes} bytes in transactions")
        transaction.add(action, size_bytes)
        self._account.hold(size_bytes, session.usage)
        return True

    def _fail(
        self, session: Session, transaction: Transaction, why: Outcome, destination: str, now: float
    ) -> None:
        """D.24: what refuses one SEND refuses all, so the others need not be held."""
        self._sends.refuse(why.verdict, session, destination)
        # Its actions are dropped at once, but it stays open under its name: the COMMIT has to report why.
        before_bytes, actions = transaction.size_bytes, transaction.actions
        transaction.fail(why)
        self._account.release(before_bytes - transaction.size_bytes, session.usage)
        self._let_go(session, actions, now)

    def _has_room(self, session: Session, size_bytes: int) -> bool:
        has_room = self._account.has_room_for(size_bytes, session.usage)
        if not has_room:
            self._account.exceed(Resource.MEMORY, session.usage, session.id)
        return has_room

    def _let_go(self, session: Session, actions: Sequence[Action], now: float) -> None:
        """The transaction with these actions has ended. Messages of ended subscriptions that it did not
        settle are requeued (D.12)."""
        if not session.parted:
            return  # nearly always: no subscription ended while a transaction had settled on it
        settlements = (action for action in actions if isinstance(action, HeldSettlement))
        # Settling may have ended some of them.
        theirs = [each.target[0] for each in settlements if each.target and each.target[0] in session.parted]
        if theirs:
            for subscription, kept in self.claimed(*theirs).items():
                self._subscriptions.part(subscription, now, Ending(kept=kept))
