"""Locations from the environment: state, cache and result folders, and Spark's address.

What services, callers and brokers share: nothing is imported but the standard library.
"""

from __future__ import annotations

import os
from pathlib import Path


def state_root() -> Path:
    """The folder of persistent state: `NEBULA_STATE`, or the user's state folder."""
    if root := os.environ.get("NEBULA_STATE"):
        return Path(root)
    # The XDG base directory specification says to ignore relative paths.
    home = Path(os.environ.get("XDG_STATE_HOME") or "")
    return (home if home.is_absolute() else Path.home() / ".local" / "state") / "nebula"


def state_is_named() -> bool:
    """Whether `NEBULA_STATE` is set."""
    return bool(os.environ.get("NEBULA_STATE"))


def cache_root() -> Path:
    """The cache folder: `NEBULA_CACHE`, or the user's cache folder."""
    if root := os.environ.get("NEBULA_CACHE"):
        return Path(root).absolute()
    home = Path(os.environ.get("XDG_CACHE_HOME") or "")
    return (home if home.is_absolute() else Path.home() / ".cache") / "nebula"


def results_root() -> Path | None:
    """The folder for tables that jobs return: `NEBULA_RESULTS`; None for each service's state folder."""
    root = os.environ.get("NEBULA_RESULTS")
    return Path(root).absolute() if root else None


def spark_place() -> str:
    """Where engines without master or remote run: `NEBULA_SPARK`, or this machine."""
    return os.environ.get("NEBULA_SPARK", "").strip() or "local[*]"
