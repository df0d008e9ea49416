"""What the broker's tests share: one broker without sockets for each test."""

from __future__ import annotations

import pytest

from tests.broker.harness import BrokerHarness


@pytest.fixture
def broker() -> BrokerHarness:
    """A broker with the default limits."""
    return BrokerHarness()
