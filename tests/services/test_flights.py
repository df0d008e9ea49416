"""The flights service: its figures are those of a plain reading of the same file."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from nebula import VerbError
from services.flights.app import airline
from services.flights.data import MISSING, carriers, flights_csv
from tests.spark.engine import Engine, engine
from tests.spark.told import task

Row = dict[str, str]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def flights(cache: Path) -> list[Row]:
    with (flights_csv(cache)).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with pytest.MonkeyPatch.context() as patch:
        # The engine host unpacks the file for itself, as it does the first time.
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("home")))
        with engine(tmp_path_factory.mktemp("flights")) as running:
            yield running


def mean(rows: list[Row], column: str) -> float | None:
    known = [float(row[column]) for row in rows if row[column] != MISSING]
    return fmean(known) if known else None


def delays_of(rows: list[Row]) -> list[dict[str, Any]]:
    """What `delays` has to answer, without Spark."""
    by_carrier: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_carrier[row["carrier"]].append(row)
    found = [
        {
            "carrier": carrier,
            "name": carriers()[carrier],
            "flights": len(group),
            "mean_departure_delay": pytest.approx(mean(group, "dep_delay")),
            "mean_arrival_delay": pytest.approx(mean(group, "arr_delay")),
        }
        for carrier, group in by_carrier.items()
    ]
    return sorted(found, key=lambda one: (-one["flights"], one["carrier"]))


def run(spark: Engine, job: str, function: str, **parameters: Any) -> Any:
    spark.submit(task(job, f"services.flights.app:{function}", **parameters))
    return spark.told.wait(job, "done", "failed")


def test_airline_knows_a_carrier_in_any_case() -> None:
    assert airline("ua") == airline("UA") == "United Air Lines Inc."


def test_unknown_airline_is_not_found_and_the_known_ones_are_named() -> None:
    with pytest.raises(VerbError, match="no carrier has the code 'XX'; there are 9E, AA") as caught:
        airline("XX")

    assert caught.value.code == "not-found"


def test_there_are_sixteen_carriers_and_all_flights(flights: list[Row]) -> None:
    assert len(carriers()) == 16
    assert len(flights) == 336_776
    assert {row["carrier"] for row in flights} == carriers().keys()


def test_file_is_unpacked_once_and_nothing_unfinished_stays(cache: Path, flights: list[Row]) -> None:
    path = flights_csv(cache)
    written = path.stat().st_mtime_ns

    assert flights_csv(cache).stat().st_mtime_ns == written
    assert list(cache.iterdir()) == [path]


@pytest.mark.spark
@pytest.mark.slow
def test_delays_of_all_carriers_are_those_of_the_file(spark: Engine, flights: list[Row]) -> None:
    output = run(spark, "delays", "delays")

    assert len(output.value) == 16
    assert output.value == delays_of(flights)


@pytest.mark.spark
@pytest.mark.slow
def test_delays_of_a_month_count_its_flights_only(spark: Engine, flights: list[Row]) -> None:
    output = run(spark, "delays in February", "delays", month=2)

    assert output.value == delays_of([row for row in flights if row["month"] == "2"])


@pytest.mark.spark
@pytest.mark.slow
def test_busiest_hours_are_counted_by_python_in_the_workers(spark: Engine, flights: list[Row]) -> None:
    output = run(spark, "busiest", "busiest_hours", origin="JFK", top=5)

    counted = Counter(
        (f"{date(int(row['year']), int(row['month']), int(row['day'])):%A}", int(row["hour"]))
        for row in flights
        if row["origin"] == "JFK"
    )
    expected = sorted(counted.items(), key=lambda one: (-one[1], one[0]))[:5]
    assert [((hour["weekday"], hour["hour"]), hour["flights"]) for hour in output.value] == expected


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "parameters"), [("delays", {"month": 13}), ("busiest_hours", {"top": 0})]
)
def test_parameters_out_of_range_are_refused(
    spark: Engine, function: str, parameters: dict[str, int]
) -> None:
    failure = run(spark, f"refused {function}", function, **parameters)

    assert failure.code == "bad-parameters"
