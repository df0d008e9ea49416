"""Tables from files in Spark jobs: `ctx.read`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nebula.spark.reading.reader import Reader, Skipped

__all__ = ["Reader", "Skipped"]

_HOMES = {
    "Reader": "nebula.spark.reading.reader",
    "Skipped": "nebula.spark.reading.reader",
}


def __getattr__(name: str) -> Any:
    # Lazily: only the engine host has pyspark.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
