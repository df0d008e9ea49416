"""A real JVM with a small heap that jobs use up: which is told `out-of-memory`, and what is run again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from nebula.rpc.contract.job_runner import ENGINE_LOST, OUT_OF_MEMORY
from nebula.spark.crash_report import stage_of, starved_thread
from tests.spark.engine import CONF, Engine, engine, until
from tests.spark.told import isolated, task

# The start of what Java 17 writes.
_REPORT = """#
# A fatal error has been detected by the Java Runtime Environment:
#
#  {what}, pid=27008, tid=27809
{more}#
# JRE version: OpenJDK Runtime Environment (17.0.9+9) (build 17.0.9+9-Debian-1deb12u1)

---------------  T H R E A D  ---------------

Current thread (0x00007f4c780c38f0):  JavaThread "{thread}" daemon [_thread_in_vm, id=27809, stack(0x1,0x2)]
"""
_INTERNAL = "Internal Error (debug.cpp:362)"
_NO_MEMORY = "#  fatal error: OutOfMemory encountered: Java heap space\n"
_TASK = "Executor task launch worker for task 1.0 in stage 3.0 (TID 7)"


def test_report_of_a_jvm_without_memory_names_its_thread(tmp_path: Path) -> None:
    report = tmp_path / "crash.log"
    report.write_text(_REPORT.format(what=_INTERNAL, more=_NO_MEMORY, thread=_TASK) + 100_000 * "x")

    thread = starved_thread(report)

    assert thread == _TASK
    assert stage_of(thread) == 3
    assert stage_of("broadcast-exchange-1") is None


def test_report_of_another_crash_is_none_of_memory(tmp_path: Path) -> None:
    report = tmp_path / "crash.log"
    report.write_text(_REPORT.format(what="SIGSEGV (0xb) at pc=0x0", more="", thread=_TASK))

    assert starved_thread(report) is None
    assert starved_thread(tmp_path / "none") is None


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    # Spark wants 450 MiB at least, unless it is told otherwise.
    small = {**CONF, "spark.testing.reservedMemory": "0"}
    with engine(tmp_path_factory.mktemp("engine"), conf=small, memory="160m") as running:
        yield running


_NUMBERS = count()


def _name() -> str:
    return f"memory-{next(_NUMBERS)}"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("function", ["gather", "hoard"])
def test_job_that_uses_up_the_memory_is_told_so_and_the_one_beside_it_is_lost_with_the_engine(
    spark: Engine, function: str
) -> None:
    spark.until_ready()
    small, large = _name(), _name()
    spark.start_job(small, "count_for_ever")
    spark.submit(task(large, f"tests.spark.jobs:{function}"))

    reason = spark.told.wait(large, "lost")
    spark.told.wait(small, "lost")

    assert "ran out of memory" in reason
    assert spark.told.codes[large] == OUT_OF_MEMORY
    assert spark.told.codes[small] == ENGINE_LOST
    until(lambda: spark.status()["state"] == "ready", "another engine is ready")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_isolated_job_that_uses_up_its_memory_is_told_so(spark: Engine) -> None:
    name = _name()
    spark.submit(isolated(name, "tests.spark.jobs:hoard"))

    spark.told.wait(name, "lost")

    assert spark.told.codes[name] == OUT_OF_MEMORY
