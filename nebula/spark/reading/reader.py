"""`ctx.read`: tables from files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import datasource
from pyspark.sql import types as spark_types

from nebula.logs import get_logger
from nebula.spark.paths import spark_glob, spark_path
from nebula.spark.reading.blocks import walk
from nebula.spark.reading.choosing import Name, choose, root_of, sparks_name
from nebula.spark.reading.errors import CorruptFileError, DataError
from nebula.spark.reading.files import (
    File,
    Paths,
    column_types,
    folder_types,
    list_files,
    recorded_schema,
    typed,
)
from nebula.spark.reading.plan import SPARK_TYPES, Plan
from nebula.spark.reading.request import Envelopes, Request, SchemaLike
from nebula.spark.reading.session import use_in_thread
from nebula.spark.reading.source import PUSHDOWN_CONF, AvroSource, CheckSource
from nebula.spark.reading.splits import Part

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_log = get_logger(__name__)

# Up to here it takes less than a Spark job does to go from block to block.
_MOST_HERE_BYTES = 64 << 20

# Number of paths above which Spark lists files with a job.
_LISTING_CONF = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_MOST_LISTED_HERE = (1 << 31) - 1

_NO_SUCH_COLUMN = ("UNRESOLVED_COLUMN.WITH_SUGGESTION", "UNRESOLVED_COLUMN.WITHOUT_SUGGESTION")

# A name that no column has.
_NUMBER = "nebula number"
_CONNECT_SLOTS = 8


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was left out, and why."""

    path: str
    problem: str


