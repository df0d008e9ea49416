"""Walks over what the broker holds, done to their end: operations that yield between two pieces."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def result(steps: Generator[None, None, T]) -> T:
    """Do all pieces of a walk."""
    return counted(steps)[0]


def counted(steps: Generator[None, None, T]) -> tuple[T, int]:
    """Do them, and count them."""
    pieces = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, pieces
        pieces += 1
