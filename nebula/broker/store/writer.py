"""Writer of batches and reader of pages, on threads next to the loop.

Group commit. A commit waits for the disk, for a millisecond or for a second, and waits no longer for a
thousand rows than for one. So there is one batch on its way at a time, and everything that happens meanwhile
is gathered by the journal (`nebula.broker.core.journal`) and makes the next one. Nothing is delayed to make
batches larger: an idle broker writes each change at once, a busy one shares each commit among all changes
that waited for it.

Two threads, since a page must not wait for the disk to sync, nor a RECEIPT for a page. The store has no
queue of its own: the loop never hands over a second batch before the first is done, so that memory is bounded
by what the journal holds (`backlog_bytes`).

A failure ends all of it. What a failed batch promised cannot be known to hold, so nothing is written or read
after it, and the shell stops the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from nebula.broker.core.journal import Journal
from nebula.broker.core.storage import PageRequest, StoredMessage
from nebula.broker.core.tables import Write
from nebula.broker.store.commits import Commits
from nebula.broker.store.store import Snapshot, Store
from nebula.errors import StoreError


class StoreStuck(StoreError):
    """The disk hangs. A thread that waits for it cannot be ended, so the process has to be killed."""


class Writer:
    """Hands batches to a store, off the loop.

    Args:
        store: belongs to the writer from `start` to `close`.
        on_committed: called on the loop with the number of each batch that is durable.
        on_failed: called on the loop, once, when a batch could not be written, or a page could not be read.
            Nothing is written or read after it.

    Attributes:
        commits: counts commits.
        has_failed: whether writing or reading has failed: nothing is written or read any more.
    """

    def __init__(
        self,
        store: Store,
        on_committed: Callable[[int], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        self._store = store
        self._on_committed = on_committed
        self._on_failed = on_failed
        # One thread each, so that calls of one kind never overlap, as `Store` requires.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._page_thread = ThreadPoolExecutor(1, thread_name_prefix="store-pages")
        self.commits = Commits()
        # Whose changes are written when the batch under way is done.
        self._journal: Journal | None = None
        self._writing: asyncio.Future[None] | None = None
        self._reading: set[asyncio.Future[list[StoredMessage]]] = set()
        self.has_failed = False
        self._is_closed = False

    async def start(self) -> Snapshot:
        """Load everything that was stored.

        Raises:
            StoreError: the store cannot be opened.
        """
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._store.load)
        except BaseException:
            # Not waited for: after a cancellation the thread may still be reading.
            self._thread.shutdown(wait=False)
            raise

    def write(self, journal: Journal) -> None:
        """Write the journal's changes, even if it has none, now or when the batch under way is done."""
        self._journal = journal
        # Group commit: what comes while a batch is under way stays in the journal, and makes the next one.
        if self._writing is not None or self.has_failed or self._is_closed:
            # `_on_done` writes what is gathered until then.
            return
        # `take` begins the journal's next batch, and later RECEIPTs wait for that one.
        batch, writes = journal.take()
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(self._thread, self._store.apply, writes)
        # A callback and no task: only `_on_done` waits for the batch.
        self._writing.add_done_callback(partial(self._on_done, batch, len(writes), loop.time()))

    def read(self, request: PageRequest, on_page: Callable[[PageRequest, list[StoredMessage]], None]) -> None:
        """Read a page, after those that were asked for earlier.

        Args:
            on_page: called on the loop with the request and what was found; never once `close` has begun.
        """
        if self.has_failed or self._is_closed:
            return
        loop = asyncio.get_running_loop()
        reading = loop.run_in_executor(self._page_thread, self._store.page, request)
        self._reading.add(reading)
        reading.add_done_callback(partial(self._on_read, request, on_page))

    async def close(self, last: Sequence[Write], seconds: float | None = None) -> None:
        """Write the last batch, and end the store's run; the end is a clean one unless writing has failed.
        Idempotent.

        Nothing else is written afterwards.

        Args:
            seconds: how long that may take; None: no limit.

        Raises:
            StoreStuck: it was not done by then. The threads go on for as long as the disk hangs.
            StoreError: the rest could not be written.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            # If the disk hangs, the wait is cancelled but the thread goes on. Python would wait for it at
            # exit, so the program has to be killed (`StoreStuck`).
            async with asyncio.timeout(seconds):
                await self._close(last)
        except TimeoutError:
            raise StoreStuck(f"the disk has not taken the last batch within {seconds:.1f} s") from None

    async def _close(self, last: Sequence[Write]) -> None:
        # Pages that wait are not read any more. The one that is being read is waited for below.
        self._page_thread.shutdown(wait=False, cancel_futures=True)
        # The store must not close while a page is being read. The futures of cancelled pages end at once.
        under_way: list[asyncio.Future[Any]] = [*self._reading]
        if self._writing is not None:
            under_way.append(self._writing)
        if under_way:
            await asyncio.wait(under_way)
        loop = asyncio.get_running_loop()
        try:
            # After a failure nothing is written: the last batch may rely on one that is lost.
            if last and not self.has_failed:
                # On the thread of all batches, and therefore after them.
                await loop.run_in_executor(self._thread, self._store.apply, last)
        except Exception:
            await self._end_run()
            raise
        await self._end_run()

    async def _end_run(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._store.close)
        self._thread.shutdown(wait=False)

    def _on_done(self, batch: int, rows: int, begun: float, writing: asyncio.Future[None]) -> None:
        self._writing = None
        if writing.cancelled():
            return
        error = writing.exception()
        if error is not None:
            self._fail(error)
            return
        self.commits.note(rows, asyncio.get_running_loop().time() - begun)
        self._on_committed(batch)
        # What was gathered during this commit, unless `_on_committed` has had it written already.
        if self._journal is not None and not self._journal.is_empty:
            self.write(self._journal)

    def _on_read(
        self,
        request: PageRequest,
        on_page: Callable[[PageRequest, list[StoredMessage]], None],
        reading: asyncio.Future[list[StoredMessage]],
    ) -> None:
        self._reading.discard(reading)
        # After `close` has begun, the core must not get pages.
        if reading.cancelled() or self._is_closed:
            return
        error = reading.exception()
        if error is not None:
            self._fail(error)
        elif not self.has_failed:
            on_page(request, reading.result())

    def _fail(self, error: BaseException) -> None:
        # Only the first failure: a batch and a page may fail for the same reason.
        if not self.has_failed:
            self.has_failed = True
            self._on_failed(error if isinstance(error, Exception) else RuntimeError(str(error)))
