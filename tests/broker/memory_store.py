"""A store in memory: what a `Store` has to do, in as few words as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from nebula.broker.core.storage import (
    DropDelayed,
    DropDuplicate,
    DropMessage,
    DropMessages,
    DropPostponed,
    DropSession,
    DropSubscription,
    DropValue,
    KeptLine,
    PageRequest,
    PutAttempts,
    PutDelayed,
    PutDuplicate,
    PutMessage,
    PutPending,
    PutPostponed,
    PutSession,
    PutShared,
    PutSubscription,
    PutValue,
    Snapshot,
    StoredMessage,
    Write,
)


@dataclass
class MemoryDisk:
    """What stays when a `MemoryStore` goes."""

    runs: int = 0
    is_clean: bool = True
    messages: dict[tuple[str, int], StoredMessage] = field(default_factory=dict)
    delayed: dict[int, PutDelayed] = field(default_factory=dict)
    postponed: dict[tuple[str, int], PutPostponed] = field(default_factory=dict)
    duplicates: dict[tuple[str, str, str], PutDuplicate] = field(default_factory=dict)
    values: dict[str, StoredMessage] = field(default_factory=dict)
    sessions: dict[str, PutSession] = field(default_factory=dict)
    subscriptions: dict[tuple[str, str], PutSubscription] = field(default_factory=dict)
    pending: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)


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
        snapshot.delayed = sorted(disk.delayed.values(), key=lambda row: row.deliver_at)
        snapshot.postponed = list(disk.postponed.values())
        snapshot.duplicates = sorted(disk.duplicates.values(), key=lambda row: row.until)
        snapshot.values = sorted(disk.values.values(), key=lambda value: value.number)
        snapshot.sessions = list(disk.sessions.values())
        snapshot.subscriptions = list(disk.subscriptions.values())
        snapshot.pending = dict(disk.pending)
        disk.runs, disk.is_clean = disk.runs + 1, False
        return snapshot

    def apply(self, writes: Sequence[Write]) -> None:
        for write in writes:
            self._apply(write)

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

    def _apply(self, write: Write) -> None:  # noqa: C901  # a line for each kind
        disk = self._disk
        match write:
            case PutMessage(line, message):
                disk.messages[line, message.number] = message
            case PutShared(names, message):
                for name in names:
                    disk.messages[name, message.number] = message
            case PutAttempts(line, number, attempts):
                if (line, number) in disk.messages:
                    there = disk.messages[line, number]
                    disk.messages[line, number] = there._replace(attempts=attempts)
            case DropMessage(line, number):
                disk.messages.pop((line, number), None)
            case DropMessages(line, after, up_to):
                gone = [key for key in disk.messages if key[0] == line and after < key[1] <= up_to]
                for message_key in gone:
                    del disk.messages[message_key]
            case PutDelayed(message):
                disk.delayed[message.number] = write
            case DropDelayed(number):
                disk.delayed.pop(number, None)
            case PutPostponed():
                disk.postponed[write.line, write.number] = write
            case DropPostponed(line, number):
                disk.postponed.pop((line, number), None)
            case PutDuplicate(destination, principal, id):
                disk.duplicates[destination, principal, id] = write
            case DropDuplicate(destination, principal, id):
                disk.duplicates.pop((destination, principal, id), None)
            case PutValue(message):
                disk.values[message.destination] = message
            case DropValue(destination):
                disk.values.pop(destination, None)
            case PutSession():
                disk.sessions[write.id] = write
            case DropSession(session):
                disk.sessions.pop(session, None)
                for key in [key for key in {**disk.subscriptions, **disk.pending} if key[0] == session]:
                    self._apply(DropSubscription(*key))
            case PutSubscription():
                disk.subscriptions[write.session, write.id] = write
            case DropSubscription(session, subscription):
                disk.subscriptions.pop((session, subscription), None)
                disk.pending.pop((session, subscription), None)
            case PutPending(session, subscription, destinations):
                disk.pending[session, subscription] = destinations
            case _:
                assert_never(write)
