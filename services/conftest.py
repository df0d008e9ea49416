"""Fixtures shared with all other tests: separate caches, and Java options for a fast start."""

from __future__ import annotations

from tests.conftest import environment

__all__ = ["environment"]
