"""A store in memory: what a `Store` has to do, in as few words as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from nebula.broker.store import (
    DropMessage,
    DropSession,
    DropSubscription,
    DropValue,
    PutMessage,
    PutPending,
    PutSession,
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
    values: dict[str, StoredMessage] = field(default_factory=dict)
    sessions: dict[str, PutSession] = field(default_factory=dict)
    subscriptions: dict[tuple[str, str], PutSubscription] = field(default_factory=dict)
    pending: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)


class MemoryStore:
    """A `Store` that keeps its rows on a `MemoryDisk`: give that to the next one for a restart."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk

    def load(self) -> Snapshot:
        disk = self._disk
        snapshot = Snapshot(disk.runs, "0000feed", disk.is_clean)
        for (queue, _), message in sorted(disk.messages.items()):
            snapshot.messages.setdefault(queue, []).append(message)
        snapshot.values = sorted(disk.values.values(), key=lambda value: value.number)
        snapshot.sessions = list(disk.sessions.values())
        snapshot.subscriptions = list(disk.subscriptions.values())
        snapshot.pending = dict(disk.pending)
        disk.runs, disk.is_clean = disk.runs + 1, False
        return snapshot

    def apply(self, writes: Sequence[Write]) -> None:
        for write in writes:
            self._apply(write)

    def close(self) -> None:
        self._disk.is_clean = True

    def _apply(self, write: Write) -> None:
        disk = self._disk
        match write:
            case PutMessage(queue, message):
                disk.messages[queue, message.number] = message
            case DropMessage(queue, number):
                disk.messages.pop((queue, number), None)
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
