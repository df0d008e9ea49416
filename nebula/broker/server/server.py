"""The asyncio server of the broker: its listeners, its start and its stop.

It runs on one loop (uvloop where there is one) and never waits for a peer. What exists from start to stop is
in `runtime`.

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
from collections.abc import Callable, Sequence

from nebula.broker.core.access import AccessPolicy, Grants
from nebula.broker.core.account import Account
from nebula.broker.core.broker import Broker
from nebula.broker.core.context import CoreContext
from nebula.broker.core.fixed_limits import STOP_SECONDS
from nebula.broker.core.journal import Journal
from nebula.broker.core.limits import Limits
from nebula.broker.core.messages import Numbers, kinds_by_prefix
from nebula.broker.core.policies import DestinationPolicy, PolicyTable
from nebula.broker.core.shares import Share
from nebula.broker.operations.administration import Steps
from nebula.broker.operations.events import EndReason
from nebula.broker.operations.flows import Flows
from nebula.broker.operations.status import ServerFacts, broker_status
from nebula.broker.operations.views import BrokerStatus
from nebula.broker.server.admission import Admission
from nebula.broker.server.connection import Connection
from nebula.broker.server.http_posts import Page, Post
from nebula.broker.server.lifetimes import Lifetimes
from nebula.broker.server.listener import Listener
from nebula.broker.server.open_listeners import OpenListeners
from nebula.broker.server.runtime import STOPPING, Runtime
from nebula.broker.store.disk import DiskWatch
from nebula.broker.store.restoring import restore
from nebula.broker.store.store import Snapshot, Store
from nebula.broker.store.writer import Writer
from nebula.errors import SettingsError
from nebula.headers import DEAD_LETTER_QUEUE
from nebula.logs import get_logger
from nebula.version import __version__

__all__ = ["Listener", "Server"]

_log = get_logger("nebula.broker")

# The store has at least this long to write the last batch: enough for a busy disk, not for one that hangs.
_STORE_SECONDS = 2.0


class Server:
    """A broker with its listeners.

    Args:
        listeners: where to listen; may be empty for a broker that is only embedded.
        limits: what peers may use.
        policies: what differs for single destinations.
        shares: what single principals may use, by pattern.
        access: the rights; None: every peer may do everything except with reserved names.
        store: keeps messages over a restart; None: all messages are lost then.
        key_of: the key of a last value, where several destinations may share one (D.30).
        last_value_prefixes: prefixes of last-value destinations.
        dead_letter: name of the queue for dead letters.
        on_failure: called once, with the reason, when the broker cannot go on. End the program then.
        free_disk_bytes: returns the free space on the store's disk; None: it is not watched.
        lifetimes: how long connections may live; None: as long as their proof of identity is valid.
        counts_flows: count messages by sender and destination, for the map of the console.

    Attributes:
        urls: where it listens, from `start` on.
        places: the same, each URL with its listener.
        pages: what its HTTP listeners reply, by path. Filled before `start`.
        console: what those with a console reply in addition. Likewise.
        posts: handlers of POST requests by the beginning of the path, on listeners that take calls. Likewise.
        reads: handlers of GET requests that need the sender's identity. Likewise.
        renewals: what reads files again at a reload, in addition to the listeners' own.
        lifetimes: ends connections whose proof of identity is no longer valid.
        flows: counts of messages by sender and destination; None: they are not counted.
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
        counts_flows: bool = False,
    ) -> None:
        self.urls: list[str] = []
        self.places: list[tuple[str, Listener]] = []
        self.limits = limits or Limits()
        self.pages: dict[str, Page] = {}
        self.console: dict[str, Page] = {}
        self.posts: dict[str, Post] = {}
        self.reads: dict[str, Post] = {}
        self.renewals: list[Callable[[], None]] = []
        self.lifetimes = Lifetimes() if lifetimes is None else lifetimes
        self._listeners = tuple(listeners)
        self._policies = PolicyTable(policies)
        self._shares = tuple(shares)
        self._access = access
        self._key_of = key_of
        self.flows = Flows() if counts_flows else None
        self._prefixes = tuple(last_value_prefixes)
        self._dead_letter = dead_letter
        self._writer = None if store is None else Writer(store, self._on_committed, self._on_store_failed)
        self._on_failure = on_failure
        self._disk = free_disk_bytes and DiskWatch(free_disk_bytes, self.limits.min_free_disk_bytes)
        # Connections that were refused and wait for their ERROR to be read do not count here.
        self._admission = Admission(
            self.limits.max_connections, self.limits.max_connections_per_address, self._evict
        )
        self._open_listeners = OpenListeners(
            lambda listener: Connection(self.runtime, None, listener),
            self._admission,
            self.limits,
            self.pages,
            self.console,
            self.posts,
            self.reads,
            self.lifetimes,
            lambda: self.runtime.events,
        )
        self._runtime: Runtime | None = None

    @property
    def runtime(self) -> Runtime:
        """The runtime, from `start` on.

        Raises:
            RuntimeError: it has not started.
        """
        if self._runtime is None:
            raise RuntimeError("the server has not started")
        return self._runtime

    @property
    def broker(self) -> Broker:
        """The core, from `start` on."""
        return self.runtime.broker

    async def start(self) -> None:
        """Load what the store has kept, and listen.

        Raises:
            OSError: an address cannot be used; no listener is open then.
            StoreError: the store cannot be opened.
        """
        # Before the listeners: a peer that connects must find its queues and sessions as they were.
        kept = None if self._writer is None else await self._writer.start()
        runtime = self._runtime = Runtime(
            self._make_broker(kept),
            name=f"nebula/{__version__}",
            writer=self._writer,
            admission=self._admission,
            lifetimes=self.lifetimes,
            disk=self._disk or None,
        )
        try:
            for listener in self._listeners:
                urls = await self._open_listeners.open(listener)
                self.urls += urls
                self.places += [(url, listener) for url in urls]
        except OSError:
            self._open_listeners.end()
            if self._writer is not None:
                # A clean end saves the next start the check of the store.
                await self._writer.close([])
            raise
        runtime.advance()

    def _make_broker(self, kept: Snapshot | None) -> Broker:
        now = asyncio.get_running_loop().time()
        # The core uses monotonic time. The offset to the wall clock is taken once, so that changing the clock
        # does not move any expiry.
        wall_offset = time.time() - now
        context = CoreContext(
            limits=self.limits,
            policies=self._policies,
            access=self._access or AccessPolicy(),
            account=Account(self.limits, self._shares),
            journal=None if kept is None else Journal(wall_offset),
            numbers=Numbers(1 if kept is None else kept.first_number),
            wall_offset=wall_offset,
            kinds=kinds_by_prefix(self._prefixes),
            key_of=self._key_of,
            dead_letter=self._dead_letter,
            # Chance comes in here and nowhere below.
            # It begins every message-id (D.20), so runs without a store need different ones too.
            incarnation=secrets.token_hex(4) if kept is None else kept.incarnation,
            note_flow=None if self.flows is None else self.flows.note,
        )
        broker = Broker(context)
        if kept is not None:
            restore(broker, kept, now)
        return broker

    def reload(self, load_grants: Callable[[], Grants | None] | None = None) -> None:
        """Reload rights, certificates, deny lists, users and token keys.

        Connections stay, except those whose certificate is denied now, or whose user, passcode or key is
        gone. A file that cannot be used leaves its settings as they were; the other files are still read.

        Args:
            load_grants: reads the rights; None: they stay.

        Raises:
            SettingsError: files that cannot be used, a line for each.
        """
        runtime = self.runtime
        now = runtime.time()
        renewals = [*self.renewals, *(renew for each in self._listeners for renew in each.renewals)]
        if load_grants is not None:
            # Rights first, so that the connections below are judged by the new ones.
            renewals.insert(0, lambda: self.broker.review(load_grants(), now))
        problems = []
        for renew in renewals:
            try:
                renew()
            except SettingsError as error:
                problems.append(str(error))
        # Even if a file failed: the others were read, and count.
        self.lifetimes.review(now)
        runtime.pump.work(now)
        if problems:
            raise SettingsError("\n".join(problems))

    def close_listeners(self) -> None:
        """Accept no more connections; those that are open stay. The first step of a stop that waits for other
        things too.

        HTTP pages are served until `stop` is done: `/readyz` says that the broker is stopping.
        """
        self._open_listeners.close()

    async def stop(self, drain_seconds: float | None = None) -> None:
        """Finish what was accepted, then end all connections with an ERROR. Idempotent.

        Nothing more is read or dispatched. RECEIPTs that wait for the store are sent when it has their batch,
        and what a peer was told is written to it before its ERROR.

        Args:
            drain_seconds: how long peers may take to read that; None: as the limits say. Slower ones are cut
                off half a second later. The store has what is left of it, or two seconds.

        Raises:
            StoreError: the store could not write what there was; `StoreStuck` where its disk hangs.
        """
        runtime = self.runtime
        seconds = self.limits.drain_seconds if drain_seconds is None else drain_seconds
        # One deadline for peers and disk together, since a supervisor waits for both.
        until = runtime.time() + seconds
        self.close_listeners()
        runtime.is_stopping = True
        # Rest first, end later: nothing new is accepted while RECEIPTs for the rest are on their way.
        for connection in runtime.connections:
            connection.rest_for_good()
        await _until(lambda: runtime.is_drained, seconds)
        runtime.end_all(STOPPING, EndReason.SHUTDOWN)
        await _until(lambda: not (runtime.connections or self._open_listeners.have_handshakes), STOP_SECONDS)
        for connection in list(runtime.connections):
            connection.abort()
        runtime.events.flush()
        runtime.stop_clock()
        try:
            if self._writer is not None:
                self.broker.durable_sessions.close()
                assert self.broker.journal is not None
                # The disk has what the peers have left of the time.
                left = max(until - runtime.time(), _STORE_SECONDS)
                await self._writer.close(self.broker.journal.take()[1], left)
        finally:
            self._open_listeners.end()

    @property
    def not_ready(self) -> str | None:
        """Why new clients should go elsewhere now; None: the broker is ready."""
        if self.runtime.has_store_failed:
            return "the store has failed"
        if self._listeners and not self._open_listeners.are_open:
            return "it is stopping"
        return "the disk is nearly full" if self.broker.account.is_disk_low else None

    def status(self) -> Steps[BrokerStatus]:
        """The status now. Destinations are counted in steps: hand it to `Runtime.walk`."""
        runtime = self.runtime
        totals = yield from runtime.administration.totals()
        facts = ServerFacts(
            uptime_seconds=runtime.time() - runtime.started_at,
            not_ready=self.not_ready,
            connections=len(runtime.connections),
            traffic=runtime.traffic,
            outbox_bytes=runtime.outbox_bytes,
            events=runtime.events.counts,
            ended=runtime.ended,
            commits=runtime.commits,
        )
        return broker_status(self.broker, runtime.administration, totals, facts)

    def _evict(self, guest: object) -> None:
        """Close a connection that is leaving or has not authenticated, to make room for a new one."""
        if not self._open_listeners.end_handshake(guest):
            assert isinstance(guest, Connection)
            guest.evict()

    def _on_committed(self, batch: int) -> None:
        self.runtime.committed(batch)

    def _on_store_failed(self, error: Exception) -> None:
        _log.critical("store failed", error=str(error))
        self.runtime.store_failed()
        if self._on_failure is not None:
            self._on_failure(error)


async def _until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for a condition, at most this long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not condition():
                # Polled, because the condition changes in several places and a stop is rare.
                await asyncio.sleep(0.01)
