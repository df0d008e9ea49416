"""What the broker's tests share: one broker without sockets for each test."""

from __future__ import annotations

import pytest

from tests.broker.harness import BrokerHarness
from tests.broker.memory_store import MemoryDisk


@pytest.fixture
def broker() -> BrokerHarness:
    """A broker with the default limits."""
    return BrokerHarness()


@pytest.fixture
def disk() -> MemoryDisk:
    """A disk that outlives the brokers that use it."""
    return MemoryDisk()
