"""RPC over any STOMP broker: services that reply to every request, and the clients that call them.

`wire` has the messages and `contract` what a function says about itself; neither waits. `client` calls,
`service` replies; `streams`, `discovery`, `idempotency` and `jobs` are for both. Nothing in here knows the
inside of a broker.

Names that generated stubs import are here, so that a stub does not depend on the modules that define them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nebula.rpc.contract.remote import OMITTED, Partial, Remote

__all__ = ["OMITTED", "Partial", "Remote"]

_HOMES = dict.fromkeys(__all__, "nebula.rpc.contract.remote")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
