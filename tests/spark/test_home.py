"""A Spark that the environment names, and the installed PySpark's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nebula.spark.host.launch import settle_home
from nebula.spark.host.session import CannotStart


def spark(home: Path, version: str) -> Path:
    (home / "jars").mkdir(parents=True)
    (home / "jars" / f"spark-core_2.13-{version}.jar").touch()
    return home


def pyspark(folder: Path, version: str = "4.3.0") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "version.py").write_text(f'# PySpark\n__version__: str = "{version}"\n')
    return folder


@pytest.mark.parametrize("version", ["4.3.0", "4.3.0-vendor-1"])
def test_spark_home_of_the_same_version_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(spark(tmp_path / "spark", version)))
    settle_home(pyspark(spark(tmp_path / "pyspark", "4.3.0")))
    settle_home(pyspark(tmp_path / "bare"))

    assert os.environ["SPARK_HOME"] == str(tmp_path / "spark")


def test_spark_home_of_another_version_is_left_out_of_account_and_the_log_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home = spark(tmp_path / "spark", "3.5.1")
    monkeypatch.setenv("SPARK_HOME", str(home))
    settle_home(pyspark(spark(tmp_path / "pyspark", "4.3.0")))

    assert "SPARK_HOME" not in os.environ
    assert caplog.messages == [
        f"SPARK_HOME set aside reason='SPARK_HOME={home} has Spark 3.5.1, and PySpark is 4.3.0'"
    ]


def test_spark_home_without_a_spark_is_left_out_of_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", "/nowhere")
    settle_home()

    assert "SPARK_HOME" not in os.environ


def test_other_version_breaks_an_engine_whose_pyspark_brings_no_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(spark(tmp_path / "spark", "3.5.1")))

    with pytest.raises(CannotStart, match=r"has Spark 3\.5\.1, and PySpark is 4\.3\.0: install that"):
        settle_home(pyspark(tmp_path / "pyspark"))


def test_without_spark_home_there_is_nothing_to_settle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    settle_home(pyspark(tmp_path))

    assert "SPARK_HOME" not in os.environ
