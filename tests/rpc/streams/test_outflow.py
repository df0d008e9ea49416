"""The sender's end of a stream: what it may send, in which parts, and when it gives up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebula.rpc.streams.credit import MOST_BYTES, MOST_ITEMS, Outflow, Part


def dump(items: Sequence[Any]) -> bytes:
    return json.dumps(items, separators=(",", ":")).encode()


def outflow(credit: int = MOST_ITEMS, *, idle: float = 30.0) -> Outflow:
    return Outflow(credit, dump, idle=idle, now=0.0)


def pack(flow: Outflow, items: Sequence[Any], now: float = 0.0) -> list[Part]:
    return list(flow.pack(items, now))


def test_parts_are_numbered_by_their_first_item() -> None:
    flow = outflow()

    assert pack(flow, ["a", "b"]) == [Part(0, 2, b'["a","b"]')]
    assert pack(flow, ["c"]) == [Part(2, 1, b'["c"]')]
    assert pack(flow, []) == [Part(3, 0, b"[]")]


def test_room_ends_with_the_credit_and_comes_back_with_more() -> None:
    flow = outflow(3)
    assert flow.room == 3
    pack(flow, [1, 2, 3])
    assert flow.room == 0

    flow.grant(2, 1.0)

    assert flow.room == 2


def test_one_part_holds_256_items_at_most() -> None:
    assert outflow(100_000).room == MOST_ITEMS == 256


def test_large_items_are_spread_over_parts_of_64_kib_and_later_batches_are_smaller() -> None:
    flow = outflow(1_000)
    parts = pack(flow, ["x" * 1000] * 256)

    assert all(len(part.items) <= MOST_BYTES for part in parts)
    assert sum(part.length for part in parts) == 256
    assert flow.room == 65
    assert len(pack(flow, ["x" * 1000] * flow.room)) == 1


def test_item_that_is_larger_than_a_part_goes_alone() -> None:
    flow = outflow()

    assert [part.length for part in pack(flow, ["x" * MOST_BYTES, 1, 2])] == [1, 2]


def test_batches_grow_again_when_items_get_small() -> None:
    flow = outflow()
    pack(flow, ["x" * MOST_BYTES])
    assert flow.room == 1

    pack(flow, [1])

    assert flow.room == 255 - 1


def test_nothing_more_is_asked_for_while_a_mebibyte_is_unconfirmed() -> None:
    flow = outflow(10_000)
    sent = pack(flow, ["x" * 1024 * 1024])
    assert flow.room == 0

    flow.confirm(sent[0])

    assert flow.room == 1


def test_credit_that_makes_no_sense_is_cut_down() -> None:
    flow = outflow(10**9)
    flow.grant(10**9, 0.0)

    assert flow.credit == 1_000_000


def test_reader_that_owes_credit_and_says_nothing_is_given_up() -> None:
    flow = outflow(1)
    pack(flow, [1], 100.0)

    assert not flow.is_abandoned(129.9)
    assert flow.is_abandoned(130.0)


def test_reader_that_says_it_is_there_is_not_given_up() -> None:
    flow = outflow(1)
    pack(flow, [1], 0.0)
    flow.grant(0, 25.0)

    assert not flow.is_abandoned(54.0)
    assert flow.is_abandoned(55.0)


def test_reader_that_owes_nothing_may_be_silent() -> None:
    flow = outflow(2)
    pack(flow, [1], 0.0)

    assert not flow.is_abandoned(1e6)


def test_sign_of_life_is_due_when_nothing_was_sent_for_a_third_of_the_time() -> None:
    flow = outflow()
    assert not flow.beat_is_due(9.9)
    assert flow.beat_is_due(10.0)
    flow.beat(10.0)
    assert not flow.beat_is_due(19.0)
    pack(flow, [1], 19.0)

    assert not flow.beat_is_due(28.0)
    assert flow.beat_is_due(29.0)


@given(st.lists(st.text(max_size=40_000), max_size=12), st.data())
def test_every_item_goes_out_once_in_order_and_none_without_credit(
    items: list[str], data: st.DataObject
) -> None:
    flow = outflow(data.draw(st.integers(0, 5)))
    sent: list[Part] = []
    waiting = list(items)
    granted = flow.credit
    while waiting:
        if not flow.room:
            more = data.draw(st.integers(1, 5))
            granted += more
            flow.grant(more, 0.0)
            for part in sent:
                flow.confirm(part)
        count = data.draw(st.integers(1, max(1, min(flow.room, len(waiting)))))
        count = min(count, flow.room)
        sent += pack(flow, waiting[:count])
        del waiting[:count]

        assert flow.seq == sum(part.length for part in sent) <= granted

    assert [item for part in sent for item in json.loads(part.items)] == items
    assert [part.seq for part in sent] == [sum(p.length for p in sent[:n]) for n in range(len(sent))]
    assert all(part.length == 1 or len(part.items) <= MOST_BYTES for part in sent)


def test_items_before_one_without_json_form_are_sent() -> None:
    def picky(items: Sequence[Any]) -> bytes:
        if None in items:
            raise ValueError("None has no form")
        return dump(items)

    parts = Outflow(MOST_ITEMS, picky, idle=30.0, now=0.0).pack([1, 2, 3, None, 5], 0.0)

    assert [next(parts).items for _ in range(2)] == [b"[1,2]", b"[3]"]
    with pytest.raises(ValueError, match="no form"):
        next(parts)


@pytest.mark.parametrize(("idle", "seconds"), [(6.0, 2.0), (30.0, 10.0), (180.0, 10.0)])
def test_signs_of_life_come_before_any_reader_gives_up(idle: float, seconds: float) -> None:
    flow = outflow(idle=idle)

    assert not flow.beat_is_due(seconds - 0.1)
    assert flow.beat_is_due(seconds)


def test_item_without_json_form_raises_and_nothing_counts_as_sent() -> None:
    flow = outflow()

    with pytest.raises(TypeError):
        pack(flow, [object()])
    assert (flow.seq, flow.credit) == (0, MOST_ITEMS)
