"""`ctx.read` in jobs of a real Spark engine: every reader gives the same table, and says what it cannot."""

from __future__ import annotations

import json
import re
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import fastavro
import pytest

from nebula.avro import Registry, encode, tombstone
from nebula.avro.envelope import SCHEMA as ENVELOPE
from nebula.avro.varints import write_long
from nebula.record.container import ContainerReader, ContainerWriter
from nebula.rpc.contract.job_runner import JobFailure, JobOutput
from tests.spark.engine import Engine
from tests.spark.reading.samples import READING, everything, fields, readings, write
from tests.spark.told import task

# The first job of an engine loads Spark's classes: on a busy machine that takes a minute.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
_PATIENCE_SECONDS = 240.0

READERS = ("spark-avro", "polars", "fastavro")

TABLE = (
    "struct<machine:int,sensor:string,at:timestamp,value:double,quality:int,note:string,date:date,hour:int>"
)


@pytest.fixture(scope="module")
def state(shared_state: Path) -> Path:
    return shared_state


@pytest.fixture(scope="module")
def spark(shared_engine: Engine) -> Engine:
    return shared_engine


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3,000 readings in six folders."""
    root = tmp_path_factory.mktemp("data")
    for at in range(6):
        folder = root / f"date=2026-11-{20 + at // 3}" / f"hour={at % 3:02}"
        write(folder / "part.avro", READING, readings(500, 500 * at), sync_interval=2_000)
    return root


_NUMBERS = count()

# One harm of all readers will do in `make test`.
_MORE_HARM = ("empty", "other", "garbled", "too long")


def _timestamp(unit: str) -> dict[str, str]:
    return {"type": "long", "logicalType": f"timestamp-{unit}"}


def _choice(name: str) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": ["A"]}


class Ended:
    """How a job ended, and what it logged."""

    def __init__(self, spark: Engine, function: str, parameters: dict[str, Any]) -> None:
        job = f"read-{next(_NUMBERS)}"
        spark.submit(task(job, f"tests.spark.reading.jobs:{function}", **parameters))
        self._end = spark.told.wait(job, "done", "failed", seconds=_PATIENCE_SECONDS)
        self.log = spark.told.all(job, "log")

    @property
    def value(self) -> Any:
        assert isinstance(self._end, JobOutput), self._end
        return self._end.value

    @property
    def failure(self) -> JobFailure:
        assert isinstance(self._end, JobFailure), self._end
        return self._end


def _run(spark: Engine, function: str, path: Path, **parameters: Any) -> Ended:
    if function in ("sums", "rows", "skipped"):
        parameters.setdefault("options", {})
    return Ended(spark, function, {"path": str(path), **parameters})


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_gives_the_same_sums(reader: str, spark: Engine, data: Path) -> None:
    rows = readings(3_000)

    sums = _run(spark, "sums", data, options={"reader": reader}).value

    assert sums.pop("texts") == _texts(spark, data)
    assert sums == {
        "schema": TABLE,
        "rows": 3_000,
        "value": sum(row["value"] for row in rows),
        "machine": sum(row["machine"] for row in rows),
        "at": sum(int(row["at"].timestamp() * 1000) * 1000 for row in rows),
        "quality": sum(row["quality"] for row in rows),
        "notes": len([row for row in rows if row["note"] is not None]),
    }


def _texts(spark: Engine, data: Path) -> int:
    return int(_run(spark, "sums", data, options={"reader": "fastavro"}).value["texts"])


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_gives_the_same_rows(reader: str, spark: Engine, tmp_path: Path) -> None:
    schema, rows = everything()
    write(tmp_path / "a.avro", schema, rows)
    options = {"reader": reader, "columns": [field["name"] for field in schema["fields"]]}

    read = _run(spark, "rows", tmp_path, options=options).value

    expected = _run(spark, "rows", tmp_path, options={**options, "reader": "fastavro"}).value
    assert read == expected
    assert read[0]["millis"] == "2026-11-22 00:00:00.001000"
    assert read[0]["decimal"] == "-12345.678"
    assert read[0]["string"] == "äöü €"
    assert read[1]["no_part"] is None


def test_quickest_reader_that_is_there_is_taken_and_told(spark: Engine, data: Path, state: Path) -> None:
    log = _run(spark, "sums", data).log

    assert log == [f"{data}: 6 Avro files are read by spark-avro"]
    hosts = (state / "engine" / "default" / "engine.err").read_text()
    assert re.search(r"Avro reader chosen .*reader=spark-avro", hosts)


def test_what_a_reader_cannot_read_goes_to_the_next_one_and_is_told(spark: Engine, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": 1}, {"a": None}]
    write(tmp_path / "a=5" / "a.avro", fields(a="int"), rows[:1])
    write(tmp_path / "a=6" / "a.avro", fields(a=["null", "int", "long"]), rows)

    first, both = (_run(spark, "rows", path) for path in (tmp_path / "a=5", tmp_path))

    assert (first.value, both.value) == (rows[:1], [*rows, rows[0]])
    assert first.log == [f"{tmp_path / 'a=5'}: 1 Avro files are read by spark-avro"]
    assert "are read by fastavro (spark-avro takes a column of a folder's name for one of" in both.log[0]
    assert "polars cannot decode a union" in both.log[0]


@pytest.mark.parametrize(
    ("reader", "said"),
    [
        ("spark-avro", "spark-avro takes a column of a folder's name for one of the data"),
        ("polars", "polars cannot decode a union that is not of null and one type"),
        ("excel", "there is no reader 'excel': take auto, spark-avro, polars, fastavro"),
    ],
)
def test_reader_that_cannot_be_had_is_an_error_that_says_why(
    reader: str, said: str, spark: Engine, tmp_path: Path
) -> None:
    write(tmp_path / "a=1" / "a.avro", fields(a=["null", "int", "long"]), [])

    failure = _run(spark, "rows", tmp_path, options={"reader": reader}).failure

    assert failure.code == "data"
    assert said in failure.message


@pytest.mark.parametrize("reader", READERS)
def test_filters_on_folders_open_nothing_else(reader: str, spark: Engine, data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path, dirs_exist_ok=True)
    (tmp_path / "date=2026-11-20/hour=00/part.avro").write_bytes(b"none")
    options: dict[str, Any] = {
        "reader": reader,
        "columns": ["hour", "value"],
        "where": "date = '2026-11-21' and hour > 0",
    }

    asked = _run(spark, "rows", tmp_path, options=options).value

    assert len(asked) == 1_000
    assert {row["hour"] for row in asked} == {1, 2}
    assert list(asked[0]) == ["hour", "value"]
    if reader != "spark-avro":  # which looks for cut files before
        options["columns"] = ["date", "hour", "value"]
        del options["where"]
        filtered = _run(
            spark, "rows", tmp_path, options=options, where="date > '2026-11-20' and hour in (1, 2)"
        )
        assert [row["value"] for row in filtered.value] == [row["value"] for row in asked]


@pytest.mark.parametrize(("name", "value"), [("corrupt", "ignore"), ("envelope", "both")])
def test_choice_that_there_is_none_of_is_told(name: str, value: str, spark: Engine, data: Path) -> None:
    failure = _run(spark, "rows", data, options={name: value}).failure

    assert f"{name}='{value}' is not one of" in failure.message


def test_many_small_files_give_what_fastavro_finds_in_them_whichever_reader_it_is(
    spark: Engine, tmp_path: Path
) -> None:
    for at in range(120):
        write(tmp_path / f"hour={at % 5}" / f"{at:03}.avro", READING, readings(5, 5 * at))
    found = []
    for file in tmp_path.rglob("*.avro"):
        with file.open("rb") as opened:
            found += [*fastavro.reader(opened)]

    by_default = Ended(spark, "sums", {"path": str(tmp_path), "options": {}})
    by_polars = Ended(spark, "sums", {"path": str(tmp_path), "options": {"reader": "polars"}})

    assert "120 Avro files are read by spark-avro" in by_default.log[0]
    assert by_default.value == by_polars.value
    assert by_default.value["rows"] == len(found) == 600
    for name in ("value", "machine", "quality"):
        assert by_default.value[name] == sum(row[name] for row in found)


def test_condition_on_what_is_no_folder_is_told(spark: Engine, data: Path) -> None:
    failure = _run(spark, "rows", data, options={"where": "machine = 1"}).failure

    assert failure.code == "data"
    assert "on the columns of folders (date, hour), and `machine` is none of them" in failure.message


def test_condition_that_is_no_sql_is_told(spark: Engine, data: Path) -> None:
    failure = _run(spark, "rows", data, options={"where": "hour ="}).failure

    assert failure.code == "data"
    assert "where= is no condition on date, hour" in failure.message


def test_refused_query_leaves_its_stack_in_the_engines_log_alone(spark: Engine, state: Path) -> None:
    ended = Ended(spark, "misspelt", {})

    assert "`ids`" in ended.failure.message
    assert not any("stacktrace" in line for line in ended.log)
    assert "stacktrace" in next(state.rglob("engine.err")).read_text()


@pytest.mark.parametrize("reader", READERS)
def test_files_of_several_schemas_are_read_as_one(reader: str, spark: Engine, tmp_path: Path) -> None:
    write(tmp_path / "1.avro", fields(a="int", gone="string"), [{"a": 1, "gone": "x"}])
    write(tmp_path / "2.avro", fields(a="long", b=["null", "string"]), [{"a": 1 << 40, "b": "y"}])
    schema = fields(A="double", b=["null", "string"], c="int")
    schema["fields"][0]["aliases"] = ["a"]
    schema["fields"][1]["default"] = None
    schema["fields"][2]["default"] = 7
    (tmp_path / "schemas").mkdir()
    file = tmp_path / "schemas" / "row.avsc"
    file.write_text(json.dumps(schema))
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("1.avro", "2.avro"):
        (tmp_path / name).rename(folder / name)

    expected = [{"A": 1.0, "b": None, "c": 7}, {"A": float(1 << 40), "b": "y", "c": 7}]
    for given in (schema, json.dumps(schema), str(file)):
        read = _run(spark, "rows", folder, options={"reader": reader, "schema": given}).value
        assert sorted(read, key=lambda row: row["A"]) == expected


def test_schema_is_that_of_the_last_file_and_what_does_not_fit_is_told(spark: Engine, tmp_path: Path) -> None:
    write(tmp_path / "1.avro", fields(a="int"), [{"a": 1}])
    write(tmp_path / "2.avro", fields(a="long"), [{"a": 2}])
    assert sorted(row["a"] for row in _run(spark, "rows", tmp_path).value) == [1, 2]
    write(tmp_path / "3.avro", fields(a="boolean"), [{"a": True}])

    failure = _run(spark, "rows", tmp_path).failure

    assert failure.code == "data"
    assert ".avro: a: " in failure.message
    assert "cannot be read as boolean" in failure.message


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "harm", ["cut", *(pytest.param(each, marks=pytest.mark.slow) for each in _MORE_HARM)]
)
def test_damaged_file_fails_the_job_with_its_name(
    harm: str, reader: str, spark: Engine, data: Path, tmp_path: Path
) -> None:
    shutil.copytree(data, tmp_path, dirs_exist_ok=True)
    bad = _harm(tmp_path / "date=2026-11-20/hour=01/part.avro", harm)

    failure = _run(spark, "sums", tmp_path, options={"reader": reader}).failure

    assert failure.code == "data"
    assert str(bad) in failure.message


@pytest.mark.parametrize(
    "harm",
    ["cut", *(pytest.param(each, marks=pytest.mark.slow) for each in _MORE_HARM if each != "too long")],
)
def test_damaged_file_is_left_out_whole_where_the_job_says_so(
    harm: str, spark: Engine, data: Path, tmp_path: Path
) -> None:
    shutil.copytree(data, tmp_path, dirs_exist_ok=True)
    bad = _harm(tmp_path / "date=2026-11-21/hour=02/part.avro", harm)

    ended = _run(spark, "skipped", tmp_path)

    assert ended.value["rows"] == 2_500
    assert list(ended.value["skipped"]) == [str(bad)]
    assert ended.log[0].startswith(f"{bad}: skipped: ")


def _harm(path: Path, harm: str) -> Path:
    whole = path.read_bytes()
    match harm:
        case "cut":
            path.write_bytes(whole[:-30])
        case "empty":
            path.write_bytes(b"")
        case "other":
            path.write_bytes(b"PK\x03\x04 is no Avro")
        case "garbled":
            middle = len(whole) // 2
            path.write_bytes(whole[:middle] + bytes(40) + whole[middle + 40 :])
        case "too long":  # a block that would reach beyond the end, which Java takes for the end
            with ContainerReader(path) as reader:
                block = list(reader.blocks())[1]
            size = write_long(8_000)
            assert block.end < len(whole) < block.data_offset + 8_000
            path.write_bytes(whole[: block.data_offset - len(size)] + size + whole[block.data_offset :])
    return path


def test_folder_without_files_is_a_table_without_rows_if_the_schema_is_known(
    spark: Engine, tmp_path: Path
) -> None:
    assert _run(spark, "rows", tmp_path, options={"schema": READING}).value == []
    assert "there is no Avro file" in _run(spark, "rows", tmp_path).failure.message
    assert "no such file" in _run(spark, "rows", tmp_path / "none").failure.message


def test_folder_of_a_recorder_that_has_closed_no_file_is_a_table_without_rows(
    spark: Engine, tmp_path: Path
) -> None:
    folder = tmp_path / "date=2026-11-22" / "hour=07"
    folder.mkdir(parents=True)
    (folder / ".open.avro").touch()
    (tmp_path / "_schema.avsc").write_text(json.dumps(READING))

    assert _run(spark, "sums", tmp_path).value["schema"] == TABLE
    assert _run(spark, "rows", tmp_path, options={"where": "date = '2026-11-21'"}).value == []


def test_condition_that_no_folder_meets_gives_a_table_without_rows(spark: Engine, data: Path) -> None:
    options = {"where": "date = '2026-11-22'"}

    assert _run(spark, "rows", data, options=options).value == []
    assert _run(spark, "sums", data, options=options).value["schema"] == TABLE


def test_file_without_rows_is_a_table_without_rows(spark: Engine, tmp_path: Path) -> None:
    write(tmp_path / "a.avro", READING, [])

    assert _run(spark, "rows", tmp_path).value == []


def test_large_file_is_split_between_its_blocks(spark: Engine, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"value": number * 0.25, "text": f"{number:0100}"} for number in range(60_000)
    ]
    write(tmp_path / "a.avro", fields(value="double", text="string"), rows, codec="null")

    read = _run(spark, "split", tmp_path).value

    assert read["value"] == sum(row["value"] for row in rows)
    assert read["tasks"] > 1


@pytest.mark.parametrize("reader", READERS[1:])
def test_column_of_the_data_wins_over_a_folders(reader: str, spark: Engine, tmp_path: Path) -> None:
    write(tmp_path / "kind=a/hour=05/a.avro", fields(hour="int"), [{"hour": 23}])

    assert _run(spark, "rows", tmp_path, options={"reader": reader}).value == [{"hour": 23, "kind": "a"}]


@pytest.mark.parametrize("reader", READERS)
def test_strange_names_are_the_same_to_every_reader(reader: str, spark: Engine, tmp_path: Path) -> None:
    part = {"type": "record", "name": "Part", "fields": [{"name": "x", "type": "int"}]}
    schema = fields(a=part, b="Part")
    rows = [{"a": {"x": 1}, "b": {"x": 2}}]
    write(tmp_path / "kind=1.50" / "n=05" / "a [1]%20{b}.avro", schema, rows)
    write(tmp_path / "kind=__HIVE_DEFAULT_PARTITION__" / "n=6" / "b.avro", schema, rows)
    options = {"reader": reader, "columns": ["n", "b", "kind"]}

    read = _run(spark, "rows", tmp_path, options=options).value

    assert sorted(read, key=lambda row: row["n"]) == [
        {"n": 5, "b": "Row(x=2)", "kind": "1.50"},
        {"n": 6, "b": "Row(x=2)", "kind": None},
    ]


@pytest.mark.parametrize(
    ("written", "wanted", "why"),
    [
        (_timestamp("millis"), _timestamp("micros"), "takes times that were written in another unit"),
        (_choice("old.E"), _choice("new.E"), "knows no enum or fixed by another namespace"),
        ("bytes", "string", "makes texts of bytes that are none"),
    ],
)
def test_what_java_would_take_for_something_else_goes_to_another_reader(
    written: Any, wanted: Any, why: str, spark: Engine, tmp_path: Path
) -> None:
    value: Any = 1 if "timestamp" in str(written) else b"A" if written == "bytes" else "A"
    write(tmp_path / "a.avro", fields(a=written), [{"a": value}])
    options = {"schema": fields(a=wanted)}

    ended = _run(spark, "rows", tmp_path, options=options)

    assert ended.value in ([{"a": "A"}], [{"a": "1970-01-01 00:00:00.001000"}])
    assert f"are read by polars (spark-avro {why}" in ended.log[0]


def test_file_that_is_named_is_read_whatever_it_is_called(spark: Engine, tmp_path: Path) -> None:
    write(tmp_path / "_x.avro", fields(a="int"), [{"a": 7}])

    ended = _run(spark, "rows", tmp_path / "_x.avro")

    assert ended.value == [{"a": 7}]
    assert "are read by polars (spark-avro leaves out files that are called _x.avro)" in ended.log[0]


def test_folders_below_two_roots_are_not_for_spark_avro(spark: Engine, tmp_path: Path) -> None:
    for root in ("one", "two"):
        write(tmp_path / root / "n=1" / "a.avro", fields(a="int"), [{"a": 7}])

    ended = _run(spark, "rows", tmp_path / "*")

    assert ended.value == [{"a": 7, "n": 1}] * 2
    assert "are read by polars (spark-avro takes columns" in ended.log[0]


def test_sessions_of_one_engine_do_not_disturb_each_other(spark: Engine, data: Path) -> None:
    assert _run(spark, "twice", data).value == [3_000, 1_000, 3_000]


def test_other_formats_are_sparks_own(spark: Engine, tmp_path: Path) -> None:
    assert _run(spark, "others", tmp_path).value == [5, 5, 10]


@pytest.fixture
def envelopes(tmp_path: Path) -> Path:
    """Readings of two versions and a deletion, in envelopes; the schemas beside them."""
    registry = Registry(tmp_path / "schemas")
    old = registry.register(fields(a="int"))
    later = fields(a="long", b=["null", "string"])
    later["fields"][1]["default"] = None
    old_fields = {**fields(a="int"), "name": "Row"}
    assert old.definition == old_fields
    new = registry.register({**later, "name": "Row2", "aliases": ["Row"]})
    (tmp_path / "data").mkdir()
    with ContainerWriter(tmp_path / "data" / "a.avro", json.dumps(ENVELOPE)) as writer:
        for number in range(10):
            writer.append(encode({"a": number}, old))
        writer.append(tombstone(topic="X/a"))
        writer.append(encode({"a": 100, "b": "new"}, new))
    return tmp_path


@pytest.mark.parametrize("reader", ["polars", "fastavro"])
def test_envelopes_are_unpacked_each_by_its_own_schema(reader: str, spark: Engine, envelopes: Path) -> None:
    schema = {**fields(a="long", b=["null", "string"]), "name": "Row2", "aliases": ["Row"]}
    schema["fields"][1]["default"] = None
    options = {"reader": reader, "schemas": str(envelopes / "schemas"), "schema": schema}

    read = _run(spark, "rows", envelopes / "data", options=options).value

    expected = [{"a": number, "b": None} for number in range(10)] + [{"a": 100, "b": "new"}]
    assert sorted(read, key=lambda row: row["a"]) == expected


def test_envelopes_are_read_as_they_are_if_asked_for(spark: Engine, envelopes: Path) -> None:
    read = _run(spark, "rows", envelopes / "data", options={"envelope": "raw"}).value

    assert len(read) == 12
    assert "key=2" in read[0]["content"]


def test_envelope_whose_schema_is_not_at_hand_is_told(spark: Engine, envelopes: Path) -> None:
    without = _run(spark, "rows", envelopes / "data").failure
    for file in (envelopes / "schemas").glob("Row2*"):
        file.unlink()
    options = {"schemas": str(envelopes / "schemas")}
    unknown = _run(spark, "rows", envelopes / "data", options=options).failure

    assert "give schemas= the folder" in without.message
    assert unknown.code == "data"
    assert "a.avro: an envelope holds a value of the schema" in unknown.message
