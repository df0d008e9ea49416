"""Rows to be kept, and what a broker finds of them when it starts again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from nebula.broker.core.storage import (
    PutPending,
    PutSession,
    PutSubscription,
    Snapshot,
    Store,
    StoredMessage,
    Write,
)

NewStore: TypeAlias = Callable[[], Store]
"""Makes another store over the same rows."""

SESSION = PutSession("till-1", "ab12", None)
SUBSCRIPTION = PutSubscription("till-1", "0", "X/*", "client", 10, 77)
PENDING = PutPending("till-1", "0", ("X/a", "X/ü"))


def message(number: int, body: bytes = b"hello", *, destination: str = "/queue/a") -> StoredMessage:
    return StoredMessage(number, destination, (("content-type", "text/plain"), ("sender", "alice")), body)


def reloaded(new_store: NewStore, *batches: list[Write]) -> Snapshot:
    """What a broker finds that starts after one which wrote this."""
    first = new_store()
    first.load()
    for batch in batches:
        first.apply(batch)
    first.close()
    second = new_store()
    try:
        return second.load()
    finally:
        second.close()


def lines(snapshot: Snapshot) -> dict[str, list[StoredMessage]]:
    """The first page of each line."""
    return {name: line.first for name, line in snapshot.lines.items()}
