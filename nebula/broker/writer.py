"""The store's thread: one batch at a time, while the loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from nebula.broker.journal import Journal
from nebula.broker.store import Snapshot, Store, Write


class Writer:
    """Hands batches to a store, off the loop. What comes meanwhile is the next batch (group commit).

    Args:
        store: belongs to the writer from `start` to `close`.
        on_committed: called on the loop with the number of each batch that is durable.
        on_failed: called on the loop, once, when one could not be made so. Nothing is written after it.
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
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._journal: Journal | None = None
        self._writing: asyncio.Future[None] | None = None
        self._has_failed = False

    async def start(self) -> Snapshot:
        """Everything that was kept.

        Raises:
            StoreError: it cannot be had.
        """
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._store.load)
        except BaseException:
            self._thread.shutdown(wait=False)
            raise

    def write(self, journal: Journal) -> None:
        """Write what the journal has, be it nothing, now or as soon as the batch at hand is done."""
        self._journal = journal
        if self._writing is not None or self._has_failed:
            return
        batch, writes = journal.take()
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(self._thread, self._store.apply, writes)
        self._writing.add_done_callback(partial(self._on_done, batch))

    async def close(self, last: Sequence[Write]) -> None:
        """Write what there still is, and end the store's run well. Idempotent."""
        loop = asyncio.get_running_loop()
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if not self._has_failed:
            if last:
                await loop.run_in_executor(self._thread, self._store.apply, last)
            await loop.run_in_executor(self._thread, self._store.close)
            self._has_failed = True  # nothing is written from now on
        self._thread.shutdown(wait=False)

    def _on_done(self, batch: int, writing: asyncio.Future[None]) -> None:
        self._writing = None
        if writing.cancelled():
            return
        error = writing.exception()
        if error is not None:
            self._has_failed = True
            self._on_failed(error if isinstance(error, Exception) else RuntimeError(str(error)))
            return
        self._on_committed(batch)
        if self._journal is not None and not self._journal.is_empty:
            self.write(self._journal)
