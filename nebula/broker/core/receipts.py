"""Receipts, and other work deferred until a batch is durable (group commit).

Theory. A RECEIPT for something that is to survive a crash may be sent only when it is on disk, and a sync
of the disk takes milliseconds. One sync for each frame would allow a few hundred frames a second, so frames
share syncs: the journal gathers the rows of all connections into a batch, a writer thread commits that
batch, and meanwhile the journal gathers the next one. The broker itself never waits.

    frame -> rows into the journal's batch -> RECEIPT sealed, in line for that batch
    batch committed                        -> RECEIPTs of all its frames opened and sent, in order

While a frame is handled, `Journal.told` is the batch that its rows went into, or None. It is a ticket: the
`Batch` that the frame has to wait for. The encoder makes RECEIPTs sealed (`Receipt` is no `bytes`, so that
nothing can send one by mistake), and this module alone opens them:

- at once, if the frame told the store nothing and no earlier RECEIPT of its connection waits;
- when `committed` is called with its batch or a later one.

So with a store that never commits, no RECEIPT for anything that was stored can be had. RECEIPTs of one
connection keep the order of their frames (A.11.2), as batches commit in order.

What else waits for a commit: the first values of a subscription whose RECEIPT waits (D.43), the ERROR for a
faulty frame behind such RECEIPTs, and publishers that are further ahead of the disk than the limit allows.
"""

from __future__ import annotations

from typing import NewType

from nebula.broker.core.context import CoreContext
from nebula.broker.core.journal import Batch
from nebula.broker.core.routing import Routing
from nebula.broker.core.session import Session
from nebula.broker.core.subscription import Subscription

Receipt = NewType("Receipt", object)
"""The bytes of a RECEIPT, sealed: the type checker refuses it wherever bytes are sent."""


class Receipts:
    """Whatever waits for a commit, of all sessions.

    Attributes:
        waiting: sessions with something in `Session.held`.
    """

    def __init__(self, context: CoreContext, routing: Routing) -> None:
        self._journal = context.journal
        self._max_backlog_bytes = context.limits.max_commit_backlog_bytes
        self._routing = routing
        self.waiting: dict[Session, None] = {}
        # Publishers that are read no further until the store has caught up.
        self._backlogged: dict[Session, None] = {}

    @property
    def told(self) -> Batch | None:
        """The batch that has what the frame at hand told the store; None: it told it nothing."""
        return None if self._journal is None else self._journal.told

    @property
    def is_any(self) -> bool:
        """Whether something waits for the next commit, even if nothing is left to write."""
        return bool(self.waiting or self._routing.queues.work.uncommitted)

    def say(self, session: Session, receipt: Receipt, told: Batch | None) -> None:
        """Send a RECEIPT as soon as the store has the batch `told`, and after those before it.

        Args:
            told: what `told` was when the frame had been handled.
        """
        if told is None and not session.held:
            # Sealed bytes, which only this module opens; without a call, as every RECEIPT passes here.
            session.say(receipt)  # type: ignore[arg-type]
        else:
            assert self._journal is not None
            # A frame that told the store nothing waits behind earlier ones: the batch being gathered is the
            # last that any of them can wait for.
            self._hold(session, receipt, told or self._journal.batch)  # type: ignore[arg-type]

    def say_last(self, session: Session, data: bytes) -> None:
        """Send an ERROR after the RECEIPTs that wait. There is one at least."""
        self._hold(session, data, session.held[-1][0])

    def begin_after(self, subscription: Subscription) -> None:
        """Hold back the first values of a subscription until its RECEIPT was sent (D.43)."""
        held = subscription.session.held
        if subscription.feed is not None and held:
            subscription.feed.is_held = True
            held.append((held[-1][0], subscription))

    def _hold(self, session: Session, data: bytes, batch: Batch) -> None:
        session.held.append((batch, data))
        session.held_bytes += len(data)
        if session.held_bytes > session.max_outbox_bytes:
            session.mark_too_slow()
        self.waiting[session] = None

    def forget(self, session: Session, *, is_told: bool) -> None:
        """The session is closed.

        Args:
            is_told: it still gets the RECEIPTs that wait for the store.
        """
        self._backlogged.pop(session, None)
        if not is_told:
            self.waiting.pop(session, None)

    def hold_back(self, session: Session) -> None:
        """Read a publisher no further if the frame at hand told the store something and that is too far
        behind. `Session.is_backlogged` says so, and ends with a commit."""
        journal = self._journal
        if journal is None or journal.told is None or session.subscriptions:
            return
        if journal.backlog_bytes >= self._max_backlog_bytes:
            session.is_backlogged = True
            self._backlogged[session] = None

    def committed(self, batch: int, now: float) -> None:
        """The store has this batch and all before it: send and dispatch what waited for them."""
        for session in list(self.waiting):
            held = session.held
            while held and held[0][0] <= batch:
                _, what = held.popleft()
                if isinstance(what, Subscription):
                    self._routing.values.release(what)
                else:
                    session.held_bytes -= len(what)
                    session.say(what)
            if not held:
                del self.waiting[session]
        journal = self._journal
        if journal is None:
            return
        journal.committed()
        for queue in list(self._routing.queues.work.uncommitted):
            queue.committed(batch, now)
        if self._routing.queues.work.large:
            self._routing.queues.page_out(journal.taken_number)
        if self._backlogged and journal.backlog_bytes < self._max_backlog_bytes:
            for session in self._backlogged:
                session.is_backlogged = False
                session.dirty.append(session)
            self._backlogged.clear()
