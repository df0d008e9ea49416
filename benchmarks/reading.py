"""How quickly Avro is read in Spark, by each reader, compared with Parquet and plain polars.

    python -m benchmarks.reading --rows 2000000 --seconds 10

The data are readings: a machine, a sensor, a time, a value, a quality and a note that is mostly null, in
eight files, deflated.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import count, islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import fastavro

from benchmarks.peers import Broker
from benchmarks.processes import answer_of
from benchmarks.row import Aim, Contestant, Row
from benchmarks.stream import Measurement

ROWS = 2_000_000
AIMS = {"polars": 1_700_000, "fastavro": 500_000}
"""Rows a second on two cores."""

_FILES = 8
_DEADLINE_SECONDS = 600.0
_FIRST_MILLIS = 1_795_000_000_000

_SCHEMA = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "machine", "type": "int"},
        {"name": "sensor", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "value", "type": "double"},
        {"name": "quality", "type": "int"},
        {"name": "note", "type": ["null", "string"]},
    ],
}

NAMES = {
    "spark-avro": "Nebula, spark-avro",
    "polars": "Nebula, polars",
    "fastavro": "Nebula, fastavro",
    "parquet": "Parquet, by Spark",
    "polars-alone": "polars without Spark",
}


def rows() -> tuple[Row, ...]:
    """What `make bench` shows of the readers."""
    return (
        Row(
            "readers",
            "Readers: Avro in Spark",
            f"An aggregation over all columns of {ROWS:,} readings in {_FILES} deflated files, warm, on two"
            " cores: by each of our readers; for comparison the same as Parquet, and polars without Spark.",
            "rows",
            [Contestant(title, "nebula", partial(_row, name=name)) for name, title in NAMES.items()],
            max_rounds=2,
            aims=[Aim(NAMES[name], "rate", bound) for name, bound in AIMS.items()],
        ),
    )


def _row(broker: Broker, seconds: float, *, name: str) -> Measurement:  # noqa: ARG001  # no broker in it
    took, worked = measure(name, Path(_data(ROWS).name), seconds)
    return Measurement(ROWS / took, took=took, cost=worked / ROWS)


def measure(name: str, folder: Path, seconds: float) -> tuple[float, float]:
    """What one reader's passes take in a process of its own: the median of seconds, and of CPU seconds.

    Raises:
        Unavailable: it cannot be had here; says why.
    """
    arguments = (name, str(folder), str(seconds))
    passes: list[tuple[float, float]] = answer_of(
        "benchmarks.spark.readers", *arguments, timeout=_DEADLINE_SECONDS
    )
    return median(took for took, _ in passes), median(worked for _, worked in passes)


@cache
def _data(number: int) -> TemporaryDirectory[str]:
    """This many readings, as Avro and as Parquet; they are removed with the process."""
    import polars as pl

    folder: TemporaryDirectory[str] = TemporaryDirectory(prefix="nebula-readings-")
    avro, parquet = Path(folder.name, "avro"), Path(folder.name, "parquet")
    avro.mkdir()
    parquet.mkdir()
    made, parsed = _readings(), fastavro.parse_schema(_SCHEMA)
    for at in range(_FILES):
        file = avro / f"{at}.avro"
        with file.open("wb") as out:
            fastavro.writer(out, parsed, islice(made, number // _FILES), codec="deflate")
        pl.read_avro(file).write_parquet(parquet / f"{at}.parquet")
    return folder


def _readings() -> Iterator[dict[str, Any]]:
    for number in count():
        yield {
            "machine": number * 7919 % 500,
            "sensor": f"sensor-{number % 20}",
            "at": _FIRST_MILLIS + number * 43,
            "value": number % 10_007 * 0.25,
            "quality": number % 4,
            "note": f"note {number % 97}" if number % 20 == 0 else None,
        }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure each reader once, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--readers", nargs="*", default=list(NAMES), choices=list(NAMES))
    told = parser.parse_args(arguments)
    folder = Path(_data(told.rows).name)
    size = sum(file.stat().st_size for file in (folder / "avro").iterdir())
    print(f"{told.rows:,} readings, {size / 1e6:.1f} MB of Avro")
    for name in told.readers:
        took, worked = measure(name, folder, told.seconds)
        aim = f"  (aim {AIMS[name]:,})" if name in AIMS else ""
        cost = f"{took:7.3f} s, {worked / told.rows * 1e6:6.2f} CPU us a row"
        print(f"{NAMES[name]:22} {told.rows / took:12,.0f} rows/s {cost}{aim}", flush=True)


if __name__ == "__main__":
    main()
