"""Recorder: writes the messages of a broker into Avro files, and ACKs them once the files are synced.

The invariant is the order of four steps. Each of them may be the last one before a power cut:

1. Append. Messages come into the intake, which bounds their bytes and so, by missing ACKs, what the broker
   sends ahead. A thread sorts them by schema and appends each to its
   file.
2. Sync. After `sync_seconds`, or `sync_messages`, the files are synced (`fsync`), and then the ledger
   gets one line: the ids of all messages of this group, and the length of each file. A datum counts if
   its line is there. Files that are longer than the ledger says are truncated at the next start.
3. ACK. Only then are the messages ACKed (`ack:client`: one ACK for all before it), with a receipt.
4. Confirm. At the RECEIPT the ledger forgets the ids of the group: the broker will not send them again.

A crash before step 2 loses nothing, because no ACK was sent: the broker sends the messages again. A crash
after it doubles nothing, because the ids of redelivered messages are in the ledger, and they are ACKed
without being written again. So each message is in the files exactly once if the broker redelivers with
the same message ids; where it does not, `nebula.record.lossless` says what can be lost or doubled.

One sync serves many messages (group commit): an `fsync` takes milliseconds however little it writes.
Blocking I/O runs in a worker thread; receiving, ACKing and the clock stay in the event loop. A full disk
is not an error but a pause: nothing is ACKed, the broker keeps the messages, and the write is tried again
each second.

A finished file appears by a rename, with all its data, so that readers never see one that grows.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread

from nebula.avro.schema import Schema
from nebula.destinations import destination_named
from nebula.errors import ConnectionLost, NebulaError, SettingsError
from nebula.logs import get_logger
from nebula.record.disk import SyncFailed, is_full
from nebula.record.identity import id_of
from nebula.record.intake import Batch, Intake
from nebula.record.ledger import MAX_IN_DOUBT
from nebula.record.lossless import notes_on
from nebula.record.parts import Rotation
from nebula.record.schemas import SchemaFinder, ask_broker
from nebula.record.sorting import Sorter
from nebula.record.status import Rate, RecorderState, RecorderStatus, write_status
from nebula.record.store import RecordStore, state_folder
from nebula.rpc.client.reconnect import Connections, ConnectionState, urls_of
from nebula.rpc.client.resubscribe import options_for
from nebula.rpc.wire.brokers import NEBULA, brand_of
from nebula.stomp.client import AckMode, Receipt, StompClient
from nebula.stomp.client.messages import SubscribeOptions
from nebula.stomp.client.tls import TlsOptions

__all__ = ["Recorder", "Recording", "Rotation"]

T = TypeVar("T")

_log = get_logger("nebula.record")

# How often files are looked at whose time may have come, and the status is written.
_TICK_SECONDS: Final = 1.0

# How often a full disk is tried again.
_FULL_SECONDS: Final = 1.0

_SUBSCRIBE_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.02

_MOST_PREFETCHED: Final = 100_000

# What the broker may take at the end to say that it has our ACKs.
_LAST_RECEIPTS_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Recording:
    """What is recorded, and how.

    Attributes:
        destinations: queues, topics, last values; or patterns of them. `orders` is `/queue/orders`.
        into: the folder of the files.
        durable: the name of durable subscriptions to topics, and of the session that they belong to. None:
            what is sent to topics while the recorder is away is not recorded.
        instance: the recorder's name among those of the folder.
        codec: of the files: `deflate`, `zstandard` or `null`.
        rotation: when files are closed.
        sync_seconds: how long a message waits for others that are synced with it.
        sync_messages: this number of waiting messages is synced at once.
        prefetch: messages that the broker may send ahead of our ACKs.
        schemas: a folder of `.avsc` files, which is searched before the broker is asked.
        bare: schemas of destinations whose bodies are data without an envelope.
        idle_seconds: it ends after this time without a message while connected; None: it does not.

    Raises:
        SettingsError: with such values nothing can be recorded.
    """

    destinations: Sequence[str]
    into: Path
    durable: str | None = None
    instance: str = "recorder"
    codec: str = "deflate"
    rotation: Rotation = field(default_factory=Rotation)
    sync_seconds: float = 0.25
    sync_messages: int = 10_000
    prefetch: int = 50_000
    schemas: Path | None = None
    bare: dict[str, Schema] = field(default_factory=dict)
    idle_seconds: float | None = None

    def __post_init__(self) -> None:
        # The dataclass is frozen; names get their normal form here, once.
        object.__setattr__(self, "destinations", [_named(one) for one in self.destinations])
        object.__setattr__(self, "bare", {_named(one): schema for one, schema in self.bare.items()})
        if not self.destinations or len(set(self.destinations)) < len(self.destinations):
            raise SettingsError("destinations: name one or more, each once")
        if unknown := self.bare.keys() - set(self.destinations):
            raise SettingsError(f"bare: {', '.join(sorted(unknown))} is not recorded")
        if not 1 <= self.prefetch <= _MOST_PREFETCHED:
            raise SettingsError(f"prefetch is {self.prefetch}: 1 to {_MOST_PREFETCHED:,} is wanted")
        if self.sync_messages < 1 or not self.sync_seconds >= 0:
            raise SettingsError("sync_messages is 1 or more, and sync_seconds 0 or more")


def _named(destination: str) -> str:
    try:
        return destination_named(destination, takes_globs=True)
    except ValueError as error:
        raise SettingsError(str(error)) from None


class Recorder:
    """Records destinations of a broker into Avro container files: each message that it ACKs, once.

    Queues and durable subscriptions to topics are recorded without loss: a message is ACKed when the file
    that holds it is synced, and not before; a message that is delivered again because its ACK was lost is
    recognised by its id and dropped. Files become visible when they are complete, by a rename. Of last values
    only the latest are recorded; to have them all, record a queue that gets a copy of each (`copy_to`).

    It reconnects without limit. While the disk is full it takes no messages and reports that, and goes on
    when there is room. Memory is bounded: about 64 MiB of bodies, and `prefetch` messages.

    Args:
        recording: what to record, and how.
        url: of the broker, or of several that share their queues; see `StompClient`.
        tls: for `stomps://` and `wss://`.
        on_status: called with the status, about once a second and at the end, on the loop's thread. It must
            not wait.

    Raises:
        SettingsError: an address cannot be used, or a schema.

    Attributes:
        status: the current status. Read-only.
    """

    def __init__(
        self,
        recording: Recording,
        url: str | Sequence[str] | None = None,
        *,
        tls: TlsOptions | None = None,
        on_status: Callable[[RecorderStatus], None] = lambda _: None,
    ) -> None:
        self._recording, self._url, self._tls, self._on_status = recording, url, tls, on_status
        self.status = RecorderStatus(recording.instance, destinations=list(recording.destinations))
        # Apart from the data: readers skip folders whose names begin with a dot.
        self._state_folder = state_folder(recording.into, recording.instance)
        self._finder = SchemaFinder(recording.schemas, self._ask)
        self._intake = Intake(recording.sync_messages)
        self._rate = Rate(time.monotonic)
        # One thread for all blocking work, so that the store needs no locks and its calls keep their order.
        self._thread = anyio.CapacityLimiter(1)
        self._brand = NEBULA
        self._unconfirmed: Counter[int] = Counter()  # receipts that are awaited, by group
        self._confirmed: list[int] = []
        self._is_stopping = self._was_recording = self._is_live = False
        self._no_room = ""
        self._failure: NebulaError | None = None
        self._next_tick = self._last_arrival = 0.0
        self._connections = Connections(self._connect, urls_of(url), self._live, on_state=self._note_state)

    def stop(self) -> None:
        """Let `run` return when all received messages are recorded. Idempotent; on the loop's thread."""
        self._is_stopping = True
        self._intake.wake()

    async def run(self, on_recording: Callable[[], None] = lambda: None) -> None:
        """Record until `stop`. Cancellation ends it at once; messages that were not ACKed are delivered
        again. Call it once.

        Args:
            on_recording: called once, when all subscriptions are made for the first time.

        Raises:
            SettingsError: the folder cannot be used.
            LedgerDamaged: the ledger in it does not have what was written.
            SyncFailed: the disk failed, and is not merely full: start again.
            ConnectFailed, Refused: no broker at the start, or it refuses a subscription.
        """
        self._on_recording = on_recording
        self._store = store = await self._in_thread(self._open)
        self.status.began, self.status.files = time.time(), len(store.recovered)
        try:
            # The status file is made now, so that a full disk can be reported later by a rename (`status`).
            await self._in_thread(self._tell)  # while there is room
            await self._run()
            if self._failure is None:
                await self._finish()
            if self._failure is not None:
                raise self._failure
        finally:
            self.status.state, self.status.failure = RecorderState.STOPPED, str(self._failure or "")
            # Shielded: also after a cancellation the last status is written and the lock is given back.
            with anyio.CancelScope(shield=True):
                await self._in_thread(self._tell)
                store.close()
            self._on_status(self.status)

    def _open(self) -> RecordStore:
        recording = self._recording
        return RecordStore(
            recording.into,
            Sorter(self._finder.find, recording.bare),
            instance=recording.instance,
            codec=recording.codec,
            rotation=recording.rotation,
            # Ids must not be forgotten while the broker may give their messages out again.
            max_in_doubt=max(MAX_IN_DOUBT, 3 * recording.prefetch * len(recording.destinations)),
        )

    async def _run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stay_connected, tasks.cancel_scope)
            try:
                await self._work()
            except NebulaError as error:
                self._failure = error
            except OSError as error:
                self._fail(error)
            # This ends `_stay_connected`, which cancels the group.
            self._connections.leave()

    async def _finish(self) -> None:
        try:
            self.status.files += len(await self._in_thread(self._store.finish))
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        self._failure = SyncFailed(f"{error.filename or self._recording.into}: {error.strerror}")
        self._failure.__cause__ = error

    async def _stay_connected(self, scope: anyio.CancelScope) -> None:
        try:
            await self._connections.run()
        except NebulaError as error:
            self._failure = error
        scope.cancel()

    # --- one connection ---

    def _connect(self, url: str | None) -> StompClient:
        return StompClient(url, client_id=self._recording.durable, tls=self._tls)

    @asynccontextmanager
    async def _live(self, stomp: StompClient) -> AsyncGenerator[None]:
        self._brand = brand_of(stomp.server)
        self._intake.attach(stomp)
        try:
            for destination in self._recording.destinations:
                await stomp.listen(destination, self._intake.on_message, **self._options(destination))
            self._begin()
            yield
        finally:
            self._intake.detach()
            # Their receipts were lost with the connection, so their ids stay in the ledger until they come
            # again.
            self._unconfirmed.clear()

    def _options(self, destination: str) -> SubscribeOptions:
        recording = self._recording
        options = SubscribeOptions(
            ack=AckMode.CLIENT,
            # The broker's prefetch window is what bounds messages without an ACK.
            headers={self._brand.prefetch_count: str(recording.prefetch)},
            timeout=_SUBSCRIBE_SECONDS,
        )
        if recording.durable is not None and not destination.startswith("/queue/"):
            # One name for each: a session's subscriptions have names of their own.
            options["durable"] = f"{recording.durable}.{destination}"
        return options_for(self._brand, options)

    def _begin(self) -> None:
        self._last_arrival = time.monotonic()
        self._is_live = True
        self._show()
        if not self._was_recording:
            self._was_recording = True
            recording = self._recording
            for note in notes_on(recording.destinations, recording.durable, self._brand):
                _log.warning("lossless recording ruled out", note=note)
            self._on_recording()

    def _note_state(self, state: ConnectionState) -> None:
        self._is_live = state is ConnectionState.CONNECTED
        self._show()

    # --- from the intake to the files ---

    async def _work(self) -> None:
        while True:
            is_due = await self._intake.wait(_TICK_SECONDS, self._recording.sync_seconds)
            is_last = self._is_stopping or self._is_idle()
            if is_due and (batch := self._intake.take()) is not None:
                if not await self._record(batch):
                    return
                self._last_arrival = time.monotonic()
            if time.monotonic() >= self._next_tick:
                # Also without messages, since files are closed by time.
                self._next_tick = time.monotonic() + _TICK_SECONDS
                # In this task, which also writes, so never between the store's `take` and its `sync`.
                await self._in_thread(partial(self._tick, self._take_confirmed()))
                self._on_status(self.status)
            if is_last:
                await self._await_receipts()
                return

    def _is_idle(self) -> bool:
        patience = self._recording.idle_seconds
        is_quiet = self.status.state is RecorderState.RECORDING and not len(self._intake)
        return patience is not None and is_quiet and time.monotonic() - self._last_arrival >= patience

    async def _record(self, batch: Batch) -> bool:
        """Write a batch, sync it, ACK it. False: the recorder stops, and there is no room for the batch."""
        write: Callable[[], int | None] = partial(self._write, batch, self._take_confirmed())
        # Tried again until there is room; meanwhile the broker keeps what we do not ACK.
        while True:
            try:
                group = await self._in_thread(write)
                break
            except OSError as error:
                if not is_full(error):
                    raise
                self._say_full(error)
            await self._in_thread(self._tell)
            self._on_status(self.status)
            if self._is_stopping:
                return False
            await anyio.sleep(_FULL_SECONDS)
            # The store has taken the batch and the confirmations: only the sync is left to try again.
            write = self._store.sync
        self._say_room()
        # Only now: the batch is on disk.
        self._ack(batch, group)
        # The connection may read as many bytes again.
        self._intake.done(batch)
        return True

    def _write(self, batch: Batch, confirmed: Sequence[int]) -> int | None:
        store = self._store
        store.confirm(confirmed)
        store.take(batch.messages, partial(id_of, brand=brand_of(batch.stomp.server)))
        return store.sync()

    def _ack(self, batch: Batch, group: int | None) -> None:
        status = self.status
        status.message_bytes += sum(len(message.body) for message, _ in batch.messages)
        if not self._intake.is_current(batch):
            return  # They come again, and are known.
        # In `client` mode the last one stands for all before it on its subscription.
        last = {message.subscription: message for message, _ in batch.messages}
        # Before the first of them: its receipt could be the last one that is awaited.
        if group is not None:
            self._unconfirmed[group] = len(last)
        # It may end any moment.
        with suppress(ConnectionLost):
            for message in last.values():
                message.ack(partial(self._confirm, group))

    def _confirm(self, group: int | None, _: Receipt) -> None:
        # A group has one RECEIPT for each subscription. It is missing here if the connection has ended since:
        # its messages may come again, so its ids stay in the ledger.
        if group is None or group not in self._unconfirmed:
            return
        self._unconfirmed[group] -= 1
        if not self._unconfirmed[group]:
            del self._unconfirmed[group]
            self._confirmed.append(group)

    def _take_confirmed(self) -> list[int]:
        confirmed, self._confirmed = self._confirmed, []
        return confirmed

    async def _await_receipts(self) -> None:
        # Ids without a receipt by then stay in the ledger, and the next run drops what comes again.
        with anyio.move_on_after(_LAST_RECEIPTS_SECONDS):
            while self._unconfirmed:
                await anyio.sleep(_LOOK_SECONDS)
        await self._in_thread(partial(self._store.confirm, self._take_confirmed()))

    # --- what is said ---

    def _say_full(self, error: OSError) -> None:
        if not self._no_room:
            _log.error("recording paused", folder=str(self._recording.into), reason=error.strerror)
        self._no_room = str(error)
        self._show()

    def _say_room(self) -> None:
        if self._no_room:
            self._no_room = ""
            self._show()
            _log.info("recording resumed", folder=str(self._recording.into))

    def _show(self) -> None:
        """Set the status: what keeps it from recording, the disk before the broker."""
        status = self.status
        if self._no_room:
            status.state, status.failure = RecorderState.FULL, self._no_room
        elif self._is_live:
            status.state, status.failure = RecorderState.RECORDING, ""
        else:
            status.state = RecorderState.CONNECTING
            status.failure = str(self._connections.last_failure or "")

    def _tick(self, confirmed: Sequence[int]) -> None:
        self._store.confirm(confirmed)
        finished = self._store.rotate()
        self.status.files += len(finished)
        self._tell()
        if finished:
            names = [str(path.relative_to(self._recording.into)) for path in finished]
            _log.info(
                "files closed", files=names, messages=self.status.messages, rate=round(self.status.rate)
            )

    def _tell(self) -> None:
        status, store = self.status, self._store
        status.messages, status.total, status.doubles = store.recorded, store.total, store.doubles
        status.waiting, status.in_doubt = len(self._intake), store.in_doubt
        status.rate = self._rate.tell(store.recorded)
        # For want of room this tells just that.
        with suppress(OSError):
            write_status(self._state_folder, status)

    def _ask(self, fingerprint: int) -> Schema | None:
        """On the worker's thread."""
        if not self._brand.has_verbs:
            return None
        # The client runs on the loop. The worker waits for it, and nothing is written meanwhile.
        return anyio.from_thread.run(ask_broker, self._url, self._tls, fingerprint)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(call, limiter=self._thread)
