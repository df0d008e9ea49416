"""Work deferred until the current batch is durable: receipts, deliveries, new subscriptions, throttled
publishers."""

from __future__ import annotations

from nebula.broker.core.account import Account
from nebula.broker.core.destinations.last_value import LastValues
from nebula.broker.core.destinations.registry import Queues
from nebula.broker.core.journal import Journal
from nebula.broker.core.limits import Limits
from nebula.broker.core.session import Session
from nebula.broker.core.subscription import Subscription


class Awaiting:
    """Sessions that wait for the store.

    Args:
        limits: what peers may use.
        account: what all destinations hold together.
        journal: gathers what is to be written; None: nothing is.
        queues: of which the deep ones let go what is committed.
        values: whose subscriptions wait for their RECEIPTs.

    Attributes:
        waiting: whose RECEIPTs wait.
    """

    def __init__(
        self, limits: Limits, account: Account, journal: Journal | None, queues: Queues, values: LastValues
    ) -> None:
        self.limits = limits
        self.account = account
        self.journal = journal
        self.queues = queues
        self.values = values
        self.waiting: dict[Session, None] = {}
        # Who is read no further until the store has caught up.
        self._backlogged: dict[Session, None] = {}

    def forget(self, session: Session, *, is_told: bool) -> None:
        """The session is closed.

        Args:
            is_told: it still gets the RECEIPTs that wait for the store.
        """
        self._backlogged.pop(session, None)
        if not is_told:
            self.waiting.pop(session, None)

    @property
    def is_any(self) -> bool:
        """Whether something waits for the next commit, even if nothing is left to write."""
        return bool(self.waiting or self.queues.work.uncommitted)

    def hold_receipt(self, session: Session, octets: bytes, batch: int) -> None:
        """Say `octets` when the store has this batch, and what the session was told before."""
        session.hold(octets, batch)
        self.waiting[session] = None

    def committed(self, batch: int, now: float) -> None:
        """Send and dispatch what waited for this batch and those before it, which are durable now."""
        for session in list(self.waiting):
            held = session.held
            while held and held[0][0] <= batch:
                _, what = held.popleft()
                if isinstance(what, Subscription):
                    self.values.release(what)
                else:
                    session.held_bytes -= len(what)
                    session.say(what)
            if not held:
                del self.waiting[session]
        journal = self.journal
        if journal is None:
            return
        journal.committed()
        for queue in list(self.queues.work.uncommitted):
            queue.committed(batch, now)
        if self.queues.work.large:
            self.queues.page_out(journal.taken_number)
        if self._backlogged and journal.backlog_bytes < self.limits.max_commit_backlog_bytes:
            for session in self._backlogged:
                session.is_backlogged = False
                session.dirty.append(session)
            self._backlogged.clear()

    def note_backlog(self, session: Session, since: int) -> None:
        """Have a session whose frames were to be written wait, if the store is too far behind.

        Args:
            since: `Journal.count` before those frames.
        """
        journal = self.journal
        if (
            journal is not None
            and journal.backlog_bytes >= self.limits.max_commit_backlog_bytes
            and journal.count != since
            and not session.subscriptions
        ):
            session.is_backlogged = True
            self._backlogged[session] = None
