"""A broker whose store takes its time: commits and pages are begun, and come to an end later, or never."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nebula.broker.core.limits import Limits
from nebula.broker.core.policies import DestinationPolicy
from nebula.broker.core.storage import PageRequest, StoredMessage
from nebula.broker.core.tables import Write
from tests.broker.harness import BrokerHarness
from tests.broker.memory_store import MemoryDisk, MemoryStore


class LateBroker(BrokerHarness):
    """The harness over a `MemoryDisk`, with each step of the store's work apart.

    Attributes:
        told: the last batch whose commit the broker knows of.
        kept: the last batch that is on disk.
        pages: those asked for and not handed in, each with its rows once they were read.
    """

    def __init__(
        self,
        limits: Limits,
        policies: Sequence[DestinationPolicy],
        disk: MemoryDisk,
        *,
        now: float = 0.0,
        page_messages: int | None = None,
        new_store: Callable[..., MemoryStore] = MemoryStore,
    ) -> None:
        self.disk = disk
        self.told = self.kept = 0
        self.pages: list[tuple[PageRequest, list[StoredMessage] | None]] = []
        self._in_flight: list[Write] | None = None
        store = new_store(disk, page_messages=page_messages)
        super().__init__(limits, policies, store=store)
        self.now = now  # the wall goes on while a broker is down

    @property
    def batch(self) -> int:
        """What happens now goes into this batch."""
        assert self.broker.journal is not None
        return self.broker.journal.batch

    def fetch(self, page: PageRequest) -> None:
        self.pages.append((page, None))

    def read_pages(self) -> None:
        """Read what is asked for, as it is on disk now."""
        assert self.store is not None
        self.pages = [(page, self.store.page(page) if rows is None else rows) for page, rows in self.pages]

    def hand_in_page(self) -> None:
        """Give the broker the first of the pages that were asked for."""
        self.read_pages()
        page, rows = self.pages.pop(0)
        assert rows is not None
        following = self.broker.page_after(page, rows)
        if following is not None:
            self.fetch(following)
        self.broker.take_page(page, rows, self.now)
        self.settle()

    def begin_commit(self) -> None:
        """Take a batch, unless one is on its way."""
        assert self.broker.journal is not None
        if self._in_flight is None:
            self.record("begin commit")
            _, self._in_flight = self.broker.journal.take()

    def write(self) -> None:
        """The batch on its way reaches the disk; the broker does not know yet."""
        assert self.store is not None
        if self._in_flight is not None:
            self.store.apply(self._in_flight)
            self._in_flight = []
            self.kept = self.batch - 1

    def end_commit(self) -> None:
        """The batch on its way has come to its end."""
        if self._in_flight is not None:
            self.record("commit")
            self.write()
            self._in_flight = None
            self.told = self.kept
            self.broker.committed(self.told, self.now)
            self.settle()

    def commit(self) -> None:
        """Everything is on disk."""
        self.end_commit()
        self.begin_commit()
        self.end_commit()
