"""Sizes of memory as Spark's settings write them."""

from __future__ import annotations

import re

_UNITS = {"k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_HEAP = re.compile(r"(\d+)([kmgt])b?", re.IGNORECASE)


def heap_bytes(text: str) -> int | None:
    """`512m` or `1g` in bytes; None for what is not written so."""
    match = _HEAP.fullmatch(text.strip())
    return int(match[1]) * _UNITS[match[2].lower()] if match else None
