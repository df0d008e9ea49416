"""A reader is chosen that gives the table of all the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nebula.avro import Schema
from nebula.spark.reading.avro_types import parse_record
from nebula.spark.reading.choosing import Wanted, why_not_spark_avro
from nebula.spark.reading.files import list_files
from tests.spark.reading.samples import fields, write

_NESTED = {"type": "record", "name": "In", "fields": [{"name": "x", "type": "bytes"}]}


def _timestamp(unit: str) -> dict[str, str]:
    return {"type": "long", "logicalType": f"timestamp-{unit}"}


def _renamed(schema: dict[str, Any], **aliases: str) -> dict[str, Any]:
    for field in schema["fields"]:
        if field["name"] in aliases:
            field["aliases"] = [aliases[field["name"]]]
    return schema


def _texts() -> dict[str, Any]:
    nested = {**_NESTED, "fields": [{"name": "x", "type": ["null", "string"]}]}
    return fields(a={"type": "array", "items": nested})


def _wanted(path: Path, schema: dict[str, Any]) -> Wanted:
    record = parse_record(Schema(schema).parsed)
    columns = [field.name for field in record.fields]
    return Wanted(record, list_files(path), columns, unpacks=False, why_no_polars=None)


@pytest.mark.parametrize("name", ["_x.avro", ".x.avro", "x.avro._COPYING_"])
def test_file_whose_name_java_takes_for_a_hidden_one_goes_to_another_reader(
    name: str, tmp_path: Path
) -> None:
    write(tmp_path / name, fields(a="int"), [{"a": 1}])
    wanted = _wanted(tmp_path / name, fields(a="int"))

    assert why_not_spark_avro(wanted) == f"spark-avro leaves out files that are called {name}"


def test_file_with_a_plain_name_goes_to_spark_avro(tmp_path: Path) -> None:
    write(tmp_path / "a_.avro", fields(a="int"), [{"a": 1}])
    wanted = _wanted(tmp_path / "a_.avro", fields(a="int"))

    assert why_not_spark_avro(wanted) is None


_ALIAS = "cannot tell fields whose aliases are names of others"
_BAD_TEXT = "makes texts of bytes that are none"
_UNIT = "takes times that were written in another unit for those of the reader's schema"
_SPACE = "knows no enum or fixed by another namespace"


@pytest.mark.parametrize(
    ("written", "reader", "why"),
    [
        (fields(a="int", b="int"), _renamed(fields(b="int"), b="a"), _ALIAS),
        (fields(a="int"), _renamed(fields(a="int", b="int"), b="a"), _ALIAS),
        (_renamed(fields(a="int", b="int"), b="a"), _renamed(fields(a="int", b="int"), b="a"), _ALIAS),
        (fields(a="int"), _renamed(fields(b="int"), b="a"), None),
        (fields(a="bytes"), fields(a="string"), _BAD_TEXT),
        (fields(a={"type": "array", "items": _NESTED}), _texts(), _BAD_TEXT),
        (fields(a="bytes"), _renamed(fields(b="string"), b="a"), _BAD_TEXT),
        (fields(a="bytes", b="string"), fields(a="bytes", b=["null", "string"]), None),
        (fields(a=_timestamp("micros")), fields(a=_timestamp("millis")), _UNIT),
        (fields(a="long", b=_timestamp("millis")), fields(a=_timestamp("millis"), b="long"), None),
    ],
)
def test_what_java_makes_otherwise_goes_to_another_reader(
    written: dict[str, Any], reader: dict[str, Any], why: str | None, tmp_path: Path
) -> None:
    write(tmp_path / "a.avro", written, [])
    wanted = _wanted(tmp_path, reader)

    assert why_not_spark_avro(wanted) == (why and f"spark-avro {why}")
