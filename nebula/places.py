"""Folders and the place of Spark, as environment variables name them.

What services, callers and brokers share: nothing is imported but the standard library.
"""

from __future__ import annotations

import os
from pathlib import Path


def state_root() -> Path:
    """Where programs keep what must outlive them: `NEBULA_STATE`, else the user's state folder."""
    if root := os.environ.get("NEBULA_STATE"):
        return Path(root)
    # The XDG base directory specification: relative paths are to be ignored.
    home = Path(os.environ.get("XDG_STATE_HOME") or "")
    return (home if home.is_absolute() else Path.home() / ".local" / "state") / "nebula"


def state_is_named() -> bool:
    """Whether `NEBULA_STATE` says where programs keep what must outlive them."""
    return bool(os.environ.get("NEBULA_STATE"))


def cache_root() -> Path:
    """Where programs keep what they can make again: `NEBULA_CACHE`, else the user's cache folder."""
    if root := os.environ.get("NEBULA_CACHE"):
        return Path(root).absolute()
    home = Path(os.environ.get("XDG_CACHE_HOME") or "")
    return (home if home.is_absolute() else Path.home() / ".cache") / "nebula"


def results_root() -> Path | None:
    """Where services keep what jobs return as tables: `NEBULA_RESULTS`; None: each in its state folder."""
    root = os.environ.get("NEBULA_RESULTS")
    return Path(root).absolute() if root else None


def spark_place() -> str:
    """Where an engine runs that declares neither master nor remote: `NEBULA_SPARK`, else on this machine."""
    return os.environ.get("NEBULA_SPARK", "").strip() or "local[*]"
