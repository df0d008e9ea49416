"""The capacity model: what it says of rows that it has not seen, and that the page says the same."""

from __future__ import annotations

import pytest

from benchmarks.costs import Broker, Costs, calls, fitted, predictions, round_trips
from benchmarks.figures import RESULTS, Figures, MissingFigure
from benchmarks.pages import renewed
from benchmarks.scale import PAGE, TOLERANCE, tables
from benchmarks.simulation import Clock, End, Program, Stop, percentile, ring


@pytest.fixture(scope="module")
def figures() -> Figures:
    return Figures.of(RESULTS.read_text())


def test_three_rows_or_more_are_predicted_within_a_quarter(figures: Figures) -> None:
    true = {one.row for one in predictions(figures) if abs(one.error) <= TOLERANCE}

    assert len(true) >= 3


def test_no_contestant_is_fitted_and_predicted_in_the_same_row(figures: Figures) -> None:
    rows = {row for row, _, _ in fitted(Costs.of(figures))}

    ours = {(one.row, one.contestant) for one in predictions(figures) if one.row in rows}
    # Rows of several contestants of ours: fitted on one, predicted for another.
    assert ours == {
        ("RPC end to end, one at a time", "Nebula, verbs in broker"),
        ("RPC end to end, 64 in flight", "Nebula, verbs in broker"),
        ("Last values, an eager snapshot of 100,000 keys", "Nebula, client acks"),
    }


def test_rows_that_are_fitted_on_come_back_from_the_simulation(figures: Figures) -> None:
    costs = Costs.of(figures)

    assert round_trips(costs.broker, 1)[1] == pytest.approx(
        figures.seconds("Raw request/reply, one at a time"), rel=0.05
    )
    for row, in_flight in (("RPC end to end, one at a time", 1), ("RPC end to end, 64 in flight", 64)):
        assert calls(costs, costs.broker, in_flight)[0] == pytest.approx(figures.rate(row), rel=0.1)


def test_costs_of_a_slower_machine_predict_slower_rows(figures: Figures) -> None:
    broker = Broker.of(figures, "Nebula")
    slower = Broker("slower", broker.turn * 2, broker.receive * 2, broker.deliver * 2)

    assert round_trips(slower, 64)[0] == pytest.approx(round_trips(broker, 64)[0] / 2, rel=0.02)


def test_page_has_the_tables_that_the_program_prints(figures: Figures) -> None:
    page = PAGE.read_text()

    shown = tables(figures)
    assert all(table in page for table in shown.values())
    assert renewed(page, shown) == page


_PIPELINE = """
## The recorder

|  | messages/s | cpu µs | load |
| --- | ---: | ---: | ---: |
| Nebula, null | 90,000 | 1.30 | 90% |
| Nebula, Avro in envelopes | 50,000 | 1.00 | 80% |

## Readers: Avro in Spark

|  | rows/s |
| --- | ---: |
| Nebula, polars | 1,000,000 |

## A job, from the request to its result

|  | jobs/s | p50 µs |
| --- | ---: | ---: |
| Nebula | 10 | 100,000 |
"""


@pytest.fixture(scope="module")
def with_pipeline(figures: Figures) -> Figures:
    return Figures({**figures.tables, **Figures.of(_PIPELINE).tables})


def test_pipeline_wants_more_of_everything_for_more_messages(with_pipeline: Figures) -> None:
    _, _, *lines = tables(with_pipeline)["pipeline"].splitlines()

    wanted = [[int(cell.replace(",", "")) for cell in line.strip("| ").split(" | ")[1:]] for line in lines]
    assert wanted == sorted(wanted)
    # 0.8 / 50,000 s for each, 70 % of a core: 23 recorders for a million.
    assert wanted[-1][1] == 23


def test_engine_bears_fewer_jobs_the_more_they_compute_and_more_on_more_cores(with_pipeline: Figures) -> None:
    _, _, small, *_, large = tables(with_pipeline)["jobs"].splitlines()

    # 0.1 s each, 70 % of a minute; 100 s of a core are 50.1 s on two of them and 6.35 s on sixteen.
    assert small == "| 0 | 420 | 0.1 | 0.3 | 420 | 0.1 | 0.3 |"
    assert large == "| 100 | 1 | 50.1 | 167.0 | 7 | 6.3 | 21.2 |"


def test_broker_of_a_recorder_is_predicted_to_deliver_and_to_take_acks(with_pipeline: Figures) -> None:
    costs = Costs.of(with_pipeline)

    found = {one.contestant: one for one in predictions(with_pipeline) if one.row == "The recorder"}
    assert found["Nebula, null"].measured == pytest.approx(1.3)
    assert found["Nebula, null"].predicted == pytest.approx((costs.broker.deliver + costs.ack) * 1e6)


def test_results_without_a_row_are_named() -> None:
    with pytest.raises(MissingFigure, match="no “Queue, auto acks” of Nebula"):
        Costs.of(Figures.of("# Benchmarks\n\n## Another row\n\n|  | s |\n| --- | ---: |\n| Nebula | 1 |\n"))


def test_idle_program_pays_a_turn_for_each_message_and_a_busy_one_for_many() -> None:
    alone, many = (_circled(in_flight) for in_flight in (1, 10))

    # Two turns of 1 s and two messages of 0.1 s; with ten under way the turns are shared by all.
    assert percentile(alone, 0.5) == pytest.approx(2.2)
    assert percentile(many, 0.5) == pytest.approx(4.0)


def _circled(in_flight: int) -> list[float]:
    clock = Clock()
    load = End(clock, Program(clock, 10), 1.0, 0.1)
    ring([load, Stop(Program(clock, 10), 1.0, 0.1)], in_flight)
    clock.run(100.0)
    return load.latencies
