"""Choice of a reader: Spark's own where it gives the same table, else polars or fastavro."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, assert_never

from nebula.avro import Schema
from nebula.errors import AvroError
from nebula.spark.reading.avro_types import AvroType, Enum, Fixed, Primitive, Record, parse_record
from nebula.spark.reading.blocks import read_header
from nebula.spark.reading.columns import why_not_polars
from nebula.spark.reading.errors import CorruptFileError, DataError
from nebula.spark.reading.files import File, name_hidden_from_java
from nebula.spark.reading.resolution import Resolution, pairs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Name: TypeAlias = Literal["spark-avro", "polars", "fastavro"]

# docs/decisions/0054: the same order for many small files.
ORDER: Final[tuple[Name, ...]] = ("spark-avro", "polars", "fastavro")
"""The readers, fastest first as measured (docs/decisions/0030)."""

# The class is in Spark's own jars; the name `avro` comes with the jar spark-avro, or from who sells Spark.
_SPARKS_NAMES: Final = ("org.apache.spark.sql.avro.AvroFileFormat", "avro")

_names_of: dict[str | None, str | None] = {}

# A path that does not exist: a Spark that knows the format says so, any other that the format is unknown.
_NOWHERE: Final = "file:///nebula/asks/for/spark-avro"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A table that is wanted.

    Attributes:
        record: the reader's schema.
        files: all of them.
        columns: of the record, those that are wanted.
        unpacks: envelopes must be unpacked.
        why_no_polars: why polars cannot be had, or not for these; None: it can.
    """

    record: Record
    files: Sequence[File]
    columns: Sequence[str]
    unpacks: bool
    why_no_polars: str | None


def choose(spark: SparkSession, wanted: Wanted, reader: str) -> tuple[Name, str]:
    """The name of a reader, and why those before it cannot be used.

    Args:
        spark: the session.
        wanted: the table.
        reader: a name, or `auto`.

    Raises:
        DataError: the one that is named is not there, or cannot read this. Says what to do.
    """
    # A reader that is named is used or refused; it is never replaced by another one.
    if reader != "auto":
        named = next((name for name in ORDER if name == reader), None)
        if named is None:
            raise DataError(f"there is no reader {reader!r}: take auto, {', '.join(ORDER)}")
        why = _why_not(spark, wanted, named)
        if why is not None:
            raise DataError(f"the reader {named} cannot be had: {why}")
        return named, "as asked for"
    # The job's log gives the reasons why faster readers cannot be used.
    reasons: list[str] = []
    for name in ORDER:
        why = _why_not(spark, wanted, name)
        if why is None:
            return name, "; ".join(reasons)
        reasons.append(why)
    # Types that Spark cannot hold have been refused by then (`Plan.table`).
    raise AssertionError("fastavro reads whatever Spark can hold")


def why_no_polars(writer: Record | None) -> str | None:
    """Why polars cannot be had, or not for data of this schema; None: it can."""
    # Not imported, which takes a while: only workers that decode with it import it.
    if importlib.util.find_spec("polars") is None:
        return "polars is not installed (pip install 'nebula-rpc[polars]')"
    lacks = None if writer is None else why_not_polars(writer)
    return f"polars cannot decode {lacks}" if lacks else None


def _why_not(spark: SparkSession, wanted: Wanted, name: Name) -> str | None:
    match name:
        case "spark-avro":
            if sparks_name(spark) is None:
                return "this Spark has no reader of Avro (set spark.jars to the jar spark-avro)"
            return why_not_spark_avro(wanted)
        case "polars":
            return wanted.why_no_polars
        case "fastavro":
            return None
        case _:
            assert_never(name)


