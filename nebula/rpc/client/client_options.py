"""Constructor options of `Client`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nebula.rpc.client.breaker import Breaker
from nebula.rpc.client.cache import Cache
from nebula.rpc.client.reconnect import OnState
from nebula.rpc.middleware.chain import CallMiddleware

__all__ = ["ClientOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """What all views of a client share; see `Client` for each."""

    timeout: float
    reply_to: str | None = None
    client_id: str | None = None
    reconnects: bool = True
    waits: bool = False
    on_state: OnState | None = None
    breaker: Breaker | None = None
    cache: Cache | None = None
    cache_partition: str = ""
    middleware: Sequence[CallMiddleware] = ()
