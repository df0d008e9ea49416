"""Deep queues against the model of the store's machine, with nothing else in the way."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.properties.examples import SECONDS, many
from tests.properties.store_world import PLAIN
from tests.properties.test_store_machine import StoreMachine


class DeepMachine(StoreMachine):
    """One queue that is always deep: what lies in it, on disk and in between, has more time to meet."""

    is_focused = True
    queues = (PLAIN,)
    read = (PLAIN,)

    @rule(count=st.integers(4, 9), ends=st.sampled_from(["", "expires"]))
    def fill(self, count: int, ends: str) -> None:
        self.publish(0, 0, count, persistent=True, priority=4, ends=ends)


TestDeep = pytest.mark.timeout(SECONDS)(DeepMachine.TestCase)
TestDeep.settings = many(60, 40)
