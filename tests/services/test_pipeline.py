"""`make demo-pipeline`, as a newcomer sees it, only smaller; and what it is made of."""

from __future__ import annotations

import csv
import io
import math
import os
from pathlib import Path

import fastavro
import pytest

from services.flights.data import flights_csv
from services.pipeline import flights, meters
from services.pipeline.app import CarrierRow, HourOfAll, Turnover, Written
from services.pipeline.checks import carriers_check, readings_check, turnover_check
from tests.services.demos import run_demo, running, without_java

_DEMO = "services.pipeline.demo"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_pipeline_ends_with_every_total_as_it_has_to_be_and_leaves_nothing_running(tmp_path: Path) -> None:
    mark = f"nebula-pipeline-test-{os.getpid()}"

    demo = run_demo(_DEMO, "--results", str(tmp_path), "--flights", "3000", "--readings", "40000", mark=mark)

    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stdout.count(" holds ") == 4
    assert "3,000 flights of" in demo.stdout
    assert (tmp_path / "turnover.png").read_bytes().startswith(b"\x89PNG")
    assert list((tmp_path / "turnover.parquet").glob("*.parquet"))
    assert running(mark) == []


def test_pipeline_without_any_java_says_so_in_a_sentence_and_exits_with_1(tmp_path: Path) -> None:
    demo = run_demo(_DEMO, "--results", str(tmp_path / "results"), more=without_java(tmp_path))

    assert demo.returncode == 1
    assert "Spark needs Java 17 or newer" in demo.stderr
    assert "Traceback" not in demo.stderr


def test_pipeline_of_too_little_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    demo = run_demo(_DEMO, "--results", str(tmp_path / "results"), "--readings", "10")

    assert demo.returncode == 2
    assert "at least one flight and 2,000 readings" in demo.stderr
    assert not (tmp_path / "results").exists()


def test_flight_in_avro_has_what_its_line_of_the_csv_has() -> None:
    with flights_csv().open(newline="") as file:
        line = next(csv.DictReader(file))

    value = fastavro.schemaless_reader(io.BytesIO(next(flights.data(1))), flights.FLIGHT.parsed, None)

    assert isinstance(value, dict)
    assert {name: str(number) for name, number in value.items() if isinstance(number, int)} == {
        name: text for name, text in line.items() if isinstance(value[name], int)
    }
    assert value["time_hour"].isoformat() == "2013-01-01T10:00:00+00:00"
    assert (value["dep_delay"], value["carrier"]) == (2.0, "UA")


def test_readings_are_the_same_for_the_same_seed_and_others_for_another() -> None:
    first, again, other = (list(meters.readings(3_000, meters.Ledger(), seed=seed)) for seed in (1, 1, 2))

    assert first == again
    assert first != other


def test_ledger_has_the_difference_of_the_first_and_last_reading_of_each_machine() -> None:
    ledger = meters.Ledger()
    values = [
        fastavro.schemaless_reader(io.BytesIO(datum), meters.READING.parsed, None)
        for datum in meters.readings(70 * meters.MACHINES, ledger)
    ]

    rose: dict[str, list[int]] = {}
    for value in values:
        assert isinstance(value, dict)
        rose.setdefault(value["machine"], []).append(value["turnover"])
    assert ledger.total == sum(seen[-1] - seen[0] for seen in rose.values())
    assert len(ledger.hours) == 2
    assert ledger.readings == len(values)


def test_check_of_carriers_finds_the_last_digit() -> None:
    expected = {"UA": flights.Carrier(3, 3, 1.0, 3, 2.0)}
    row = CarrierRow(carrier="UA", flights=3, departure=1 / 3, arrival=2 / 3)

    assert carriers_check(expected, [row]).holds
    off = row.model_copy(update={"arrival": math.nextafter(2 / 3, 1)})
    assert not carriers_check(expected, [off]).holds
    assert not carriers_check(expected, []).holds


def test_check_of_turnover_names_the_hour_that_is_off() -> None:
    ledger = meters.Ledger()
    ledger.turnover["egm-0001", meters.BEGIN_MS] = 500
    hour = HourOfAll.model_validate({"hour": meters.BEGIN_MS / 1000, "turnover": 500})

    assert turnover_check(ledger, Turnover(rows=1, hours=[hour])).holds
    wrong = Turnover(rows=1, hours=[hour.model_copy(update={"turnover": 499})])
    assert f"hour {meters.BEGIN_MS}: 499 cents are not 500" in turnover_check(ledger, wrong).breaches
    assert not turnover_check(ledger, Turnover(rows=0, hours=[])).holds


def test_check_of_readings_sees_one_that_is_lost_where_another_is_there_twice() -> None:
    ledger = meters.Ledger(readings=3, cents=60)
    half = Written(readings=2, cents=30, seconds=1)

    assert readings_check(ledger, half, Written(readings=1, cents=30, seconds=1)).holds
    lost = readings_check(ledger, half, Written(readings=1, cents=20, seconds=1))
    assert lost.breaches == ["3 came out, with 50 cents of 60"]
    assert not readings_check(ledger, half, Written(readings=0, cents=0, seconds=1)).holds
