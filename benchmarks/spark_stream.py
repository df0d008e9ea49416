"""Spark as a peer on the broker: rows a second out of a queue and into one, and how old they are by then.

    python -m benchmarks.spark_stream --rows 200000

The broker and Spark share the cores. The sink's rows are messages of about 200 bytes on the disk, each with
its receipt; the source reads the same back through its spool.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from statistics import median, quantiles
from typing import Any

from benchmarks.own import nebula_broker
from benchmarks.peers import Broker
from benchmarks.processes import answer_of
from benchmarks.row import Contestant, Row
from benchmarks.stream import Measurement

ROWS = 200_000
MESSAGES = 1000
_DEADLINE_SECONDS = 600.0


def rows() -> tuple[Row, ...]:
    """What `make bench` shows of Spark's source and sink."""
    return (
        Row(
            "spark-stream",
            "Spark as a peer: source and sink",
            f"{ROWS:,} rows of some 200 bytes from Spark into a queue, each with its receipt; and from the"
            " queue through the spool into a query that does nothing with them.",
            "rows",
            [
                Contestant("Nebula, sink", "nebula --store sqlite", partial(_rate, kind="sink")),
                Contestant("Nebula, source", "nebula --store sqlite", partial(_rate, kind="source")),
            ],
            max_rounds=2,
        ),
        Row(
            "spark-stream-latency",
            "Spark as a peer: latency",
            "From before a message is sent, 50 a second, until its row is in the driver's hands.",
            "messages",
            [Contestant("Nebula, source", "nebula --store sqlite", _latency)],
            by_latency=True,
            max_rounds=2,
        ),
    )


def _rate(broker: Broker, seconds: float, *, kind: str) -> Measurement:  # noqa: ARG001  # a number of rows, not seconds
    return measure_rate(broker, kind, ROWS)


def _latency(broker: Broker, seconds: float) -> Measurement:  # noqa: ARG001  # a number of messages, not seconds
    return measure_latency(broker, MESSAGES)


def measure_rate(broker: Broker, kind: str, count: int) -> Measurement:
    """Write or read this many rows once. Raises Unavailable: it failed; says how."""
    taken = float(_run(broker, kind, count))
    return Measurement(count / taken, took=taken)


def measure_latency(broker: Broker, count: int) -> Measurement:
    """The latencies of this many messages. Raises Unavailable: it failed; says how."""
    found: list[float] = _run(broker, "latency", count)
    return Measurement(1 / median(found), p50=median(found), p99=quantiles(found, n=100)[98])


def _run(broker: Broker, kind: str, count: int) -> Any:
    url = f"stomp://127.0.0.1:{broker.port}"
    return answer_of("benchmarks.spark.streaming", kind, url, str(count), timeout=_DEADLINE_SECONDS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure each once, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    told = parser.parse_args(arguments)
    with nebula_broker(store="sqlite") as broker:
        for kind in ("sink", "source"):
            found = measure_rate(broker, kind, told.rows)
            print(f"{kind:8} {found.took:7.2f} s {found.rate:10,.0f} rows/s", flush=True)
        found = measure_latency(broker, told.messages)
        print(f"latency  p50 {found.p50:.3f} s  p99 {found.p99:.3f} s", flush=True)


if __name__ == "__main__":
    main()
