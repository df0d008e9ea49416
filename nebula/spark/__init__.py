"""Spark jobs as verbs: an engine host in a child process, supervised by the service.

Nothing in this package but `host`, `reading` and `source` imports pyspark, and a service never imports those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nebula.spark.engine import Spark
    from nebula.spark.runner import SparkRunner

__all__ = ["Spark", "SparkRunner"]

_HOMES = {"Spark": "nebula.spark.engine", "SparkRunner": "nebula.spark.runner"}


def __getattr__(name: str) -> Any:
    # Lazily: a module that only declares verbs pays for no runner, and the host for no anyio.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
