"""Spark is told to list Avro files in the driver, and only for as long as they are opened."""

from __future__ import annotations

from typing import Any, cast

import pytest

from nebula.spark.reading import reader
from nebula.spark.reading.files import File
from nebula.spark.reading.plan import Plan

LISTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"


class Session:
    """What of a session the reader uses for files that Spark itself reads."""

    def __init__(self, conf: dict[str, str]) -> None:
        self.settings = conf
        self.seen: list[str | None] = []

    @property
    def conf(self) -> Session:
        return self

    @property
    def read(self) -> Session:
        return self

    def get(self, name: str, default: str | None = None) -> str | None:
        return self.settings.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.settings[name] = value

    def unset(self, name: str) -> None:
        del self.settings[name]

    def format(self, _name: str) -> Session:
        return self

    def schema(self, _schema: Any) -> Session:
        return self

    def option(self, _name: str, _value: str) -> Session:
        return self

    def load(self, paths: list[str]) -> Session:
        assert len(paths) == 100
        self.seen.append(self.settings.get(LISTING))
        return self

    def select(self, *_columns: str) -> Session:
        return self


@pytest.mark.parametrize("before", [{}, {LISTING: "7"}], ids=["default", "set"])
def test_many_files_are_listed_by_no_job_and_the_setting_is_put_back(
    monkeypatch: pytest.MonkeyPatch, before: dict[str, str]
) -> None:
    monkeypatch.setattr(reader, "sparks_name", lambda _spark: "avro")
    session = Session(dict(before))
    files = [File(f"/data/{number}.avro", 100, ()) for number in range(100)]
    schema = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
    plan = Plan("polars", files, {}, schema, ["a"], 2)

    reader.Reader(cast("Any", session), print)._load(plan, "spark-avro")

    (most,) = session.seen
    assert most is not None
    assert int(most) > 1_000_000
    assert session.settings == before
