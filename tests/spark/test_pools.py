"""Scheduler pools: lent to one job each, with the weight of its priority."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from nebula.spark.host.pools import Pools


@pytest.mark.parametrize(
    ("priority", "level"), [(0, "low"), (3, "low"), (4, "normal"), (6, "normal"), (7, "high"), (9, "high")]
)
def test_pool_has_the_level_of_the_jobs_priority(priority: int, level: str) -> None:
    assert (Pools().take(priority) or "").partition("-")[0] == level


def test_each_job_has_a_pool_alone_until_it_gives_it_back() -> None:
    pools = Pools()
    taken = [pools.take(4) for _ in range(32)]

    assert len(set(taken)) == 32
    assert pools.take(4) is None
    pools.give_back(str(taken[7]))
    pools.give_back(str(taken[7]))
    pools.give_back("01JOB.1")
    assert [pools.take(4), pools.take(4)] == [taken[7], None]


def test_file_for_spark_names_every_pool_with_its_weight() -> None:
    file = ET.fromstring(Pools().as_xml())
    weights = {str(pool.get("name")): int(pool.findtext("weight") or 0) for pool in file}

    assert len(weights) == 96
    assert weights["low-0"] < weights["normal-0"] < weights["high-31"]
    assert {pool.findtext("schedulingMode") for pool in file} == {"FAIR"}
