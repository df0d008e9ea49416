"""Medians and ratios of what was measured."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version

import pytest

from benchmarks import report
from benchmarks.__main__ import of_this_build, planned
from benchmarks.contestants import INTERPRETED, stomp
from benchmarks.echo import summary
from benchmarks.figures import Figures
from benchmarks.peers import Broker
from benchmarks.profile import self_times
from benchmarks.row import Aim, Contestant, Row
from benchmarks.rows import BROKERS, ROWS, chosen
from benchmarks.stream import Measurement


def _nothing(broker: Broker, seconds: float) -> Measurement:
    raise NotImplementedError


OURS = Contestant("Nebula", "nebula", _nothing)
EMPTY = Contestant("Nebula, empty", "nebula", _nothing)
SLOW = Contestant("RabbitMQ", "rabbitmq", _nothing)
FAST = Contestant("ActiveMQ", "activemq", _nothing)
RUN = report.Run(
    "2026-11-21",
    1,
    2.0,
    {"nebula": "Nebula 1", "rabbitmq": "RabbitMQ 3", "activemq": "ActiveMQ 5"},
    ["Python 3"],
)
ROW = Row("queue", "Queue", "Through a queue.", "messages", [OURS, SLOW, FAST], aim=2.5)


def _rounds(**rates: Sequence[float]) -> dict[tuple[str, str], list[Measurement]]:
    return {(ROW.name, name): [Measurement(rate) for rate in taken] for name, taken in rates.items()}


def test_ratio_is_that_of_the_medians() -> None:
    rounds = _rounds(Nebula=[10.0, 300.0, 900.0], RabbitMQ=[100.0, 50.0, 1.0], ActiveMQ=[100.0])

    ours, slow, fast = report.lines(ROW, rounds)

    assert ours.ratio is None
    assert slow.ratio == 6.0
    assert fast.ratio == 3.0
    assert slow.spread == pytest.approx(99 / 50)


@pytest.mark.parametrize(("best", "said"), [(100.0, "3.00 times"), (150.0, "missed")])
def test_aim_is_judged_by_the_best_of_the_others(best: float, said: str) -> None:
    rounds = _rounds(Nebula=[300.0], RabbitMQ=[10.0], ActiveMQ=[best])

    assert said in report.verdict(ROW, rounds)


def test_latency_compares_where_a_request_goes_alone() -> None:
    row = Row("one", "One", "Alone.", "requests", [OURS, FAST], aim=1.5, by_latency=True)
    rounds = {
        ("one", "Nebula"): [Measurement(1.0, p50=1e-4, p99=1e-3)],
        ("one", "ActiveMQ"): [Measurement(9.0, p50=2e-4, p99=1e-3)],
    }

    assert report.lines(row, rounds)[1].ratio == pytest.approx(2.0)


def test_silence_has_no_percentiles_and_fails_the_row() -> None:
    with pytest.raises(ConnectionError, match="nothing was answered in"):
        summary([], 2.0)


def test_row_without_others_has_no_verdict() -> None:
    assert report.verdict(ROW, _rounds(Nebula=[300.0])) == ""


def test_page_has_every_row_and_leaves_out_empty_columns() -> None:
    rounds = _rounds(Nebula=[300.0], RabbitMQ=[10.0])

    page = report.markdown([ROW], rounds, RUN)

    assert "## Queue" in page
    assert "| Nebula | 300 |" in page
    assert "p50" not in page
    assert "30.00 times the best of the others; target 2.5: met." in page


def test_figures_of_last_values_have_columns_of_their_own() -> None:
    measured = Measurement(
        10.0, cost=3.05e-6, received=0.5, slow_received=0.041, took=0.25, size_bytes=32_800_000
    )

    page = report.markdown([ROW], {(ROW.name, "Nebula"): [measured]}, RUN)

    assert "|  | messages/s | spread | s | MB | received | slow reader | cpu µs |" in page
    assert "| Nebula | 10 | 0% | 0.25 | 32.8 | 50% | 4% | 3.05 |" in page


def test_aim_may_be_about_another_of_ours_and_counts_both_directions() -> None:
    row = Row("deep", "Deep", "A queue.", "messages", [OURS, EMPTY, FAST], aim=0.5, against=EMPTY.name)
    rounds = {
        ("deep", "Nebula"): [Measurement(80.0, drained=40.0, resident_bytes=72_000_000)],
        ("deep", "Nebula, empty"): [Measurement(100.0, drained=100.0)],
        ("deep", "ActiveMQ"): [Measurement(9.0)],
    }

    page = report.markdown([row], rounds, RUN)

    assert "|  | messages/s | spread | RSS MB | times | drained/s | times drained |" in page
    assert "| Nebula, empty | 100 | 0% |  | 0.80 | 100 | 0.40 |" in page
    assert "0.40 times “Nebula, empty”; target 0.5: missed." in page


def test_row_that_takes_long_is_asked_for_fewer_rounds() -> None:
    asked = [replace(ROW, max_rounds=1), replace(ROW, name="other")]

    plan = planned(asked, {"nebula"}, 3)

    assert [row.name for row, _ in plan] == ["queue", "other", "other", "other"]


@pytest.mark.parametrize(
    ("most", "said"), [(1, "one round"), (2, "2 rounds"), (3, "3 rounds"), (9, "3 rounds")]
)
def test_page_says_of_how_many_rounds_a_median_is(most: int, said: str) -> None:
    row = replace(ROW, max_rounds=most)

    assert f"\n*2026-11-21, {said} of 2 s: " in report.markdown(
        [row], _rounds(Nebula=[1.0]), replace(RUN, rounds=3)
    )


def test_page_says_what_ran_in_a_row_and_nothing_else() -> None:
    row = replace(ROW, libraries=["pydantic"])

    page = report.markdown([row], _rounds(Nebula=[1.0], ActiveMQ=[2.0]), RUN)

    assert f": Nebula 1, ActiveMQ 5, Python 3, pydantic {version('pydantic')}.*\n" in page
    assert "RabbitMQ 3" not in page
    assert "not the newest" in page.partition("## ")[0]


def test_row_that_was_measured_on_a_busy_machine_says_so_and_is_provisional() -> None:
    busy = report.markdown([ROW], _rounds(Nebula=[1.0]), replace(RUN, is_busy=True))
    quiet = report.markdown([ROW], _rounds(Nebula=[1.0]), RUN)

    assert "\n*2026-11-21, one round of 2 s, on a machine that other programs kept busy: Nebula 1" in busy
    assert Figures.of(busy).provisional == {"Queue"}
    assert Figures.of(quiet).provisional == frozenset()


def test_unknown_row_is_told_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="no row nope: there are queue-auto"):
        chosen(["nope"])


def test_every_row_has_a_name_of_its_own() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_every_contestant_names_a_broker_that_can_be_started() -> None:
    assert {contestant.broker for row in ROWS for contestant in row.contestants} <= BROKERS.keys()


def test_every_aim_against_one_of_ours_names_a_contestant() -> None:
    assert all(row.against in {None, *(c.name for c in row.contestants)} for row in ROWS)


def test_every_aim_is_about_one_of_ours() -> None:
    assert all(row.contestants[0].is_ours for row in ROWS)


def _names(row: Row) -> set[str]:
    return {contestant.name for contestant in row.contestants}


@pytest.mark.parametrize("is_compiled", [True, False])
def test_interpreted_build_is_a_contestant_where_the_other_one_runs(is_compiled: bool) -> None:
    row = replace(ROW, contestants=stomp(_nothing))

    (measured,) = of_this_build([row], is_compiled=is_compiled)

    assert _names(row) - _names(measured) == (set() if is_compiled else {INTERPRETED})
    assert measured.contestants[0].name == "Nebula"


def test_busiest_line_comes_first() -> None:
    samples = "main;read (a.py:1) 1\nmain;parse (b.py:2) 2\nmain;other;read (a.py:1) 5\n"

    assert self_times(samples) == [("read (a.py:1)", 0.75), ("parse (b.py:2)", 0.25)]


def test_waiting_thread_is_not_busy() -> None:
    samples = "main;read (a.py:1) 3\nwork;Condition.wait (threading.py:327) 9\n"

    assert self_times(samples) == [("read (a.py:1)", 1.0)]


@pytest.mark.parametrize(("more", "said"), [(0.008, "8.0 ms more"), (0.025, "target p50 10.0 ms: missed")])
def test_overhead_is_how_much_longer_it_takes_than_the_thing_itself(more: float, said: str) -> None:
    row = Row("job", "Job", "A job.", "jobs", [OURS], aims=[Aim(OURS.name, "more", 0.010)])
    rounds = {("job", OURS.name): [Measurement(9.0, p50=0.1, more=more, more_p90=0.03)]}

    assert said in report.verdict(row, rounds)
    assert "| Nebula | 9 | 0% | 100,000 |" in (page := report.markdown([row], rounds, RUN))
    assert f"| {more * 1e6:,.0f} | 30,000 |" in page


def test_latency_that_is_aimed_at_in_itself_needs_nobody_beside_it() -> None:
    row = Row("loop", "Loop", "A loop.", "ticks", [OURS], aims=[Aim(OURS.name, "p99", 0.005)])

    assert report.verdict(row, {("loop", OURS.name): [Measurement(100.0, p50=0.001, p99=0.004)]}) == (
        "p99 4.0 ms; target p99 5.0 ms: met"
    )


def test_each_contestant_that_is_aimed_for_is_judged_by_its_own_bound() -> None:
    aims = [Aim(OURS.name, "rate", 400), Aim("RabbitMQ", "took", 3.0), Aim("not measured", "rate", 1)]
    rounds = _rounds(Nebula=[300.0]) | {("queue", "RabbitMQ"): [Measurement(1.0, took=2.0)]}

    assert report.verdict(replace(ROW, aims=aims), rounds) == (
        "Nebula: 300 messages/s; target 400 messages/s: missed; RabbitMQ: 2.00 s; target 3.00 s: met"
    )


OTHER = Row("other", "Another", "Something else.", "messages", [OURS])
FRESH = Row("fresh", "A new one", "New.", "messages", [OURS])


def _titles(page: str) -> list[str]:
    return [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]


def test_row_that_is_measured_alone_takes_its_place_in_the_page() -> None:
    rounds = _rounds(Nebula=[300.0], RabbitMQ=[10.0]) | {("other", "Nebula"): [Measurement(7.0)]}
    page = report.markdown([ROW, OTHER], rounds, RUN)

    again = {(row.name, "Nebula"): [Measurement(8.0)] for row in (ROW, FRESH)}
    later = replace(RUN, day="2026-12-01", rounds=1, versions={"nebula": "Nebula 2"})
    renewed = report.with_rows(page, [ROW, FRESH], again, later, [FRESH, ROW, OTHER])

    new, first, second = renewed.split("\n## ")[1:]
    assert _titles(renewed) == ["A new one", "Queue", "Another"]
    assert "| Nebula | 8 |" in new
    assert "| Nebula | 8 |" in first
    assert "RabbitMQ" not in first
    assert first.endswith("\n*2026-12-01, one round of 2 s: Nebula 2, Python 3.*\n")
    assert second == page.split("\n## ")[2]


def test_row_that_failed_keeps_what_was_measured_before() -> None:
    page = report.markdown([ROW], _rounds(Nebula=[300.0]), RUN)

    assert report.with_rows(page, [ROW], {}, replace(RUN, day="2026-12-01"), [ROW]) == page


def test_row_that_is_not_there_any_more_leaves_the_page() -> None:
    rounds = _rounds(Nebula=[300.0]) | {("other", "Nebula"): [Measurement(7.0)]}
    page = report.markdown([ROW, OTHER], rounds, RUN)

    assert _titles(report.with_rows(page, [], {}, RUN, [OTHER])) == ["Another"]


def test_figures_of_two_machines_are_not_put_into_one_page(monkeypatch: pytest.MonkeyPatch) -> None:
    page = report.markdown([ROW], _rounds(Nebula=[300.0]), RUN)
    report.check_machine(page)

    monkeypatch.setattr(os, "cpu_count", lambda: 1_024)

    with pytest.raises(ValueError, match="not of this machine"):
        report.check_machine(page)
