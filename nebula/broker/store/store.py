"""Interface of a store: load, page, apply, close."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nebula.broker.core.storage import PageRequest, Snapshot, StoredMessage
from nebula.broker.core.tables import Write


class Store(Protocol):
    """Keeps messages and subscriptions over a restart.

    Order: `load` comes first and once, then any number of `apply` and `page`, then `close`.

    Threads: `load`, `apply` and `close` are called from one worker thread, never two at once. `page` is
    called from another, one at a time, while an `apply` may be running.

    Failure: any exception ends the broker. There is no retry, and only `close` is called afterwards.

    Ownership: what is returned belongs to the caller, and the store keeps no reference to it. Writes are
    immutable, and the sequence of an `apply` is not changed while it runs.

    `tests/broker/store/test_stores.py` tests this contract for every store.
    """

    def load(self) -> Snapshot:
        """Read everything except the later pages of deep queues. The run is counted durably before this
        returns.

        Raises:
            StoreError: the store cannot be read. The text says where, why and what to do.
        """
        ...

    def apply(self, writes: Sequence[Write]) -> None:
        """Make a batch durable, all or none. No effect if it is empty.

        When this returns, a crash does not undo it, and a `page` that begins now sees it. Of two writes to
        one row the later one counts.

        Raises:
            StoreError: the batch cannot be written. None of it takes effect.
        """
        ...

    def page(self, request: PageRequest) -> list[StoredMessage]:
        """Read part of a line, in order of number.

        Raises:
            StoreError: the page cannot be read.
        """
        ...

    def close(self) -> None:
        """End the run. It is a clean end (`Snapshot.is_clean` of the next run) unless something has failed.

        Idempotent, and allowed without a `load`.

        Raises:
            StoreError: the end cannot be written. Batches that were applied are safe.
        """
        ...
