"""A store in memory: what a `Store` has to do, in as few words as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from nebula.broker.core.storage import KeptLine, PageRequest, StoredMessage
from nebula.broker.core.tables import (
    BODIES,
    DELAYED,
    DUPLICATES,
    MESSAGES,
    PENDING,
    POSTPONED,
    SESSIONS,
    SHARED_MESSAGES,
    SUBSCRIPTIONS,
    TABLES,
    VALUES,
    BodyRow,
    DelayedRow,
    Drop,
    DropRange,
    DuplicateRow,
    Key,
    PostponedRow,
    Put,
    SessionRow,
    SetAttempts,
    SubscriptionRow,
    Table,
    Write,
)
from nebula.broker.store.store import Snapshot


@dataclass
class MemoryDisk:
    """What stays when a `MemoryStore` goes: the rows of each table, by key."""

    runs: int = 0
    is_clean: bool = True
    rows: dict[Table, dict[Key, Any]] = field(default_factory=lambda: {table: {} for table in TABLES})

    def apply(self, write: Write) -> None:
        """Change one row, or a range of them."""
        rows = self.rows[write.table]
        match write:
            case Put(table, row):
                rows[row[: table.key_width]] = table.row(*row)
            case Drop(_, key):
                rows.pop(key, None)
            case DropRange(_, line, after, up_to):
                for key in [key for key in rows if key[0] == line and after < int(key[1]) <= up_to]:
                    del rows[key]
            case SetAttempts(_, key, attempts):
                if key in rows:
                    rows[key] = rows[key]._replace(attempts=attempts)
            case _:
                assert_never(write)

    def drop_unused_bodies(self) -> None:
        """What a store does at the end of a batch."""
        used = {row.number for row in self.rows[SHARED_MESSAGES].values()}
        for number in [number for (number,) in self.rows[BODIES] if number not in used]:
            del self.rows[BODIES][number,]

    # --- for tests ---

    @property
    def messages(self) -> dict[tuple[str, int], StoredMessage]:
        """By line and number, wherever their bodies are."""
        found = {(row.line, row.number): StoredMessage(*row[1:]) for row in self.rows[MESSAGES].values()}
        for line, number, attempts in self.rows[SHARED_MESSAGES].values():
            body: BodyRow = self.rows[BODIES][number,]
            found[line, number] = StoredMessage(*body[:5], attempts, body.is_request)
        return found

    @property
    def values(self) -> dict[str, StoredMessage]:
        """By destination."""
        rows = self.rows[VALUES].values()
        return {name: StoredMessage(number, name, *rest) for name, number, *rest in rows}

    @property
    def delayed(self) -> dict[Key, DelayedRow]:
        """By number."""
        return self.rows[DELAYED]

    @property
    def postponed(self) -> dict[Key, PostponedRow]:
        """By line and number."""
        return self.rows[POSTPONED]

    @property
    def duplicates(self) -> dict[Key, DuplicateRow]:
        """By destination, principal and id."""
        return self.rows[DUPLICATES]

    @property
    def sessions(self) -> dict[Key, SessionRow]:
        """By client-id."""
        return self.rows[SESSIONS]

    @property
    def subscriptions(self) -> dict[Key, SubscriptionRow]:
        """By session and id."""
        return self.rows[SUBSCRIPTIONS]


class MemoryStore:
    """A `Store` that keeps its rows on a `MemoryDisk`: give that to the next one for a restart.

    Args:
        page_messages: of each line at a start; all of them unless it is said.
    """

    def __init__(self, disk: MemoryDisk, *, page_messages: int | None = None) -> None:
        self._disk = disk
        self.page_messages = page_messages

    def load(self) -> Snapshot:
        disk = self._disk
        snapshot = Snapshot(disk.runs, "0000feed", disk.is_clean)
        lines: dict[str, list[StoredMessage]] = {}
        for (line, _), message in sorted(disk.messages.items()):
            lines.setdefault(line, []).append(message)
        for line, kept in lines.items():
            body_bytes = sum(len(each.body) for each in kept)
            snapshot.lines[line] = KeptLine(
                kept[: self.page_messages], len(kept), body_bytes, kept[-1].number
            )
        for row in sorted(disk.delayed.values(), key=lambda row: row.deliver_at):
            message = StoredMessage(row.number, row.destination, *row[3:])
            snapshot.delayed.append((message, row.deliver_at))
        snapshot.postponed = list(disk.postponed.values())
        snapshot.duplicates = sorted(disk.duplicates.values(), key=lambda row: row.until)
        snapshot.values = sorted(disk.values.values(), key=lambda value: value.number)
        snapshot.sessions = list(disk.sessions.values())
        snapshot.subscriptions = list(disk.subscriptions.values())
        snapshot.pending = {(row.session, row.id): row.destinations for row in disk.rows[PENDING].values()}
        disk.runs, disk.is_clean = disk.runs + 1, False
        return snapshot

    def apply(self, writes: Sequence[Write]) -> None:
        for write in writes:
            self._disk.apply(write)
        self._disk.drop_unused_bodies()

    def page(self, request: PageRequest) -> list[StoredMessage]:
        rows: list[StoredMessage] = []
        size_bytes = 0
        for (line, number), message in sorted(self._disk.messages.items()):
            if line != request.line or not request.after < number <= request.up_to:
                continue
            size_bytes += len(message.body)
            if len(rows) == request.max_messages or (rows and size_bytes > request.max_bytes):
                break
            rows.append(message)
        return rows

    def close(self) -> None:
        self._disk.is_clean = True
