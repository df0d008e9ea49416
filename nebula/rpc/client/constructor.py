"""What a client is told when it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nebula.rpc.client.breaker import Breaker
from nebula.rpc.client.reconnect import OnState
from nebula.rpc.middleware.chain import CallMiddleware

__all__ = ["CallerOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerOptions:
    """What a client was told of its connection; see `Client` for each."""

    timeout: float
    reply_to: str | None = None
    client_id: str | None = None
    reconnects: bool = True
    waits: bool = False
    on_state: OnState | None = None
    breaker: Breaker | None = None
    middleware: Sequence[CallMiddleware] = ()
