"""Durable subscriptions that share what is published against the model of the store's machine."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from tests.depth import SECONDS, machine_settings
from tests.properties.kept import Subscribed
from tests.properties.store_machine import COMMANDS, StoreMachine
from tests.properties.store_peers import WHO
from tests.properties.store_world import CLIENTS, PLAIN


class FanOutMachine(StoreMachine):
    """One topic and several durable subscriptions: each body is in many lines, and leaves them one by one."""

    is_focused = True
    queues = (PLAIN,)
    read = (PLAIN,)

    @initialize(window=st.sampled_from([None, 700, 1_500]), prefetch=st.integers(1, 4))
    def begin(self, window: int | None, prefetch: int) -> None:
        super().begin(window)
        for client in CLIENTS:
            self.come(client, "client-individual", prefetch)

    @rule(count=st.integers(1, 6), is_committed=st.booleans())
    def fan_out(self, count: int, *, is_committed: bool) -> None:
        for _ in range(count):
            self.publish_to_topic(0)
        if is_committed:
            self.commit()

    @rule(client=st.sampled_from(CLIENTS), prefetch=st.integers(1, 4))
    def come_again(self, client: str, prefetch: int) -> None:
        self.come(client, "client-individual", prefetch)

    @precondition(lambda self: self.subscribed)
    @rule(which=WHO, command=COMMANDS, is_committed=st.booleans())
    def settle_what_it_has(self, which: int, command: str, *, is_committed: bool) -> None:
        subscribed = self.subscribed[which % len(self.subscribed)]
        for _ in range(len(subscribed.held)):
            self.settle_first(subscribed, command)
        if is_committed:
            self.commit()

    def settle_first(self, subscribed: Subscribed, command: str) -> None:
        held = [each for each in self.subscribed for _ in each.held]
        if subscribed in held:
            self.settle(held.index(subscribed), command)

    def commit(self) -> None:
        self.begin_commit()
        self.end_commit()

    def teardown(self) -> None:
        """All that waits for a durable subscription is settled: then there is no body any more."""
        for peer in list(self.peers):
            self.part(peer, counted=False)
            peer.say("DISCONNECT")
            self.collect()
        for client in CLIENTS:
            self.come(client, "client-individual", 2)
        durable = [each for each in self.subscribed if each.id == "s"]
        while any(each.held for each in durable) or self.broker.pages:
            for each in durable:
                self.settle_first(each, "ack")
            self.take_pages()
        self.settle_all()
        assert not [line for line, _ in self.disk.messages if line.startswith("\0")]
        super().teardown()


TestFanOut = pytest.mark.deep(pytest.mark.timeout(SECONDS)(FanOutMachine.TestCase))
TestFanOut.settings = machine_settings(62, 40)
