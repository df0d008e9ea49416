"""Interface of a store: load, page, apply, close; and the snapshot that a load gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from nebula.broker.core.storage import KeptLine, PageRequest, StoredMessage
from nebula.broker.core.tables import DuplicateRow, PostponedRow, SessionRow, SubscriptionRow, Write

# Message numbers of one run: enough for half a year of 300,000 messages a second. The store's 63 bits hold
# two million runs.
_RUN_BITS: Final = 42


@dataclass(slots=True)
class Snapshot:
    """Everything that was stored, of each line the first page only.

    Attributes:
        run: counts the starts of this store, from 0. See `first_number`.
        incarnation: what every message-id of this store begins with.
        is_clean: the last run ended by `close`, so that `pending` is complete.
        lines: by name.
        delayed: each with when it is due, wall clock; in order of that.
        postponed: of the lines' messages.
        duplicates: in order of `until`.
        values: in order of number.
        pending: by (session, subscription).
    """

    run: int
    incarnation: str
    is_clean: bool
    lines: dict[str, KeptLine] = field(default_factory=dict)
    delayed: list[tuple[StoredMessage, float]] = field(default_factory=list)
    postponed: list[PostponedRow] = field(default_factory=list)
    duplicates: list[DuplicateRow] = field(default_factory=list)
    values: list[StoredMessage] = field(default_factory=list)
    sessions: list[SessionRow] = field(default_factory=list)
    subscriptions: list[SubscriptionRow] = field(default_factory=list)
    pending: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    @property
    def first_number(self) -> int:
        """The first message number of this run: above all that earlier runs can have used."""
        # 0 stays free: a page is requested by the number before it.
        return max(1, self.run << _RUN_BITS)


class Store(Protocol):
    """Keeps messages and subscriptions over a restart.

    Order: `load` comes first and once, then any number of `apply` and `page`, then `close`.

    Threads: `load`, `apply` and `close` are called from one worker thread, never two at once. `page` is
    called from another, one at a time, while an `apply` may be running.

    Failure: any exception ends the broker. There is no retry, and only `close` is called afterwards.

    Ownership: what is returned belongs to the caller, and the store keeps no reference to it. Writes are
    immutable, and the sequence of an `apply` is not changed while it runs.

    `nebula.testing.check_store` tests this contract, for a store of your own as well.
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
