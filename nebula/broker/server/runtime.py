"""The runtime of a broker: everything that exists from its start to its stop.

It joins the core to one asyncio loop: the clock that lets time pass, the pump, the connections, and what they
share. A connection knows the runtime; the runtime knows connections by a protocol, so that neither module
imports the other.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Protocol, TypeVar

from nebula.broker.core.access import ANONYMOUS
from nebula.broker.core.broker import Broker
from nebula.broker.core.journal import Journal
from nebula.broker.core.limits import Limits
from nebula.broker.core.storage import PageRequest, StoredMessage
from nebula.broker.operations.administration import Administration, Steps
from nebula.broker.operations.event_log import EventLog
from nebula.broker.operations.events import EndReason
from nebula.broker.operations.traffic import Traffic
from nebula.broker.server.admission import Admission
from nebula.broker.server.fairness import FairScheduler, Scheduled
from nebula.broker.server.inflight import InFlightBytes, Measured
from nebula.broker.server.lifetimes import Expiring, Lifetimes
from nebula.broker.server.pump import Pump, Pumped
from nebula.broker.store.commits import Commits
from nebula.broker.store.disk import DiskWatch
from nebula.broker.store.writer import Writer

T = TypeVar("T")

# How often time passes for the core: expiry, and publishers that wait for room.
_ADVANCE_SECONDS = 0.25

STOPPING = "the broker is shutting down"
"""What peers are told when the broker stops."""

_STORE_FAILED = "the broker cannot keep messages"


class Managed(Pumped, Scheduled, Measured, Expiring, Protocol):
    """A connection, as the runtime sees it."""

    @property
    def principal(self) -> str:
        """The peer's principal, as far as is known."""
        ...

    @property
    def traffic(self) -> Traffic:
        """The connection's counters."""
        ...

    @property
    def is_drained(self) -> bool:
        """Whether everything that it was told has been written, or it is at its end anyway."""
        ...

    def rest_for_good(self) -> None:
        """Read and dispatch no more, as the broker stops; write what it was told."""

    def end(self, message: str, reason: EndReason | None = None) -> None:
        """Send an ERROR and close."""

    def give_way(self) -> None:
        """End the connection to free memory."""

    def abort(self) -> None:
        """Close at once; what was not written is lost."""


