"""Sender and reader of a stream together, whatever the order of events: no loop, no clock (G.credit)."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nebula.rpc.streams.credit import Inflow, Outflow, Part


def dump(items: Sequence[Any]) -> bytes:
    return json.dumps(items, separators=(",", ":")).encode()


class Both(RuleBasedStateMachine):
    """A handler that counts, a network that keeps the order, and a reader that takes its time."""

    @initialize(credit=st.integers(1, 600), size=st.sampled_from([1, 100, 20_000]))
    def begin(self, credit: int, size: int) -> None:
        self.credit = credit
        self.padding = "x" * size
        self.outflow = Outflow(credit, dump, idle=30, now=0)
        self.inflow = Inflow(credit)
        self.yielded = 0
        self.parts: deque[Part] = deque()
        self.grants: deque[int] = deque()
        self.unconfirmed: deque[Part] = deque()
        self.read: list[int] = []
        self.consumed = 0

    @precondition(lambda self: self.outflow.room)
    @rule(count=st.integers(1, 256))
    def send(self, count: int) -> None:
        count = min(count, self.outflow.room)
        items = [[number, self.padding] for number in range(self.yielded, self.yielded + count)]
        self.yielded += count
        for part in self.outflow.pack(items, 0):
            self.parts.append(part)
            self.unconfirmed.append(part)

    @precondition(lambda self: self.parts)
    @rule()
    def deliver(self) -> None:
        part = self.parts.popleft()
        self.inflow.arrive(part.seq, is_end=False)
        self.inflow.read(part.seq, part.length)
        self.read += [number for number, _ in json.loads(part.items)]

    @precondition(lambda self: self.consumed < len(self.read))
    @rule(count=st.integers(1, 400))
    def consume(self, count: int) -> None:
        count = min(count, len(self.read) - self.consumed, self.inflow.step)
        self.consumed += count
        if more := self.inflow.consume(count):
            self.grants.append(more)

    @rule()
    def beat(self) -> None:
        self.grants.append(self.inflow.give())

    @precondition(lambda self: self.grants)
    @rule()
    def grant(self) -> None:
        self.outflow.grant(self.grants.popleft(), 0)

    @precondition(lambda self: self.unconfirmed)
    @rule()
    def confirm(self) -> None:
        self.outflow.confirm(self.unconfirmed.popleft())

    @invariant()
    def nothing_is_lost_or_out_of_order(self) -> None:
        if hasattr(self, "read"):
            assert self.read == list(range(len(self.read)))

    @invariant()
    def no_more_is_under_way_than_credit_was_given_for(self) -> None:
        if hasattr(self, "read"):
            assert self.yielded - self.consumed <= self.credit

    def teardown(self) -> None:
        if not hasattr(self, "read"):
            return
        # When all that is under way has come, either side can go on: there is no deadlock.
        while self.parts:
            self.deliver()
        while self.unconfirmed:
            self.confirm()
        while self.consumed < len(self.read):
            self.consume(len(self.read))
        while self.grants:
            self.grant()
        assert self.outflow.room > 0
        assert self.read == list(range(self.yielded))


TestBothEnds = Both.TestCase
TestBothEnds.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
