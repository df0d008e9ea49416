"""Histograms of durations, and the statistics made of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebula.rpc.errors import UnexpectedReply
from nebula.rpc.service.statistics import Tally, merged, subscriber_to_json, without_buckets
from nebula.rpc.wire.histogram import Histogram


def of(*seconds: float) -> Histogram:
    made = Histogram()
    for each in seconds:
        made.add(each)
    return made


DURATIONS = st.lists(st.floats(min_value=1e-8, max_value=1e5), min_size=1, max_size=200)


@given(DURATIONS, st.floats(min_value=0, max_value=1))
def test_quantile_is_never_below_the_truth_and_a_sixteenth_above_at_most(
    seconds: list[float], share: float
) -> None:
    ordered = sorted(seconds)
    wanted = max(1, -int(-share * len(ordered) // 1))
    truth = ordered[wanted - 1]

    found = of(*seconds).quantile(share)

    assert found is not None
    assert truth <= found <= truth * (1 + 1 / 16) * (1 + 1e-9)


def test_histogram_of_nothing_has_no_quantile() -> None:
    assert Histogram().quantile(0.5) is None


@given(DURATIONS, DURATIONS)
def test_two_merged_histograms_are_as_if_all_had_been_counted_in_one(
    left: list[float], right: list[float]
) -> None:
    both = of(*left)
    both.merge(of(*right))

    assert both.to_json() == of(*left, *right).to_json()
    assert both.total == len(left) + len(right)


@given(DURATIONS)
def test_histogram_is_read_back_as_it_is_written(seconds: list[float]) -> None:
    made = of(*seconds)

    assert Histogram.from_json(made.to_json()).to_json() == made.to_json()


@pytest.mark.parametrize("pairs", [[[10**6, 1]], [[0, -1]], [[0, 10**300]], [["x", 1]], [[1]], [1]])
def test_malformed_histogram_is_refused(pairs: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        Histogram.from_json(pairs)


def test_a_clock_that_stood_still_or_went_back_is_counted_as_next_to_nothing() -> None:
    found = of(0.0, -1.0).quantile(1)

    assert found is not None
    assert found < 1e-8


def test_it_grows_with_the_spread_and_not_with_the_number() -> None:
    made = of(*(1e-6 * (number % 1000 + 1) for number in range(20_000)))

    assert made.total == 20_000
    assert len(made.to_json()) < 200


def test_bounds_count_all_that_took_no_longer() -> None:
    assert of(0.002, 0.02, 0.02, 3.0).at_most([0.001, 0.01, 0.1, 10.0]) == [0, 1, 3, 4]


# --- over several instances ---


def reply(*seconds: float, errors: int = 0, uptime: float = 1.0) -> dict[str, Any]:
    tally = Tally(requests=len(seconds), errors=errors)
    for each in seconds:
        tally.add(each)
    return {"service": "s", "uptime_seconds": uptime, "busy": 1, "verbs": {"quote": tally.to_json()}}


def test_merged_statistics_are_those_of_all_requests_together() -> None:
    found = merged([reply(0.001, 0.001, 0.001, errors=1, uptime=5), reply(1.0, uptime=9)])

    quote = found["verbs"]["quote"]
    assert (found["instances"], found["uptime_seconds"], found["busy"]) == (2, 9, 2)
    assert (quote["requests"], quote["errors"], quote["longest_seconds"]) == (4, 1, 1.0)
    assert quote["mean_seconds"] == pytest.approx(0.25075)
    assert quote["p50_seconds"] == pytest.approx(0.001, rel=1 / 16)
    assert quote["p99_seconds"] == pytest.approx(1.0, rel=1 / 16)


def test_instance_without_latency_is_still_counted() -> None:
    old = reply(0.5)
    del old["verbs"]["quote"]["latency"]

    quote = merged([old])["verbs"]["quote"]

    assert (quote["requests"], quote["p50_seconds"]) == (1, None)


@pytest.mark.parametrize("odd", [{}, {"verbs": []}, {"verbs": {"quote": {}}}, {"verbs": {"quote": None}}])
def test_reply_that_is_no_statistics_is_unexpected(odd: Any) -> None:
    with pytest.raises(UnexpectedReply, match="stats"):
        merged([odd])


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1, 1e300, 10**400])
@pytest.mark.parametrize("field", ["requests", "errors", "mean_seconds", "longest_seconds"])
def test_number_that_cannot_be_true_is_unexpected(field: str, number: float) -> None:
    odd = reply(0.5)
    odd["verbs"]["quote"][field] = number

    with pytest.raises(UnexpectedReply, match="stats"):
        merged([odd])


def listening(*seconds: float, unreadable: Any = 0) -> dict[str, Any]:
    tally = Tally(requests=len(seconds), errors=1)
    for each in seconds:
        tally.add(each)
    others = {"unreadable": unreadable, "given_up": 1, "waiting": 2}
    return reply(0.5) | {"listens": [subscriber_to_json("/topic/news", "note", tally, others)]}


def test_functions_that_are_called_for_messages_are_added_up_too() -> None:
    (note,) = merged([listening(0.001, 0.001, unreadable=3), listening(1.0), reply(0.5)])["listens"]

    assert (note["destination"], note["handler"]) == ("/topic/news", "note")
    assert (note["messages"], note["errors"], note["unreadable"], note["given_up"]) == (3, 2, 3, 2)
    assert (note["waiting"], note["longest_seconds"]) == (4, 1.0)
    assert note["p50_seconds"] == pytest.approx(0.001, rel=1 / 16)


@pytest.mark.parametrize("odd", [float("nan"), -1, "many", None])
def test_listener_that_tells_no_counts_is_unexpected(odd: Any) -> None:
    with pytest.raises(UnexpectedReply, match="stats"):
        merged([listening(0.5, unreadable=odd)])


@given(DURATIONS)
def test_none_of_the_quantiles_is_above_the_longest(seconds: list[float]) -> None:
    tally = Tally(requests=len(seconds))
    for each in seconds:
        tally.add(each)

    told = tally.to_json()

    assert told["p50_seconds"] <= told["p99_seconds"] <= told["longest_seconds"] == max(seconds)


def test_people_and_programs_are_spared_the_buckets() -> None:
    shown = without_buckets(listening(0.5))

    assert "latency" not in shown["verbs"]["quote"]
    assert "latency" not in shown["listens"][0]


def test_request_under_way_does_not_lower_the_mean() -> None:
    tally = Tally(requests=2)
    tally.add(0.5)

    assert tally.to_json()["mean_seconds"] == 0.5
    assert merged([{"verbs": {"quote": tally.to_json()}}])["verbs"]["quote"]["mean_seconds"] == 0.5
