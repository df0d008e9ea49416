"""`python -m benchmarks.scale`: a capacity model, checked against rows that it has not seen, and then scaled.

Reads `results.md` and prints the tables of `docs/explanation/scale.md`; `--write` renews them there.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from zlib import crc32

from benchmarks.costs import RECORDER, Broker, Costs, Prediction, calls, fitted, predictions
from benchmarks.figures import RESULTS, Figures, MissingFigure
from benchmarks.pages import Table, markdown, renewed
from benchmarks.simulation import Clock, End, Program, Stop, arrivals, percentile

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "scale.md"
# How far a prediction may be from what was measured to count as one that came true.
TOLERANCE = 0.25
# Of a core; above it waiting grows quickly.
_PLANNED = 0.7

_PREFIXES = 400
_OFFERED = 1_000_000
_PUBLISHERS = 8
_CORES = 16
_SEED = 20130101

# What is recorded, read and asked for is in rows that not every run has.
_PIPELINE = (RECORDER, "Readers: Avro in Spark", "A job, from the request to its result")
# The cores that these rows were measured on, all of them.
_MEASURED_CORES = 2
_READ_WITHIN_SECONDS = 60


def tables(figures: Figures) -> dict[str, str]:
    """Each table of the page, as Markdown, by its name in the page.

    Raises:
        MissingFigure: the results lack a row that the model needs.
    """
    costs = Costs.of(figures)
    made: dict[str, Table] = {
        "fitted": _fitted(costs),
        "predicted": _predicted(figures, costs),
        "core": _one_core(costs),
        "split": _split(costs.broker),
        "calls": _calls(figures, costs),
    }
    if all(figures.has(title) for title in _PIPELINE):
        made["pipeline"] = _pipeline(figures, costs)
        made["jobs"] = _jobs(figures)
    return {name: markdown(table) for name, table in made.items()}


def _fitted(costs: Costs) -> Table:
    rows = [[row, what, f"{seconds * 1e6:.2f}"] for row, what, seconds in fitted(costs)]
    return [["fitted on", "cost", "µs"], *rows]


def _predicted(figures: Figures, costs: Costs) -> Table:
    rows = []
    for one in predictions(figures):
        is_true = "yes" if abs(one.error) <= TOLERANCE else "no"
        shown = [_figure(one.measured), _figure(one.predicted), f"{one.error:+.0%}", is_true]
        fitted_on = "another line" if one.row in _rows_fitted_on(costs) else "nothing"
        rows.append([f"{one.row}: {one.contestant}", fitted_on, one.what, *shown])
    heading = ["predicted", "fitted on in its row", "unit", "measured", "simulated", "error"]
    return [[*heading, f"within {TOLERANCE:.0%}"], *rows]


def _rows_fitted_on(costs: Costs) -> set[str]:
    return {row for row, _, _ in fitted(costs)}


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _one_core(costs: Costs) -> Table:
    broker = costs.broker
    kinds = {
        "a message through a queue, auto acks": broker.relay,
        "the same, cumulative client acks": broker.relay + costs.ack,
        "the same, a receipt for each SEND": broker.relay + costs.receipt,
        "stored on disk, a receipt each, acknowledged": broker.relay + costs.receipt + costs.ack + costs.keep,
        "a topic's message to 10 subscribers": broker.receive + 10 * broker.deliver,
        "a topic's message to 100 subscribers": broker.receive + 100 * broker.deliver,
        "a call: request and reply": 2 * broker.relay,
        "a single call, with its two turns": 2 * (broker.turn + broker.relay),
    }
    rows = [[what, f"{seconds * 1e6:.1f}", f"{_PLANNED / seconds:,.0f}"] for what, seconds in kinds.items()]
    return [["", "µs", f"per second, at {_PLANNED:.0%} of a core"], *rows]


def _split(broker: Broker) -> Table:
    weights = {f"/queue/venue-{number:03}": (number + 1) ** -0.5 for number in range(_PREFIXES)}
    heading = ["brokers", "rate of the busiest", "use of its core", "p50 ms", "p99 ms"]
    return [heading, *(_on(brokers, broker, weights) for brokers in (4, 6, 8, 12))]


def _on(brokers: int, broker: Broker, weights: dict[str, float]) -> list[str]:
    loads = [0.0] * brokers
    for prefix, weight in weights.items():
        loads[crc32(prefix.encode()) % brokers] += weight
    share = max(loads) / sum(loads)
    rate = share * _OFFERED
    used = rate * broker.relay
    latencies = _open(broker, rate) if used < 1 else []
    shown = [
        f"{percentile(latencies, part) * 1e3:.1f}" if latencies else "overloaded" for part in (0.5, 0.99)
    ]
    return [str(brokers), f"{rate:,.0f}/s", f"{used:.0%}", *shown]


def _open(broker: Broker, rate: float) -> list[float]:
    """Latencies through one broker of messages that arrive by themselves on some connections."""
    clock, dice = Clock(), random.Random(_SEED)
    middle = Program(clock, 100)
    reached: list[End] = []
    for _ in range(_PUBLISHERS):
        end = End(clock, Program(clock, 1000), broker.turn, 0.0)
        sent = Stop(middle, broker.turn, broker.relay)
        sent.following = [end]
        arrivals(clock, sent, rate / _PUBLISHERS, dice)
        reached.append(end)
    clock.run(0.1)
    for end in reached:
        end.latencies.clear()
    clock.run(0.3)
    return [latency for end in reached for latency in end.latencies]


def _calls(figures: Figures, costs: Costs) -> Table:
    heading = ["broker", "alone: p50 ms", "64 in flight: calls/s", "calls/s per broker core"]
    heading += [f"services it supports, of {_CORES} cores"]
    rows = []
    for name in ("Nebula", "RabbitMQ", "ActiveMQ"):
        broker = Broker.of(figures, name)
        alone, many = calls(costs, broker, 1)[1], calls(costs, broker, 64)[0]
        served = _PLANNED / (2 * figures.seconds("Queue, auto acks", name, "cpu µs"))
        rows.append([name, f"{alone * 1e3:.2f}", f"{many:,.0f}", f"{served:,.0f}"])
        rows[-1].append(f"{_services(costs, served)}")
    return [heading, *rows]


def _services(costs: Costs, served: float) -> int:
    """How many cores may be services, if the rest belong to the broker that carries their calls."""
    calls_of_a_core = _PLANNED / costs.served
    return int(_CORES / (1 + calls_of_a_core / served))


def _pipeline(figures: Figures, costs: Costs) -> Table:
    recorder, readers, job = _PIPELINE
    envelopes = "Nebula, Avro in envelopes"
    kept = costs.broker.relay + costs.receipt / 256 + costs.ack + costs.keep
    recorded = figures.part(recorder, envelopes) / figures.rate(recorder, envelopes)
    read = _MEASURED_CORES / figures.rate(readers, "Nebula, polars")
    small = figures.seconds(job)
    rows = [
        [f"{rate:,}"]
        + [f"{math.ceil(rate * seconds / _PLANNED)}" for seconds in (kept, recorded)]
        + [f"{math.ceil((rate * 3600 * read + small) / _READ_WITHIN_SECONDS / _PLANNED):,}"]
        for rate in (10_000, 50_000, 200_000, 1_000_000)
    ]
    heading = ["messages per second", "brokers", "recorders"]
    return [[*heading, f"Spark cores to read one hour of them in {_READ_WITHIN_SECONDS} s"], *rows]


def _jobs(figures: Figures) -> Table:
    """Jobs of an engine, if one wants that many core seconds, which Spark divides among all cores."""
    small = figures.seconds(_PIPELINE[2])
    rows = []
    for work in (0.0, 1.0, 10.0, 100.0):
        shown = []
        for cores in (_MEASURED_CORES, _CORES):
            alone = small + work / cores
            shown += [f"{_PLANNED * 60 / alone:,.0f}", f"{alone:.1f}", f"{alone / (1 - _PLANNED):.1f}"]
        rows.append([f"{work:g}", *shown])
    columns = ("jobs per minute", "s alone", f"s at {_PLANNED:.0%}")
    heading = [f"{column}, {cores} cores" for cores in (_MEASURED_CORES, _CORES) for column in columns]
    return [["extra core seconds per job", *heading], *rows]


def _came_true(made: Sequence[Prediction]) -> str:
    return f"{sum(abs(one.error) <= TOLERANCE for one in made)} of {len(made)}"


def _lines(figures: Figures, shown: dict[str, str]) -> Iterator[str]:
    for name, table in shown.items():
        yield f"{name}\n\n{table}\n"
    known = _rows_fitted_on(Costs.of(figures))
    made = predictions(figures)
    new = [one for one in made if one.row not in known]
    yield f"{_came_true(made)} predictions are within {TOLERANCE:.0%}; none of these figures was fitted on."
    yield f"Of rows of which no line was fitted on: {_came_true(new)}."


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; the result is the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"renew the tables of {PAGE.name}")
    options = parser.parse_args(arguments)
    figures = Figures.of(RESULTS.read_text())
    try:
        shown = tables(figures)
    except MissingFigure as problem:
        print(problem, file=sys.stderr)
        return 1
    if options.write:
        PAGE.write_text(renewed(PAGE.read_text(), shown))
    print("\n".join(_lines(figures, shown)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
