"""Octets in pieces, as a network may bring them."""

from __future__ import annotations


def cut(data: bytes, size: int) -> list[bytes]:
    """In pieces of this size; 0: as a whole."""
    if not size:
        return [data]
    return [data[start : start + size] for start in range(0, len(data), size)]


def sizes(data: bytes, seed: int) -> list[int]:
    """Three sizes to cut by: not at all, a size that `seed` chooses, and each octet alone."""
    return [0, 1 + seed % 64, 1] if len(data) <= 2_000 else [0, 1 + seed]
