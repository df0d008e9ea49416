"""The Python data sources that Spark reads Avro by. Workers import this module: Nebula is installed there."""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from nebula.spark.reading.blocks import walk
from nebula.spark.reading.errors import CorruptFileError
from nebula.spark.reading.files import File, as_python, typed
from nebula.spark.reading.plan import Plan
from nebula.spark.reading.splits import Part, split, target_bytes

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
    from pyspark.sql.datasource import Filter

PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"


@dataclass
class Task(InputPartition):
    """Parts of files that are read one after another."""

    parts: list[Part]


class AvroSource(DataSource):
    """Rows of a plan (option `plan`); `pushes` says whether Spark hands filters down."""

    @classmethod
    def name(cls) -> str:
        """What `spark.read.format` takes."""
        return "nebula-avro"

    def schema(self) -> spark.StructType:
        """The table of the plan."""
        # Spark asks in several processes, so the plan travels as text and is read in each.
        return Plan.from_text(self.options["plan"]).table()

    def reader(self, schema: spark.StructType) -> DataSourceReader:  # noqa: ARG002  Spark's signature
        """A reader with or without filters: Spark refuses one with them where they are switched off."""
        plan = Plan.from_text(self.options["plan"])
        return PruningReader(plan) if self.options["pushes"] == "true" else AvroReader(plan)


class AvroReader(DataSourceReader):
    """Reads what the plan says."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._files: list[File] = list(plan.files)

    def __getstate__(self) -> dict[str, Any]:
        # What each task gets with it: its own files it is told apart.
        return self.__dict__ | {"_files": [], "_plan": replace(self._plan, files=())}

    def partitions(self) -> list[InputPartition]:
        """Tasks of files, and of parts of those that are large."""
        most = target_bytes(self._files, self._plan.slots)
        # Spark takes no table without a task.
        return [Task(parts) for parts in split(self._files, most)] or [Task([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        assert isinstance(partition, Task)
        reader = _row_reader(self._plan)
        for part in partition.parts:
            yield from reader.read(part)


class PruningReader(AvroReader):
    """Also leaves out the files whose folders' names say that none of their rows is wanted."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """Take filters on the folders' columns, and give back the others."""
        types = self._plan.folder_types
        for each in filters:
            test = _test(each, types)
            if test is None:
                yield each
            else:
                # Not given back: Spark applies only the filters that it gets back.
                self._files = [file for file in self._files if test(typed(file, types))]


class CheckSource(DataSource):
    """A row for each file of a plan that cannot be read whole: its path and what is wrong with it."""

    @classmethod
    def name(cls) -> str:
        """What `spark.read.format` takes."""
        return "nebula-avro-check"

    def schema(self) -> str:
        """As Spark's DDL."""
        return "path string, problem string"

    def reader(self, schema: spark.StructType) -> DataSourceReader:  # noqa: ARG002  Spark's signature
        """See `DataSource`."""
        return CheckReader(Plan.from_text(self.options["plan"]), is_deep=self.options["depth"] == "data")


class CheckReader(AvroReader):
    """Decodes every file and keeps nothing of it, or only goes from block to block."""

    def __init__(self, plan: Plan, *, is_deep: bool) -> None:
        super().__init__(plan)
        self._is_deep = is_deep

    def partitions(self) -> list[InputPartition]:
        """Files whole: what is wrong with one is told once."""
        # Not cut: two parts could find damage, and the file would be listed twice.
        most = target_bytes(self._files, self._plan.slots)
        whole = [[Part(file, 0, file.size_bytes)] for file in self._files if file.size_bytes >= most]
        small = split([file for file in self._files if file.size_bytes < most], most)
        return [Task(parts) for parts in (*whole, *small)] or [Task([])]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, str]]:
        """A row for each damaged file."""
        assert isinstance(partition, Task)
        # `walk` goes from block to block, which finds a cut file and not damaged data.
        read = _row_reader(self._plan).read if self._is_deep else walk
        for part in partition.parts:
            try:
                for _ in read(part):
                    pass
            except CorruptFileError as error:
                yield error.path, error.problem


def _row_reader(plan: Plan) -> Any:
    _import_for_good(plan.decoder)
    from nebula.spark.reading.rows import RowReader

    return RowReader(plan)


@cache
def _import_for_good(decoder: str) -> None:
    """Import what tasks need, once in a worker, and take it from Python's collections of garbage."""
    # Each task slot has a process of its own: threads of polars' would only be in each other's way.
    # `setdefault`: a user's own number counts.
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    for name in ("nebula.spark.reading.rows", decoder):
        importlib.import_module(name)
    # Spark collects after each task, before it gives out the next: to look through all that is imported took
    # longer than to start a task.
    gc.collect()
    gc.freeze()


def _test(condition: Any, types: Mapping[str, str]) -> Any:
    """A predicate over the values of a file's folders; None: the condition is not on those alone."""
    if isinstance(condition, datasource.Not):
        inner = _test(condition.child, types)
        # What is null is neither so nor not so.
        return None if inner is None else lambda values: (was := inner(values)) is not None and not was
    name: tuple[str, ...] = getattr(condition, "attribute", ())
    if len(name) != 1 or name[0] not in types:
        return None
    compare = _COMPARISONS.get(type(condition).__name__)
    if compare is None:
        return None
    wanted = getattr(condition, "value", None)
    wanted = [as_python(each) for each in wanted] if isinstance(wanted, list | tuple) else as_python(wanted)
    return lambda values: compare(values[name[0]], wanted)


def _unless_null(compare: Any) -> Any:
    return lambda value, wanted: None if value is None or wanted is None else compare(value, wanted)


_COMPARISONS: dict[str, Any] = {
    "EqualTo": _unless_null(lambda value, wanted: value == wanted),
    "EqualNullSafe": lambda value, wanted: value == wanted,
    "GreaterThan": _unless_null(lambda value, wanted: value > wanted),
    "GreaterThanOrEqual": _unless_null(lambda value, wanted: value >= wanted),
    "LessThan": _unless_null(lambda value, wanted: value < wanted),
    "LessThanOrEqual": _unless_null(lambda value, wanted: value <= wanted),
    # With a null among them, SQL does not know of the others that they are not.
    "In": _unless_null(lambda value, wanted: value in wanted or (None if None in wanted else False)),
    "StringStartsWith": _unless_null(lambda value, wanted: value.startswith(wanted)),
    "StringEndsWith": _unless_null(lambda value, wanted: value.endswith(wanted)),
    "StringContains": _unless_null(lambda value, wanted: wanted in value),
    "IsNull": lambda value, _: value is None,
    "IsNotNull": lambda value, _: value is not None,
}
