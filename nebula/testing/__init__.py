"""Test support for services and their callers: brokers, fakes, faults and a clock that can be moved.

For stores of your own there is `check_store`. The names are loaded on first use, because every run of pytest
loads the plugin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nebula.testing.app_client import TestClient
    from nebula.testing.apps import Serve, serving
    from nebula.testing.clock import VirtualClock, virtual_clock
    from nebula.testing.fakes import Fake, FakeCall, fake
    from nebula.testing.faults import Faults
    from nebula.testing.hearing import handled
    from nebula.testing.running import RunningBroker, Transport, broker
    from nebula.testing.stores import check_store, store_promises

__all__ = [
    "Fake",
    "FakeCall",
    "Faults",
    "RunningBroker",
    "Serve",
    "TestClient",
    "Transport",
    "VirtualClock",
    "broker",
    "check_store",
    "fake",
    "handled",
    "serving",
    "store_promises",
    "virtual_clock",
]

_HOMES = {
    "Fake": "fakes",
    "FakeCall": "fakes",
    "Faults": "faults",
    "RunningBroker": "running",
    "Serve": "apps",
    "TestClient": "app_client",
    "Transport": "running",
    "VirtualClock": "clock",
    "broker": "running",
    "check_store": "stores",
    "fake": "fakes",
    "handled": "hearing",
    "serving": "apps",
    "store_promises": "stores",
    "virtual_clock": "clock",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        from nebula.optional import explain

        explain(error, f"{__name__}.{name}")
        raise


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
