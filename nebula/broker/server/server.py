"""The broker's shell: listeners, the clock, and the doing of what the core decided.

It runs on one asyncio loop (uvloop where there is one) and never waits for a peer.

    server = Server(listeners=[Listener("127.0.0.1", 0)])
    await server.start()
    print(server.urls)          # ['stomp://127.0.0.1:40123']
    ...
    await server.stop()
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from nebula.broker.core.access import ANONYMOUS, AccessPolicy, Grants
from nebula.broker.core.broker import Broker
from nebula.broker.core.counts import Commits, Traffic
from nebula.broker.core.journal import Journal
from nebula.broker.core.limits import Limits
from nebula.broker.core.policies import DestinationPolicy, PolicyTable
from nebula.broker.core.shares import Share
from nebula.broker.core.storage import PageRequest, Snapshot, Store, StoredMessage
from nebula.broker.operations.administration import Administration
from nebula.broker.operations.events import EventLog
from nebula.broker.protocol.encoding import LARGE_BYTES
from nebula.broker.server.admission import Admission
from nebula.broker.server.connection import Connection
from nebula.broker.server.fairness import FairScheduler
from nebula.broker.server.http import Page
from nebula.broker.server.http_posts import Post
from nebula.broker.server.inflight import InFlightBytes
from nebula.broker.server.lifetimes import Lifetimes
from nebula.broker.server.listener import Listener
from nebula.broker.server.open_listeners import OpenListeners
from nebula.broker.store.disk import DiskWatch
from nebula.broker.store.writer import Writer
from nebula.errors import SettingsError
from nebula.headers import DEAD_LETTER_QUEUE
from nebula.logs import get_logger
from nebula.version import __version__

__all__ = ["Listener", "Server"]

_log = get_logger("nebula.broker")

# How often time passes for the core: expiry, and senders that wait in vain.
_ADVANCE_SECONDS = 0.25

# Why all are ended when the broker stops, as they are told.
_STOPPING = "the broker is shutting down"

# How long clients may take to go when they were told why the broker ends them.
_STOP_SECONDS = 0.5

# What the store may take at least to write the last batch: a busy disk, not one that hangs.
_STORE_SECONDS = 2.0


class Server:
    """A broker with its listeners.

    Args:
        listeners: where to listen; none at all is fine for a broker that is only embedded.
        limits: what peers may use.
        policies: what differs for single destinations.
        shares: what single principals may use, by pattern.
        access: who may do what; None: everybody everything but what is reserved.
        store: keeps what must survive; None: nothing does.
        key_of: what a last value is kept under, where two destinations may share it (D.30).
        last_value_prefixes: what last-value destinations begin with.
        dead_letter: name of the queue for messages that nobody consumed.
        on_failure: called once when the broker cannot go on, with why. End the program then.
        free_disk_bytes: what the store's disk has left; None: it is not watched.
        lifetimes: how long connections may live; None: as long as their proof of identity is valid.

    Attributes:
        broker: the core, from `start` on.
        urls: where it listens, from `start` on.
        is_stopping: nothing more is read or dispatched.
        ended: peers that were ended for what lies outside their frames, by why ("too slow").
        pages: what its HTTP listeners answer, by path. Filled before `start`.
        posts: what answers a POST, by the begin of its path, on listeners that take calls. Likewise.
        reads: handlers of GET requests that need the sender's identity. Likewise.
        renewals: what reads files again at a reload, beside those of the listeners.
        administration: what operators do to the core, from `start` on; then it has `started_at` too.
        one_walk: held by who walks over all destinations: one at a time, however many ask.
    """

    def __init__(
        self,
        listeners: Sequence[Listener] = (Listener(),),
        *,
        limits: Limits | None = None,
        policies: Sequence[DestinationPolicy] = (),
        shares: Sequence[Share] = (),
        access: AccessPolicy | None = None,
        store: Store | None = None,
        key_of: Callable[[str], str] | None = None,
        last_value_prefixes: Sequence[str] = ("X/",),
        dead_letter: str = DEAD_LETTER_QUEUE,
        on_failure: Callable[[Exception], None] | None = None,
        free_disk_bytes: Callable[[], int] | None = None,
        lifetimes: Lifetimes | None = None,
    ) -> None:
        self.name = f"nebula/{__version__}"
        self.urls: list[str] = []
        self.limits = limits or Limits()
        self.pages: dict[str, Page] = {}
        self.posts: dict[str, Post] = {}
        self.reads: dict[str, Post] = {}
        self.renewals: list[Callable[[], None]] = []
        self._listeners = tuple(listeners)
        self._policies = PolicyTable(policies)
        self._shares = tuple(shares)
        self._access = access
        self._key_of = key_of
        self._prefixes = tuple(last_value_prefixes)
        self._dead_letter = dead_letter
        self._writer = None if store is None else Writer(store, self._on_committed, self._on_store_failed)
        self._on_failure = on_failure
        # Without those that were refused and are still being told so: they take nobody's place.
        self._admission = Admission(
            self.limits.max_connections, self.limits.max_connections_per_address, self._evict
        )
        self.lifetimes = Lifetimes() if lifetimes is None else lifetimes
        self._open_listeners = OpenListeners(
            partial(Connection, self, None),
            self._admission,
            self.limits,
            self.pages,
            self.posts,
            self.reads,
            self.lifetimes,
        )
        self._connections: set[Connection] = set()
        self.in_flight: InFlightBytes[Connection] = InFlightBytes(self.limits.max_transit_bytes)
        self._relieves_soon = False
        self._disk = free_disk_bytes and DiskWatch(free_disk_bytes, self.limits.min_free_disk_bytes)
        self._clock: asyncio.TimerHandle | None = None
        self._is_working = False
        self.is_stopping = False
        self.ended: Counter[str] = Counter()
        self._departed = Traffic()
        self.one_walk = asyncio.Lock()
        self.started_at = 0.0
        # Until start.
        self.fairness: FairScheduler = None  # type: ignore[assignment]
        self.events: EventLog = None  # type: ignore[assignment]
        self.administration: Administration = None  # type: ignore[assignment]
        self.broker: Broker = None  # type: ignore[assignment]
        self.loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]
        self.time: Callable[[], float] = None  # type: ignore[assignment]

    async def start(self) -> None:
        """Take up what the store has kept, and listen.

        Raises:
            OSError: an address cannot be had; nothing listens then.
            StoreError: the store cannot be had.
        """
        self.loop = asyncio.get_running_loop()
        self.time = self.loop.time
        self.fairness = FairScheduler(self.loop, self._flush, self._work_now)
        kept = None if self._writer is None else await self._writer.start()
        self.broker = self._make_broker(kept)
        self.events = EventLog(self.broker.account)
        self.started_at = self.time()
        self.administration = Administration(self.broker, self.started_at)
        try:
            for listener in self._listeners:
                self.urls += await self._open_listeners.open(listener)
        except OSError:
            self._open_listeners.end()
            if self._writer is not None:
                await self._writer.close([])
            raise
        self._advance()

    def _make_broker(self, kept: Snapshot | None) -> Broker:
        wall_offset = time.time() - self.time()
        broker = Broker(
            self.limits,
            self._policies,
            shares=self._shares,
            # Chance comes in here and nowhere below.
            incarnation=secrets.token_hex(4) if kept is None else kept.incarnation,
            first_number=1 if kept is None else kept.first_number,
            access=self._access,
            journal=None if kept is None else Journal(wall_offset),
            wall_offset=wall_offset,
            last_value_prefixes=self._prefixes,
            key_of=self._key_of,
            dead_letter=self._dead_letter,
        )
        if kept is not None:
            broker.restore(kept, self.time())
        return broker

    def reload(self, load_grants: Callable[[], Grants | None] | None = None) -> None:
        """Reload rights, certificates, deny lists, users and token keys.

        Connections stay, except those whose certificate is denied now, or whose user, passcode or key is
        gone.

        What cannot be used stays as it was, and keeps nothing else from being taken up.

        Args:
            load_grants: reads the rights; None: they stay.

        Raises:
            SettingsError: files that cannot be used, a line for each.
        """
        now = self.time()
        renewals = [*self.renewals, *(renew for each in self._listeners for renew in each.renewals)]
        if load_grants is not None:
            renewals.insert(0, lambda: self.broker.review(load_grants(), now))
        problems = []
        for renew in renewals:
            try:
                renew()
            except SettingsError as error:
                problems.append(str(error))
        self.lifetimes.review(now)
        self.work(now)
        if problems:
            raise SettingsError("\n".join(problems))

    def close_listeners(self) -> None:
        """Let nobody in any more; who is there stays. The begin of a stop that waits for other things first.

        By HTTP pages are answered until `stop` is done: `/readyz` says that the broker is stopping.
        """
        self._open_listeners.close()

    async def stop(self, drain_seconds: float | None = None) -> None:
        """Bring what was accepted to its end, then end all connections with an ERROR. Idempotent.

        Nothing more is read or dispatched. RECEIPTs that wait for the store are said when it has their
        batch, and what was told to a peer is written to it before its ERROR.

        Args:
            drain_seconds: how long peers may take to read that; None: as the limits say. Who is slower
                is cut off half a second later. The store has what is left of it, or two seconds.

        Raises:
            StoreError: the store could not write what there was; `StoreStuck` where its disk hangs.
        """
        seconds = self.limits.drain_seconds if drain_seconds is None else drain_seconds
        until = self.time() + seconds
        self.close_listeners()
        self.is_stopping = True
        for connection in self._connections:
            connection.rest_for_good()
        await self._until(lambda: self._is_drained, seconds)
        self._end_all(_STOPPING)
        await self._until(
            lambda: not (self._connections or self._open_listeners.have_handshakes), _STOP_SECONDS
        )
        for connection in list(self._connections):
            connection.abort()
        self.events.flush()
        if self._clock is not None:
            self._clock.cancel()
        try:
            if self._writer is not None:
                self.broker.standing.close()
                assert self.broker.journal is not None
                left = max(until - self.time(), _STORE_SECONDS)
                await self._writer.close(self.broker.journal.take()[1], left)
        finally:
            self._open_listeners.end()

    @property
    def _is_drained(self) -> bool:
        return not self.broker.waiting and all(each.is_drained for each in self._connections)

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait for it, but no longer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition():
                    await asyncio.sleep(0.01)

    def admit(self, connection: Connection, address: str | None) -> str | None:
        """Count a connection in, from this address of a peer; why it is to be ended, or None."""
        self._connections.add(connection)
        if self.is_stopping:
            return _STOPPING  # it was being accepted when the doors were closed
        return self._admission.enter(connection, address)

    def note_known(self, connection: Connection) -> None:
        """The peer has authenticated: from now on the core counts its connection."""
        self._admission.know(connection, has_share=connection.principal != ANONYMOUS)

    def note_parting(self, connection: Connection) -> None:
        """It is at its end, and stays only until the peer has read why."""
        self._admission.part(connection)

    def _evict(self, guest: object) -> None:
        """Close a connection that is leaving or has not authenticated, to make room for a new one."""
        if not self._open_listeners.end_handshake(guest):
            assert isinstance(guest, Connection)
            guest.abort()

    def dismiss(self, connection: Connection) -> None:
        """Count it out."""
        self._connections.discard(connection)
        self.lifetimes.end(connection)
        self._departed.add(connection.traffic)
        self._admission.leave(connection)

    @property
    def connection_count(self) -> int:
        """Connections at this moment."""
        return len(self._connections)

    @property
    def traffic(self) -> Traffic:
        """Of all connections since the start."""
        total = Traffic()
        for each in (self._departed, *(connection.traffic for connection in self._connections)):
            total.add(each)
        return total

    @property
    def outbox_bytes(self) -> int:
        """What connections have been told, and the transports do not have yet."""
        return sum(connection.outbox_bytes for connection in self._connections)

    @property
    def commits(self) -> Commits | None:
        """What the store has taken; None: there is none."""
        return None if self._writer is None else self._writer.commits

    async def read_page(self, request: PageRequest) -> list[StoredMessage]:
        """What lies on disk of a deep queue, for looking at it. Where something does, there is a store."""
        assert self._writer is not None
        page: asyncio.Future[list[StoredMessage]] = self.loop.create_future()
        self._writer.read(request, lambda _, rows: None if page.done() else page.set_result(rows))
        return await page

    @property
    def not_ready(self) -> str | None:
        """Why nobody new should be sent here now; None: it is ready."""
        if self._writer is not None and self._writer.has_failed:
            return "the store has failed"
        if self._listeners and not self._open_listeners.are_open:
            return "it is stopping"
        return "the disk is nearly full" if self.broker.account.is_disk_low else None

    def work(self, now: float) -> None:
        """Do what the core decided. Called after every input."""
        if self._is_working:
            return
        self._is_working = True
        written_bytes = 0
        try:
            take_work = self.broker.take_work
            work = take_work(now)
            while work.dirty or work.resumed or work.pages:
                for request in work.pages:
                    self._read(request)
                for session in work.dirty:
                    outbox_bytes = session.outbox_bytes
                    if outbox_bytes >= LARGE_BYTES:
                        if self.fairness.defers(session.connection, written_bytes):
                            continue
                        written_bytes += outbox_bytes
                    self._flush(session.connection, now)
                for session, in_vain in work.resumed:
                    session.connection.go_on(now, in_vain=in_vain)
                work = take_work(now)
        finally:
            self._is_working = False
        journal = self.broker.journal
        # A message that was dropped before it was written leaves no row, but its RECEIPT still waits, and so
        # do messages behind it.
        if journal is None or self._writer is None:
            return
        if not journal.is_empty or self.broker.awaiting.is_any:
            self._writer.write(journal)

    def _read(self, request: PageRequest) -> None:
        assert self._writer is not None, "only what the store has is on disk alone"
        self._writer.read(request, self._on_page)

    def _work_now(self) -> None:
        self.work(self.time())

    def _flush(self, connection: Connection, now: float) -> None:
        try:
            connection.flush(now)
        except Exception:  # a fault at one peer must not harm the others
            connection.crash()

    def _on_committed(self, batch: int) -> None:
        now = self.time()
        self.broker.committed(batch, now)
        self.work(now)

    def _on_page(self, request: PageRequest, rows: list[StoredMessage]) -> None:
        now = self.time()
        following = self.broker.page_after(request, rows)
        if following is not None:
            self._read(following)
        self.broker.take_page(request, rows, now)
        self.work(now)

    def _on_store_failed(self, error: Exception) -> None:
        _log.critical("store failed", error=str(error))
        self._end_all("the broker cannot keep messages")
        if self._on_failure is not None:
            self._on_failure(error)

    def _end_all(self, reason: str) -> None:
        # Nobody gets what another one gives back: it would go from one to the next, and each would
        # count as an attempt that failed.
        for session in self.broker.sessions.values():
            session.is_choked = True
        for connection in list(self._connections):
            connection.end(reason)

    def _advance(self) -> None:
        now = self.time()
        if self._disk is not None and self._disk.look(now):
            self.broker.account.note_disk(self._disk.room_bytes, is_low=self._disk.is_low)
        self.broker.advance(now)
        self.lifetimes.advance(now)
        self.administration.advance(now)
        self.work(now)
        self.events.advance(now)
        self._relieve()
        self._clock = self.loop.call_later(_ADVANCE_SECONDS, self._advance)

    def note_ended(self, reason: str) -> None:
        """A peer is ended for something that lies outside its frames."""
        self.ended[reason.partition(":")[0]] += 1

    def note_blocked(self, unwritten_bytes: int) -> None:
        """A connection does not keep up, with so much at once on its way: it may be too much of all."""
        if self.in_flight.grows_too_fast(unwritten_bytes) and not self._relieves_soon:
            self._relieves_soon = True
            self.loop.call_soon(self._relieve)

    def _relieve(self) -> None:
        self._relieves_soon = False
        for connection in self.in_flight.excess(self.time()):
            connection.give_way()
