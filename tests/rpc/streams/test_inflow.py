"""The reader's end of a stream: order, gaps, and when credit goes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebula.rpc.errors import StreamBroken
from nebula.rpc.streams.credit import Inflow


def receive(flow: Inflow, seq: int, count: int, *, is_end: bool = False) -> None:
    flow.arrive(seq, is_end=is_end)
    flow.read(seq, count)


def test_items_in_order_are_taken() -> None:
    flow = Inflow(256)
    receive(flow, 0, 2)
    receive(flow, 2, 1)
    receive(flow, 3, 0, is_end=True)

    assert flow.next == 3


def test_missing_items_break_the_stream() -> None:
    flow = Inflow(256)
    receive(flow, 0, 2)
    flow.arrive(3, is_end=False)

    with pytest.raises(StreamBroken, match="items 2 to 2 did not come"):
        flow.read(3, 1)


def test_missing_items_before_the_end_break_the_stream() -> None:
    flow = Inflow(256)
    receive(flow, 0, 2)
    flow.arrive(5, is_end=True)

    with pytest.raises(StreamBroken, match="2 to 4"):
        flow.read(5, 0)


def test_stream_that_begins_again_is_broken() -> None:
    flow = Inflow(256)
    flow.arrive(0, is_end=False)

    with pytest.raises(StreamBroken, match="began anew"):
        flow.arrive(0, is_end=False)


def test_item_from_before_breaks_the_stream() -> None:
    flow = Inflow(256)
    flow.arrive(0, is_end=False)
    flow.arrive(7, is_end=False)

    with pytest.raises(StreamBroken, match="item 3 came after item 7"):
        flow.arrive(3, is_end=False)


def test_nothing_comes_after_the_end() -> None:
    flow = Inflow(256)
    flow.arrive(0, is_end=True)

    with pytest.raises(StreamBroken, match="after the stream's end"):
        flow.arrive(1, is_end=False)


def test_items_beyond_the_credit_are_refused_as_they_arrive() -> None:
    flow = Inflow(2)
    flow.arrive(0, is_end=False)

    with pytest.raises(StreamBroken, match="credit was given for 2"):
        flow.arrive(2, is_end=False)


def test_items_beyond_the_credit_are_refused_as_they_are_read() -> None:
    flow = Inflow(2)
    flow.arrive(0, is_end=False)

    with pytest.raises(StreamBroken, match="3 items came, but credit was given for 2"):
        flow.read(0, 3)


def test_empty_end_needs_no_credit() -> None:
    flow = Inflow(2)
    receive(flow, 0, 2)
    receive(flow, 2, 0, is_end=True)

    assert flow.next == 2


def test_credit_goes_back_when_half_of_it_is_consumed() -> None:
    flow = Inflow(10)
    receive(flow, 0, 10)

    assert [flow.consume(2), flow.consume(2), flow.consume(2)] == [0, 0, 6]
    receive(flow, 10, 6)


def test_credit_of_one_goes_back_at_once() -> None:
    assert Inflow(1).consume(1) == 1


def test_slow_reader_gives_what_it_owes_and_then_nothing() -> None:
    flow = Inflow(10)
    flow.consume(2)

    assert [flow.give(), flow.give()] == [2, 0]


@given(st.integers(1, 40), st.lists(st.integers(1, 40), max_size=40))
def test_sender_and_reader_never_stall_and_never_exceed_the_window(credit: int, parts: list[int]) -> None:
    flow = Inflow(credit)
    may_send, sent, consumed = credit, 0, 0
    for size in parts:
        size = min(size, may_send)
        receive(flow, sent, size)
        sent += size
        may_send -= size
        while consumed < sent:
            count = min(flow.step, sent - consumed)
            consumed += count
            may_send += flow.consume(count)

        assert may_send > 0
        assert may_send + (sent - consumed) <= credit
