"""Brokers that start, one after another, on the same disk."""

from __future__ import annotations

from collections.abc import Sequence

from nebula.broker.core.limits import Limits
from nebula.broker.core.policies import DestinationPolicy
from tests.broker.harness import BrokerHarness
from tests.broker.memory_store import MemoryDisk, MemoryStore


def start(
    disk: MemoryDisk, policies: Sequence[DestinationPolicy] = (), limits: Limits | None = None
) -> BrokerHarness:
    """A broker on this disk. A second one on the same disk starts as if the first had crashed."""
    return BrokerHarness(limits, policies, store=MemoryStore(disk))
