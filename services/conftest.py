"""What the tests of services share with all others: caches that are the tests' own, and a Java in a hurry."""

from __future__ import annotations

from tests.conftest import environment

__all__ = ["environment"]
