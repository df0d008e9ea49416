"""When an idle engine is stopped or replaced: by its declaration and what is known of it, nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nebula.spark import Spark
from nebula.spark.idle_policy import Idle, most_rss_bytes, why_recycle, why_stop
from nebula.spark.settings import heap_bytes

GIB = 1024**3
FRESH = Idle(seconds=0.0, age=0.0, jobs=1, rss_bytes=0)


def test_engine_without_idle_stop_is_never_stopped() -> None:
    assert why_stop(Spark(), replace(FRESH, seconds=1e9)) is None


def test_engine_is_stopped_once_it_was_idle_for_so_long() -> None:
    spark = Spark(idle_stop=60)

    assert why_stop(spark, replace(FRESH, seconds=59.9)) is None
    assert why_stop(spark, replace(FRESH, seconds=60.0)) == "the engine was idle for 60 s"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"jobs": 499}, None),
        ({"jobs": 500}, "the engine was replaced after 500 jobs"),
        ({"age": 86399.0}, None),
        ({"age": 86400.0}, "the engine was replaced at the age of 86400 s"),
        ({"rss_bytes": 5 * GIB // 2}, None),
        ({"rss_bytes": 5 * GIB // 2 + 1}, "the engine was replaced: it held 2560 MiB, more than 2560"),
    ],
)
def test_engine_is_replaced_by_jobs_age_and_memory(changes: dict[str, Any], reason: str | None) -> None:
    assert why_recycle(Spark(), replace(FRESH, **changes)) == reason


def test_engine_that_had_no_job_is_not_replaced_since_its_successor_would_be_like_it() -> None:
    assert why_recycle(Spark(), Idle(seconds=1e9, age=1e9, jobs=0, rss_bytes=100 * GIB)) is None


def test_bound_of_memory_follows_the_heap_unless_it_is_declared() -> None:
    assert most_rss_bytes(Spark(memory="2g")) == 4 * GIB
    assert most_rss_bytes(Spark(memory="2g", conf={"spark.driver.memory": "4G"})) == 7 * GIB
    assert most_rss_bytes(Spark(recycle_above_bytes=5)) == 5
    assert most_rss_bytes(Spark(conf={"spark.driver.memory": "lots"})) is None


@pytest.mark.parametrize(
    ("text", "size"), [("512m", 512 * 1024**2), ("1g", GIB), ("3GB", 3 * GIB), ("1024", None), ("", None)]
)
def test_heap_is_read_as_spark_writes_it(text: str, size: int | None) -> None:
    assert heap_bytes(text) == size


@pytest.mark.parametrize("name", ["recycle_after_jobs", "recycle_after", "recycle_above_bytes", "idle_stop"])
def test_numbers_that_make_no_sense_are_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 0: more than 0 is wanted"):
        Spark(**{name: 0})  # type: ignore[arg-type]  # the names are tested, too