def why_not_spark_avro(wanted: Wanted) -> str | None:
    """Why Spark's own reader would give another table, or none; None: it gives this one.

    Raises:
        DataError: a file cannot be read as it is wanted. Names the file.
    """
    # In each case below spark-avro would return other rows or columns, without an error.
    if wanted.unpacks:
        return "spark-avro unpacks no envelopes"
    # Hadoop skips such files even if their path is given.
    if hidden := name_hidden_from_java(file.path for file in wanted.files):
        return f"spark-avro leaves out files that are called {hidden}"
    # Spark compares names without their case unless it is told otherwise.
    fields = [field.name.lower() for field in wanted.record.fields]
    if len({*fields}) < len(fields):
        return "spark-avro knows no capital letters, and two columns have the same name without them"
    folders = {name.lower() for file in wanted.files[:1] for name, _ in file.parts}
    if folders & {*fields}:
        return "spark-avro takes a column of a folder's name for one of the data"
    roots = {root_of(file) for file in wanted.files}
    # Spark takes one `basePath`, below which all names of folders are columns.
    if folders and (None in roots or len(roots) > 1):
        return "spark-avro takes columns from the names of folders below one folder only"
    # One for each schema and not for each file: a folder has few of them.
    others = (_resolved_otherwise(path, text, wanted) for text, path in _written(wanted.files).items())
    return next((f"spark-avro {other}" for other in others if other), None)


def root_of(file: File) -> Path | None:
    """The folder above those whose names are columns; None if there is no column, or others lie between."""
    folders = Path(file.path).parents
    depth = len(file.parts)
    return folders[depth] if depth and all("=" in each.name for each in folders[:depth]) else None


def _written(files: Sequence[File]) -> dict[str, str]:
    """The schemas that files were written with, each with the path of one."""
    # Reversed, so that an error names the first file of a schema.
    return {read_header(file.path).schema: file.path for file in reversed(files)}


def _resolved_otherwise(path: str, text: str, wanted: Wanted) -> str | None:
    """What Java's Avro makes something else of than we do, without a word; None: nothing.

    Raises:
        DataError: what the file was written with cannot be read so. Names the file.
    """
    try:
        writer = parse_record(Schema.from_text(text).parsed)
        # Resolved as our own readers would: what cannot be resolved is an error with any reader.
        Resolution(writer, wanted.record, wanted.columns)
    except AvroError as error:
        raise CorruptFileError(path, str(error)) from error
    except DataError as error:
        raise DataError(f"{path}: {error.message}") from error
    return next(filter(None, (_made_otherwise(*pair) for pair in pairs(writer, wanted.record))), None)


def _made_otherwise(writer: AvroType, reader: AvroType) -> str | None:
    match writer, reader:
        case Record(), Record() if _has_doubtful_names(writer, reader):
            return "cannot tell fields whose aliases are names of others"
        case Primitive(kind="bytes"), Primitive(kind="string"):
            return "makes texts of bytes that are none"
        case Primitive(logical=str(written)), Primitive(logical=str(read)):
            if written != read and "timestamp" in written and "timestamp" in read:
                return "takes times that were written in another unit for those of the reader's schema"
        case Enum() | Fixed(), Enum() | Fixed() if writer.name != reader.name:
            return "knows no enum or fixed by another namespace"
    return None


def _has_doubtful_names(writer: Record, reader: Record) -> bool:
    """Whether a field could be made of several, or several of one."""
    # The writer's fields that each field of the reader could be made of, by its name or by an alias.
    written = {field.name for field in writer.fields}
    found = [written & {field.name, *field.aliases} for field in reader.fields]
    return any(len(each) > 1 for each in found) or sum(map(len, found)) > len(set().union(*found))


def sparks_name(spark: SparkSession) -> str | None:
    """What Spark calls its own reader of Avro; None: it has none."""
    # To ask takes some hundredths of a second, and an engine always gives the same answer.
    engine = spark.conf.get("spark.app.id", "")
    if engine not in _names_of:
        _names_of[engine] = next((name for name in _SPARKS_NAMES if _is_known(spark, name)), None)
    return _names_of[engine]


def _is_known(spark: SparkSession, name: str) -> bool:
    from pyspark.errors import AnalysisException

    try:
        # Of a server of Spark Connect nothing is asked before the schema is.
        _ = spark.read.format(name).schema("a int").load(_NOWHERE).schema
    except AnalysisException as error:
        return error.getCondition() == "PATH_NOT_FOUND"
    return True
