"""What things cost in memory that are held for peers."""

from __future__ import annotations

from typing import Final

# Memory that CPython uses for a string without its characters, and for an entry of a dictionary that holds
# it.
_TEXT_COST_BYTES: Final = 150


def text_cost_bytes(*texts: str) -> int:
    """Memory that these texts cost."""
    cost_bytes = _TEXT_COST_BYTES * len(texts)
    for text in texts:
        # A single non-Latin character can make a text four times as large.
        cost_bytes += len(text) if text.isascii() else 4 * len(text)
    return cost_bytes
