"""The pump: everything that follows from one input, in one order.

The core decides and never calls back. After each input (bytes, time, a batch that the store has committed, a
page that it has read) the pump asks the core what to do, and does it until nothing is left:

1. flush: write what sessions were told to their connections;
2. resume: let connections that were held back go on;
3. pages: ask for pages of deep queues;
4. write: hand the journal to the store, once, after everything else, so that one input is one batch.

It is pure: it knows no loop, socket or clock. The asyncio server drives it, and so does the harness of the
tests: what the tests prove is what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from nebula.broker.core.broker import Broker
from nebula.broker.core.fixed_limits import LARGE_BODY_BYTES
from nebula.broker.core.journal import Journal
from nebula.broker.core.storage import PageRequest, StoredMessage


class Pumped(Protocol):
    """A connection, as the pump drives it: `Session.connection`."""

    def flush(self, now: float) -> None:
        """Write what the session was told, if the peer can take it."""

    def go_on(self, now: float, *, in_vain: bool) -> None:
        """Go on with the frames that were held back.

        Args:
            in_vain: the wait was too long: the destination's policy decides about the first of them now.
        """

    def crash(self) -> None:
        """End the connection because of the exception that is being handled, which is a bug."""


class Pump:
    """Does what the core decided. One for each broker.

    Args:
        broker: the core.
        read_page: begins to read a page; hand it to `page_read` later, not before this returns.
        write: hands what the journal has gathered to the store, if the store is free. Call `committed` when
            a batch is durable.
        defers: whether the caller flushes a connection with a large outbox later; the number is the bytes
            that were flushed in this call of `work`.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        read_page: Callable[[PageRequest], None],
        write: Callable[[Journal], None],
        defers: Callable[[Any, int], bool],
    ) -> None:
        self._broker = broker
        self._read_page = read_page
        self._write = write
        self._defers = defers
        self._is_working = False

    def work(self, now: float) -> None:
        """Do everything that follows from an input. A nested call does nothing: the outer one goes on."""
        # The shell's `flush` and `go_on` end by calling `work`; the outer loop handles what they caused.
        if self._is_working:
            return
        self._is_working = True
        flushed_bytes = 0
        # What is done here may make other sessions dirty, so ask again until nothing is left.
        take_work = self._broker.take_work
        try:
            while (work := take_work(now)) is not None:
                for session in work.dirty:
                    outbox_bytes = session.outbox_bytes
                    if outbox_bytes >= LARGE_BODY_BYTES:
                        # The scheduler flushes it in a later turn, by `flush` below.
                        if self._defers(session.connection, flushed_bytes):
                            continue
                        flushed_bytes += outbox_bytes
                    # Written out, as in `flush`: this is the path of each message.
                    try:
                        session.connection.flush(now)
                    except Exception:
                        # A bug ends one connection; without this the other sessions in `dirty` would not be
                        # written.
                        session.connection.crash()
                for session, in_vain in work.resumed:
                    session.connection.go_on(now, in_vain=in_vain)
                for request in work.pages:
                    self._read_page(request)
        finally:
            self._is_working = False
        journal = self._broker.journal
        # A message that was dropped before it was written leaves no row, but its RECEIPT still waits for a
        # commit, and so do messages behind it.
        if journal is not None and (not journal.is_empty or self._broker.receipts.is_any):
            self._write(journal)

    def flush(self, connection: Pumped, now: float) -> None:
        """Flush a connection that was deferred. A bug there ends this connection and harms no other."""
        try:
            connection.flush(now)
        except Exception:
            connection.crash()

    def committed(self, batch: int, now: float) -> None:
        """The store has made a batch durable: receipts that waited for it are sent now."""
        self._broker.committed(batch, now)
        self.work(now)

    def page_read(self, request: PageRequest, rows: Sequence[StoredMessage], now: float) -> None:
        """The store has read a page."""
        # Ask for the next page before this one is handled: the disk reads while the messages are sent.
        following = self._broker.page_after(request, rows)
        if following is not None:
            self._read_page(following)
        self._broker.take_page(request, rows, now)
        self.work(now)
