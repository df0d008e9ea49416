"""A reader is chosen that gives the table of all the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nebula.avro import Schema
from nebula.spark.reading.avro_types import parse_record
from nebula.spark.reading.choosing import Wanted, why_not_spark_avro
from nebula.spark.reading.files import list_files
from nebula.spark.reading.hive import why_not_hive
from tests.spark.reading.samples import fields, write


def _wanted(path: Path, schema: dict[str, Any]) -> Wanted:
    record = parse_record(Schema(schema).parsed)
    columns = [field.name for field in record.fields]
    return Wanted(record, list_files(path), {}, columns, unpacks=False, why_no_polars=None)


@pytest.mark.parametrize("name", ["_x.avro", ".x.avro", "x.avro._COPYING_"])
def test_file_whose_name_java_takes_for_a_hidden_one_goes_to_another_reader(
    name: str, tmp_path: Path
) -> None:
    write(tmp_path / name, fields(a="int"), [{"a": 1}])
    wanted = _wanted(tmp_path / name, fields(a="int"))

    assert why_not_spark_avro(wanted) == f"spark-avro leaves out files that are called {name}"
    assert why_not_hive(wanted.record, wanted.files, {}) == f"Hive leaves out files that are called {name}"


def test_folder_whose_name_hive_takes_for_a_hidden_one_is_not_for_hive(tmp_path: Path) -> None:
    write(tmp_path / "_new" / "a.avro", fields(a="int"), [{"a": 1}])
    wanted = _wanted(tmp_path / "_new", fields(a="int"))

    assert why_not_spark_avro(wanted) is None
    assert why_not_hive(wanted.record, wanted.files, {}) == "Hive leaves out files that are called _new"


def test_file_with_a_plain_name_goes_to_any_reader(tmp_path: Path) -> None:
    write(tmp_path / "a_.avro", fields(a="int"), [{"a": 1}])
    wanted = _wanted(tmp_path / "a_.avro", fields(a="int"))

    assert why_not_spark_avro(wanted) is None
    assert why_not_hive(wanted.record, wanted.files, {}) is None