class Reader:
    """Reads files as tables, in the session of one job.

    Args:
        spark: the session.
        log: writes a line to the job's log.
    """

    def __init__(self, spark: SparkSession, log: Callable[[str], None]) -> None:
        self._spark = spark
        self._say = log
        self._skipped: list[Skipped] = []

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """The files that `avro(…, corrupt="skip")` has left out so far."""
        return tuple(self._skipped)

    def parquet(self, path: Paths, **options: Any) -> DataFrame:
        """A table of Parquet files, by Spark's own reader; `options` are Spark's."""
        return self._spark.read.parquet(*_texts(path), **options)

    def json(self, path: Paths, **options: Any) -> DataFrame:
        """A table of files with one JSON value a line, by Spark's own reader; `options` are Spark's."""
        return self._spark.read.json(_texts(path), **options)

    def csv(self, path: Paths, **options: Any) -> DataFrame:
        """A table of CSV files, by Spark's own reader; `options` are Spark's, such as `header=True`."""
        return self._spark.read.csv(_texts(path), **options)

    def avro(
        self,
        path: Paths,
        *,
        schema: SchemaLike | None = None,
        columns: Sequence[str] | None = None,
        where: str | Column | None = None,
        envelope: Envelopes = "content",
        schemas: str | os.PathLike[str] | None = None,
        corrupt: Literal["fail", "skip"] = "fail",
        reader: Literal["auto"] | Name = "auto",
    ) -> DataFrame:
        """A table of Avro files, by the fastest reader that is available; the job's log names it.

        Folders called `date=2026-11-22/hour=05` are columns, too, and filters on them leave out folders
        without opening a file. Where the data have a column of the same name, that one is taken.

        Args:
            path: a file, a folder with all below it, a glob, or several of these.
            schema: what rows are read as, by Avro's rules of resolution: read from JSON, as text, or the path
                of an `.avsc` file. None: the schema of the last file by name, or if there is no file yet, the
                folder's `_schema.avsc`: the table is then empty. Files may differ.
            columns: those to read, in this order: others are not decoded. None: all.
            where: a condition on the columns of folders, in SQL: files in other folders are not opened,
                except for a schema if no folder meets it. `.where(…)` on the table gives the same rows.
            envelope: for files of envelopes, `content` reads the values in them, each by the schema of its
                fingerprint, without deletions; `raw` reads the envelopes.
            schemas: the folder of `.avsc` files for that.
            corrupt: what becomes of a file that is cut or damaged: the job fails with its name, or it is left
                out whole, logged and listed in `skipped`. To find such files, every file is read once
                beforehand.
            reader: `auto`, or one by name.

        Raises:
            DataError: nothing is there, a schema or column is wrong, a file cannot be read, or the named
                reader is not available. A file that is found damaged only while the table is computed fails
                the job then, with the same code `data`.
        """
        _check("envelope", envelope, ("content", "raw"))
        _check("corrupt", corrupt, ("fail", "skip"))
        # All of them, also those that `where` leaves out: a table's types must not depend on a condition.
        everything = list_files(path)
        types = column_types(everything)
        if not everything:
            # A recorder has not closed its first file yet: the table is empty, with all its columns.
            types, schema = folder_types(path), recorded_schema(path) if schema is None else schema
        files = everything if where is None else self._in_folders(everything, types, where)
        skips = corrupt == "skip"
        # Where no folder meets the condition, the table is empty and has its columns all the same.
        samples, slots = files or everything, self._slots()
        plan, wanted = Request(
            files, samples, types, schema, columns, envelope, schemas, skips, slots
        ).settle()
        plan.table()  # what Spark cannot hold is told before anything is read
        if skips:
            plan = self._without_damaged(plan)
            wanted = replace(wanted, files=plan.files)
        # After the files are known, because the choice depends on their names and schemas.
        name, why = choose(self._spark, wanted, reader)
        self._tell(path, plan, name, why)
        # With `skips` each file was read to its end already.
        if name == "spark-avro" and not skips:
            self._check_ends(plan)
        return self._load(plan, name)

    def _in_folders(self, files: list[File], types: Mapping[str, str], where: str | Column) -> list[File]:
        if not types:
            if files:
                raise DataError("where= asks for columns of folders, and no folder is called NAME=VALUE")
            return []
        # One row for each combination of values and not for each file: folders have many files.
        kinds = {file.parts: typed(file, types) for file in files}
        fields = [spark_types.StructField(name, SPARK_TYPES[kind]) for name, kind in types.items()]
        number = spark_types.StructField(_NUMBER, spark_types.IntegerType())
        rows = [(*values.values(), at) for at, values in enumerate(kinds.values())]
        # Spark evaluates the condition, as it has its own rules for types and nulls.
        table = self._spark.createDataFrame(rows, spark_types.StructType([*fields, number]))
        try:
            kept = {row[_NUMBER] for row in table.where(where).select(_NUMBER).collect()}
        except AnalysisException as error:
            if error.getCondition() in _NO_SUCH_COLUMN:
                told = (error.getMessageParameters() or {}).get("objectName", "a column")
                raise DataError(
                    f"where= takes conditions on the columns of folders ({', '.join(types)}), and {told} is "
                    "none of them: filter the table, .where(…), for what is in the files"
                ) from error
            said = str(error).partition("\n")[0]
            raise DataError(f"where= is no condition on {', '.join(types)}: {said}") from error
        wanted = {parts for at, parts in enumerate(kinds) if at in kept}
        return [file for file in files if file.parts in wanted]

    def _slots(self) -> int:
        try:
            return int(self._spark.sparkContext.defaultParallelism)
        except PySparkException:  # a session of Spark Connect has no context to ask
            return _CONNECT_SLOTS

    def _tell(self, path: Paths, plan: Plan, name: Name, why: str) -> None:
        what = ", ".join(_texts(path)[:3])
        because = f" ({why})" if why else ""
        self._say(f"{what}: {len(plan.files)} Avro files are read by {name}{because}")
        _log.info("Avro reader chosen", path=what, files=len(plan.files), reader=name, why=why)

    def _without_damaged(self, plan: Plan) -> Plan:
        found = self._damaged(plan, "data")
        for path in sorted(found):
            self._skipped.append(Skipped(path, found[path]))
            self._say(f"{path}: skipped: {found[path]}")
            _log.warning("file skipped", path=path, problem=found[path])
        return replace(plan, files=[file for file in plan.files if file.path not in found])

    def _check_ends(self, plan: Plan) -> None:
        # Java's Avro leaves out the end of a file that was cut, and says nothing.
        if sum(file.size_bytes for file in plan.files) > _MOST_HERE_BYTES:
            found = self._damaged(plan, "blocks")
            if found:
                raise CorruptFileError(*min(found.items()))
            return
        for file in plan.files:
            for _ in walk(Part(file, 0, file.size_bytes)):
                pass

    def _damaged(self, plan: Plan, depth: Literal["data", "blocks"]) -> dict[str, str]:
        self._register(CheckSource)
        source = self._spark.read.format(CheckSource.name()).option("plan", plan.to_text())
        return {row[0]: row[1] for row in source.option("depth", depth).load().collect()}

    def _load(self, plan: Plan, name: Name) -> DataFrame:
        if not plan.files:
            return self._spark.createDataFrame([], plan.table())
        if name == "spark-avro":
            return self._load_by_spark(plan)
        plan = replace(plan, decoder=name)
        # Spark hands filters down from 4.1 on, and only where it is told to.
        pushes = bool(plan.folder_types) and hasattr(datasource, "Not")
        if pushes:
            self._spark.conf.set(PUSHDOWN_CONF, "true")
        self._register(AvroSource)
        source = self._spark.read.format(AvroSource.name()).schema(plan.table())
        return source.option("plan", plan.to_text()).option("pushes", str(pushes).lower()).load()

    def _register(self, source: type[datasource.DataSource]) -> None:
        # Spark asks the thread's session whether the name is taken: in another one than ours it may be, and
        # then ours would not get it.
        use_in_thread(self._spark)
        try:
            self._spark.dataSource.register(source)
        except AnalysisException as error:
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise

    def _load_by_spark(self, plan: Plan) -> DataFrame:
        source = self._spark.read.format(str(sparks_name(self._spark))).schema(plan.stored())
        # `CORRECTED`: dates before 1582 are read as they are written, as our own readers do.
        source = source.option("avroSchema", plan.narrowed()).option("datetimeRebaseMode", "CORRECTED")
        root = root_of(plan.files[0])
        if root is not None:
            source = source.option("basePath", spark_path(root))
        paths = [spark_glob(file.path) for file in plan.files]
        with self._listed_here():
            table = source.load(paths)
        # In backquotes, since a name may contain a dot.
        return table.select(*(f"`{name}`" for name in plan.columns))

    @contextmanager
    def _listed_here(self) -> Iterator[None]:
        """Have Spark list files in the driver instead of by a job with one task of milliseconds per file."""
        before = self._spark.conf.get(_LISTING_CONF, None)
        self._spark.conf.set(_LISTING_CONF, str(_MOST_LISTED_HERE))
        try:
            yield
        finally:
            if before is None:
                # Not set to a default: later reads of the session must find it unset, as before.
                self._spark.conf.unset(_LISTING_CONF)
            else:
                self._spark.conf.set(_LISTING_CONF, before)


def _check(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise DataError(f"{name}={value!r} is not one of {', '.join(choices)}")


def _texts(path: Paths) -> list[str]:
    return [os.fspath(each) for each in ([path] if isinstance(path, str | os.PathLike) else path)]
