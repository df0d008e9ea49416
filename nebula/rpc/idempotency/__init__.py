"""Idempotency keys: a request that is sent twice is handled once, and replied to twice (G.idempotency)."""

from nebula.rpc.idempotency.memory import MemoryStore
from nebula.rpc.idempotency.sqlite import SqliteStore
from nebula.rpc.idempotency.store import Claim, IdempotencyStore, Reach, StoreFailed

__all__ = ["Claim", "IdempotencyStore", "MemoryStore", "Reach", "SqliteStore", "StoreFailed"]
