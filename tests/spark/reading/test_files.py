"""Files are found below folders whose names are columns, and filters on those leave files out."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import datasource

from nebula.spark.reading.errors import DataError
from nebula.spark.reading.files import column_types, folder_types, list_files, recorded_schema, typed
from nebula.spark.reading.plan import Plan
from nebula.spark.reading.source import PruningReader, Task

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}'


def _touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def _names(root: Path, path: Any) -> list[str]:
    return [str(Path(file.path).relative_to(root)) for file in list_files(path)]


def test_files_below_a_folder_are_found_but_for_hidden_and_other_ones(tmp_path: Path) -> None:
    _touch(
        tmp_path,
        "b.avro",
        "a/c.avro",
        "part-0",
        ".d.avro",
        "_SUCCESS",
        "e.parquet",
        ".hidden/f.avro",
        "x.crc",
    )

    assert _names(tmp_path, tmp_path) == ["a/c.avro", "b.avro", "part-0"]


def test_paths_may_be_files_globs_and_several(tmp_path: Path) -> None:
    _touch(tmp_path, "a1.avro", "a2.avro", "b.other")

    assert _names(tmp_path, str(tmp_path / "a?.avro")) == ["a1.avro", "a2.avro"]
    assert _names(tmp_path, tmp_path / "b.other") == ["b.other"]
    assert _names(tmp_path, [tmp_path / "a1.avro", f"file://{tmp_path}/a?.avro"]) == ["a1.avro", "a2.avro"]


def test_links_are_followed_unless_they_lead_nowhere_or_up_again(tmp_path: Path) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    _touch(tmp_path, "other/a.avro", "other/n=1/b.avro", "c.avro", "data/d.avro")
    (data / "n=2").symlink_to(other / "n=1")
    (data / "e.avro").symlink_to(tmp_path / "c.avro")
    (data / "d.avro").unlink()

    assert [file.parts for file in list_files(data / "n=2")] == [()]
    with pytest.raises(DataError, match="different columns"):
        list_files(data)
    (data / "e.avro").unlink()
    assert [(file.path, file.parts) for file in list_files(data)] == [(f"{data}/n=2/b.avro", (("n", "2"),))]

    (other / "n=1" / "back").symlink_to(data)
    with pytest.raises(DataError, match="a link to a folder above it"):
        list_files(data)
    (other / "n=1" / "back").unlink()
    (data / "n=2" / "gone.avro").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"gone\.avro: it cannot be read: No such file"):
        list_files(data)


def test_file_that_links_lead_to_is_listed_once_by_its_own_name(tmp_path: Path) -> None:
    data = tmp_path / "data"
    _touch(data, "date=2026-11-21/a.avro", "date=2026-11-22/a.avro", "date=2026-11-22/b.avro")
    (data / "Latest").symlink_to("date=2026-11-22")
    (data / "date=latest").symlink_to(data / "date=2026-11-22")
    (data / "date=2026-11-21" / "0.avro").symlink_to(data / "date=2026-11-21" / "a.avro")
    (tmp_path / "linked").symlink_to(data)

    for root in (data, tmp_path / "linked"):
        assert _names(root, root) == [
            "date=2026-11-21/a.avro",
            "date=2026-11-22/a.avro",
            "date=2026-11-22/b.avro",
        ]
        assert _names(root, root / "Latest") == ["Latest/a.avro", "Latest/b.avro"]
    assert len(list_files([data, tmp_path / "linked"])) == 3


def test_file_that_only_links_lead_to_is_listed_by_the_first_name(tmp_path: Path) -> None:
    _touch(tmp_path, "other/a.avro", "data/c.avro")
    for name in ("n", "b", "m"):
        (tmp_path / "data" / f"{name}.avro").symlink_to(tmp_path / "other" / "a.avro")

    assert _names(tmp_path, tmp_path / "data") == ["data/b.avro", "data/c.avro"]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/no/such/folder", "no such file"),
        ("/no/such/*.avro", "no such file"),
        ("s3://b/k", "each worker has"),
    ],
)
def test_path_that_leads_nowhere_is_told(path: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        list_files(path)


def test_names_of_folders_are_columns_of_the_narrowest_type(tmp_path: Path) -> None:
    _touch(
        tmp_path,
        "date=2026-11-22/hour=05/kind=a%2Fb/id=1/a.avro",
        "date=2026-11-23/hour=23/kind=__HIVE_DEFAULT_PARTITION__/id=99999999999/b.avro",
    )
    files = list_files(tmp_path)
    types = column_types(files)

    assert types == {"date": "date", "hour": "int", "kind": "string", "id": "bigint"}
    assert typed(files[0], types) == {"date": dt.date(2026, 11, 22), "hour": 5, "kind": "a/b", "id": 1}
    assert typed(files[1], types)["kind"] is None


def test_folders_without_files_have_columns_and_the_recorders_schema(tmp_path: Path) -> None:
    _touch(tmp_path, "_schema.avsc", "date=2026-11-22/hour=07/.a.avro", "_tmp/side=1/a.avro")

    assert list_files(tmp_path) == []
    assert folder_types(tmp_path) == {"date": "date", "hour": "int"}
    assert recorded_schema([tmp_path / "date=2026-11-22", tmp_path]) == str(tmp_path / "_schema.avsc")
    assert recorded_schema(tmp_path / "date=2026-11-22") is None


def test_folder_whose_column_the_data_have_too_gives_no_value(tmp_path: Path) -> None:
    (tmp_path / "date=2026-11-22" / "hour=05").mkdir(parents=True)
    (tmp_path / "date=2026-11-22" / "hour=05" / "a.avro").touch()

    assert typed(list_files(tmp_path)[0], {"date": "date"}) == {"date": dt.date(2026, 11, 22)}


def test_folders_above_the_path_are_no_columns(tmp_path: Path) -> None:
    _touch(tmp_path, "date=2026-11-22/hour=05/a.avro")

    assert list_files(tmp_path / "date=2026-11-22")[0].parts == (("hour", "05"),)


def test_day_that_the_calendar_lacks_is_text(tmp_path: Path) -> None:
    _touch(tmp_path, "date=2026-02-30/a.avro")

    assert column_types(list_files(tmp_path)) == {"date": "string"}


def test_folders_that_disagree_about_their_columns_are_told(tmp_path: Path) -> None:
    _touch(tmp_path, "date=2026-11-22/a.avro", "b.avro")

    with pytest.raises(DataError, match="different columns"):
        list_files(tmp_path)


HAS_FILTERS = pytest.mark.skipif(not hasattr(datasource, "Not"), reason="PySpark 4.0 hands no filters down")


@HAS_FILTERS
@pytest.mark.parametrize(
    ("kind", "arguments", "hours"),
    [
        ("EqualTo", (5,), [5]),
        ("EqualNullSafe", (None,), [None]),
        ("GreaterThan", (5,), [6]),
        ("GreaterThanOrEqual", (5,), [5, 6]),
        ("LessThan", (5,), [4]),
        ("LessThanOrEqual", (5,), [4, 5]),
        ("In", ((4, 6),), [4, 6]),
        ("IsNull", (), [None]),
        ("IsNotNull", (), [4, 5, 6]),
        ("EqualTo", (None,), []),
    ],
)
def test_filter_on_a_folders_column_leaves_files_out(
    kind: str, arguments: tuple[Any, ...], hours: list[Any], tmp_path: Path
) -> None:
    condition = getattr(datasource, kind)(("hour",), *arguments)

    assert _hours(tmp_path, condition) == ([], hours)


@HAS_FILTERS
@pytest.mark.parametrize(
    ("kind", "value", "hours"), [("EqualTo", 5, [4, 6]), ("In", (5, None), []), ("IsNull", None, [4, 5, 6])]
)
def test_what_is_null_is_neither_so_nor_not_so(
    kind: str, value: Any, hours: list[int], tmp_path: Path
) -> None:
    arguments = () if kind == "IsNull" else (value,)
    condition = datasource.Not(getattr(datasource, kind)(("hour",), *arguments))

    assert _hours(tmp_path, condition) == ([], hours)


@HAS_FILTERS
@pytest.mark.parametrize("name", [("n",), ("hour", "inner")])
def test_filter_on_the_data_is_left_to_spark(name: tuple[str, ...], tmp_path: Path) -> None:
    condition = datasource.EqualTo(name, 5)

    assert _hours(tmp_path, condition) == ([condition], [4, 5, 6, None])


def _hours(root: Path, condition: Any) -> tuple[list[Any], list[Any]]:
    """What Spark still has to filter, and the hours of the files that are read."""
    hours = ("04", "05", "06", "__HIVE_DEFAULT_PARTITION__")
    _touch(root, *(f"hour={hour}/a.avro" for hour in hours))
    files = list_files(root)
    types = column_types(files)
    reader = PruningReader(Plan("fastavro", files, types, SCHEMA, ["n", "hour"], 2))
    left = list(reader.pushFilters([condition]))
    tasks = [task for task in reader.partitions() if isinstance(task, Task)]
    read = [typed(part.file, types)["hour"] for task in tasks for part in task.parts]
    return left, sorted(read, key=lambda hour: (hour is None, hour))


def test_plan_comes_through_text_as_it_was(tmp_path: Path) -> None:
    _touch(tmp_path, "kind=ä/a.avro")
    files = list_files(tmp_path)
    plan = Plan("polars", files, {"kind": "string"}, SCHEMA, ["kind", "n"], 2, {1 << 63: SCHEMA})

    assert Plan.from_text(plan.to_text()) == plan
    assert plan.table().simpleString() == "struct<kind:string,n:bigint>"
