"""Deep queues against the model of the store's machine, with nothing else in the way."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.depth import SECONDS, machine_settings
from tests.properties.store_machine import StoreMachine
from tests.properties.store_world import PLAIN, RANKED

MOST_PEERS = 6


class DeepMachine(StoreMachine):
    """One queue that is always deep: what lies in it, on disk and in between, has more time to meet.

    Several consumers hold different amounts of it, and are cut or unsubscribe before and after a page-out.
    """

    is_focused = True
    queues = (PLAIN,)
    read = (PLAIN,)

    @rule(
        count=st.integers(4, 9), ends=st.sampled_from(["", "expires"]), priority=st.sampled_from([4, 4, 0, 9])
    )
    def fill(self, count: int, ends: str, priority: int = 4) -> None:
        self.publish(0, 0, count, persistent=True, priority=priority, ends=ends)

    @precondition(lambda self: len(self.peers) < MOST_PEERS)
    @rule(prefetch=st.integers(1, 8))
    def hold(self, prefetch: int) -> None:
        """A consumer with a connection of its own, so that it can be cut alone."""
        self.connect()
        self.subscribe(len(self.peers) - 1, 0, "client-individual", prefetch)

    @precondition(lambda self: len(self.peers) < MOST_PEERS - 1)
    @rule(first=st.integers(1, 8), second=st.integers(1, 8), ending=st.sampled_from(["lose", "disconnect"]))
    def part_around_a_page_out(self, first: int, second: int, ending: str) -> None:
        """The queue grows beyond its window after one consumer is gone and before another one is."""
        self.hold(first)
        self.hold(second)
        self.fill(first + second + 2, "")
        self.go(len(self.peers) - 2, "lose")
        self.fill(9, "")
        self.commit()
        self.go(len(self.peers) - 1, ending)

    @rule()
    def commit(self) -> None:
        """What is gathered is on disk, and may leave memory."""
        self.broker.commit()
        self.collect()


class DeepRankedMachine(DeepMachine):
    """The same with priorities: each level is a line, deep or not."""

    queues = (RANKED,)
    read = (RANKED,)


TestDeep = pytest.mark.deep(pytest.mark.timeout(SECONDS)(DeepMachine.TestCase))
TestDeep.settings = machine_settings(15, 40)

TestDeepRanked = pytest.mark.deep(pytest.mark.timeout(SECONDS)(DeepRankedMachine.TestCase))
TestDeepRanked.settings = machine_settings(15, 40)