class Runtime:
    """A broker that runs. All methods are called on its loop.

    Args:
        broker: the core, with everything that the store had kept.
        name: of the server, as CONNECTED tells it.
        writer: of the store; None: the broker has no store.
        admission: counts the connections.
        lifetimes: ends connections whose proof of identity is no longer valid.
        disk: watches the store's disk; None: it is not watched.

    Attributes:
        time: the loop's clock, in seconds.
        pump: does what the core decided. Call its `work` after every input to the core.
        events: the operator's log.
        fairness: schedules reads and writes of connections.
        in_flight: what waits between the broker and all its peers, and its cap.
        administration: what operators do to the core.
        connections: all of them, from acceptance until the transport is closed.
        ended: connections that the broker ended for a reason outside their frames, by reason.
        is_stopping: nothing more is read or dispatched.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        name: str,
        writer: Writer | None,
        admission: Admission,
        lifetimes: Lifetimes,
        disk: DiskWatch | None,
    ) -> None:
        self.broker = broker
        self.name = name
        self.admission = admission
        self.lifetimes = lifetimes
        self.loop = asyncio.get_running_loop()
        self.time: Callable[[], float] = self.loop.time
        # The scheduler and the pump need each other: it flushes through the pump, and the pump asks it what
        # to defer.
        self.fairness: FairScheduler[Managed] = FairScheduler(self.loop, self._flush, self._work_now)
        self.pump = Pump(broker, read_page=self._read_page, write=self._write, defers=self.fairness.defers)
        self.events = EventLog(broker.account)
        self.in_flight: InFlightBytes[Managed] = InFlightBytes(broker.limits.max_transit_bytes)
        self.started_at = self.time()
        self.administration = Administration(broker, self.started_at)
        self.connections: set[Managed] = set()
        self.ended: Counter[str] = Counter()
        self.is_stopping = False
        self._writer = writer
        self._disk = disk
        self._departed = Traffic()
        self._relieves_soon = False
        self._clock: asyncio.TimerHandle | None = None
        # Walks wait for each other: a thousand at once would take a second's worth of steps in each turn of
        # the loop.
        self._one_walk = asyncio.Lock()

    @property
    def limits(self) -> Limits:
        """What peers may use."""
        return self.broker.limits

    # --- connections ---

    def admit(self, connection: Managed, address: str | None) -> str | None:
        """Count a connection in.

        Args:
            address: of the peer.

        Returns:
            Why it is refused, as the peer is told; None: it is admitted.
        """
        self.connections.add(connection)
        if self.is_stopping:
            return STOPPING  # it was being accepted when the listeners were closed
        return self.admission.enter(connection, address)

    def note_known(self, connection: Managed) -> None:
        """The peer has authenticated: from now on the core counts its connection."""
        self.admission.know(connection, has_share=connection.principal != ANONYMOUS)

    def note_lingering(self, connection: Managed) -> None:
        """The connection is ending, and stays only until the peer has read its ERROR."""
        self.admission.linger(connection)

    def dismiss(self, connection: Managed) -> None:
        """Count a connection out."""
        self.connections.discard(connection)
        self.lifetimes.end(connection)
        # Its traffic stays in the total: Prometheus would take a counter that falls for a restart.
        self._departed.add(connection.traffic)
        self.admission.leave(connection)

    def note_ended(self, ending: str) -> None:
        """A connection is ended for a reason that lies outside its frames: one of `ENDINGS`."""
        self.ended[ending] += 1

    def note_blocked(self, unwritten_bytes: int) -> None:
        """A connection does not keep up, with this much at once in flight: all together may be too much."""
        if self.in_flight.grows_too_fast(unwritten_bytes) and not self._relieves_soon:
            self._relieves_soon = True
            self.loop.call_soon(self.relieve)

    def end_all(self, message: str, reason: EndReason) -> None:
        """End all connections with an ERROR.

        Args:
            message: what peers are told.
            reason: what the log is told.
        """
        # Messages that one session gives back must not be dispatched to another that ends next: each time
        # would count as a failed delivery.
        for session in self.broker.sessions.values():
            session.is_throttled = True
        # A copy: `end` may lead to `dismiss`, which takes a connection out of the set.
        for connection in list(self.connections):
            connection.end(message, reason)

    # --- figures ---

    @property
    def is_drained(self) -> bool:
        """Whether everything that was accepted is done: receipts are sent, and outboxes are written."""
        return not self.broker.receipts.waiting and all(each.is_drained for each in self.connections)

    @property
    def traffic(self) -> Traffic:
        """The counters of all connections since the start."""
        # Counters must not fall when a connection ends, so those of the departed are kept as one sum.
        total = Traffic()
        for each in (self._departed, *(connection.traffic for connection in self.connections)):
            total.add(each)
        return total

    @property
    def outbox_bytes(self) -> int:
        """What sessions were told and transports were not given yet."""
        return sum(connection.outbox_bytes for connection in self.connections)

    @property
    def commits(self) -> Commits | None:
        """Counters of the store; None: the broker has no store."""
        return None if self._writer is None else self._writer.commits

    @property
    def has_store_failed(self) -> bool:
        """Whether the store could not write or read."""
        return self._writer is not None and self._writer.has_failed

    # --- the store ---

    async def read_page(self, request: PageRequest) -> list[StoredMessage]:
        """Read a page of a deep queue, to show it to an operator. Pages exist only where a store does."""
        assert self._writer is not None
        page: asyncio.Future[list[StoredMessage]] = self.loop.create_future()
        # The operator's request may have been cancelled while the page was read.
        self._writer.read(request, lambda _, rows: None if page.done() else page.set_result(rows))
        return await page

    async def walk(self, steps: Steps[T]) -> T:
        """The result of a walk over all destinations. Between its steps the loop does other things."""
        async with self._one_walk:
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    result: T = end.value
                    return result
                finally:
                    # A step may have changed something.
                    self._work_now()
                await asyncio.sleep(0)

    def committed(self, batch: int) -> None:
        """The store has made a batch durable."""
        self.pump.committed(batch, self.time())

    def store_failed(self) -> None:
        """The store cannot go on, and so cannot the broker."""
        self.end_all(_STORE_FAILED, EndReason.STORE_FAILED)

    # --- the clock ---

    def advance(self) -> None:
        """Let time pass, now and from now on until `stop_clock`."""
        now = self.time()
        # The disk first, so that what becomes due now is judged by its present state.
        if self._disk is not None and self._disk.look(now):
            self.broker.account.note_disk(self._disk.room_bytes, is_low=self._disk.is_low)
        self.broker.advance(now)
        self.lifetimes.advance(now)
        self.administration.advance(now)
        # The calls above change the core; this writes what sessions were told.
        self.pump.work(now)
        self.events.advance(now)
        # Last, after the pump has written what it can.
        self.relieve()
        self._clock = self.loop.call_later(_ADVANCE_SECONDS, self.advance)

    def stop_clock(self) -> None:
        """Let no more time pass."""
        if self._clock is not None:
            self._clock.cancel()

    def relieve(self) -> None:
        """End the largest connections if in-flight bytes are above their cap."""
        self._relieves_soon = False
        for connection in self.in_flight.excess(self.time()):
            connection.give_way()

    # --- what the pump and the scheduler call ---

    def _work_now(self) -> None:
        self.pump.work(self.time())

    def _flush(self, connection: Managed, now: float) -> None:
        self.pump.flush(connection, now)

    def _write(self, journal: Journal) -> None:
        assert self._writer is not None, "a journal is there where a store is"
        self._writer.write(journal)

    def _read_page(self, request: PageRequest) -> None:
        assert self._writer is not None, "only what the store has is on disk alone"
        self._writer.read(request, self._page_read)

    def _page_read(self, request: PageRequest, rows: list[StoredMessage]) -> None:
        self.pump.page_read(request, rows, self.time())
