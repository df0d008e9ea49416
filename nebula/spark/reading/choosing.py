"""Which reader takes a data set: the quickest that is there and can."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from nebula.spark.reading.avro_types import Record
from nebula.spark.reading.columns import why_not_polars
from nebula.spark.reading.errors import DataError
from nebula.spark.reading.files import File
from nebula.spark.reading.hive import has_hive, why_not_hive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Name: TypeAlias = Literal["spark-avro", "polars", "hive", "fastavro"]

ORDER: Final[tuple[Name, ...]] = ("spark-avro", "polars", "hive", "fastavro")
"""By what was measured, the quickest first (decision 0030); spark-avro first, as it is Spark's own."""

# A path that is nowhere: whoever knows the format says so, and who does not says that.
_NOWHERE: Final = "file:///nebula/asks/for/spark-avro"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be read.

    Attributes:
        record: the reader's schema.
        files: all of them.
        folder_types: the columns in the names of folders.
        unpacks: envelopes are to be unpacked.
        why_no_polars: why polars cannot be had, or not for these; None: it can.
    """

    record: Record
    files: Sequence[File]
    folder_types: Mapping[str, str]
    unpacks: bool
    why_no_polars: str | None


def choose(spark: SparkSession, wanted: Wanted, reader: str) -> tuple[Name, str]:
    """A reader's name, and why it is not a quicker one.

    Args:
        spark: the session.
        wanted: what is to be read.
        reader: a name, or `auto`.

    Raises:
        DataError: the one that is named is not there, or cannot read this. Says what to do.
    """
    if reader != "auto":
        named = next((name for name in ORDER if name == reader), None)
        if named is None:
            raise DataError(f"there is no reader {reader!r}: take auto, {', '.join(ORDER)}")
        why = _why_not(spark, wanted, named)
        if why is not None:
            raise DataError(f"the reader {named} cannot be had: {why}")
        return named, "as asked for"
    reasons: list[str] = []
    for name in ORDER:
        why = _why_not(spark, wanted, name)
        if why is None:
            return name, "; ".join(reasons)
        reasons.append(why)
    raise AssertionError("fastavro reads whatever Spark can hold")


def why_no_polars(writer: Record | None) -> str | None:
    """Why polars cannot be had, or not for data of this schema; None: it can."""
    if importlib.util.find_spec("polars") is None:
        return "polars is not installed (pip install 'nebula-rpc[polars]')"
    lacks = None if writer is None else why_not_polars(writer)
    return f"polars cannot decode {lacks}" if lacks else None


def _why_not(spark: SparkSession, wanted: Wanted, name: Name) -> str | None:
    match name:
        case "spark-avro":
            return _why_not_spark_avro(spark, wanted)
        case "polars":
            return wanted.why_no_polars
        case "hive":
            if not has_hive(spark):
                return "the engine has no Hive (give it conf=nebula.spark.reading.HIVE_CONF)"
            if wanted.unpacks:
                return "Hive unpacks no envelopes"
            return why_not_hive(wanted.record, wanted.files, wanted.folder_types)
        case "fastavro":
            return None


def _why_not_spark_avro(spark: SparkSession, wanted: Wanted) -> str | None:
    if not has_spark_avro(spark):
        return "the spark-avro jar is not configured (set spark.jars to it)"
    if wanted.unpacks:
        return "spark-avro unpacks no envelopes"
    if {field.name for field in wanted.record.fields} & {
        name for file in wanted.files[:1] for name, _ in file.parts
    }:
        return "spark-avro takes a column of a folder's name for one of the data"
    return None


def has_spark_avro(spark: SparkSession) -> bool:
    """Whether Spark knows the format `avro`. It takes some hundredths of a second to find out."""
    from pyspark.errors import AnalysisException

    try:
        spark.read.format("avro").schema("a int").load(_NOWHERE)
    except AnalysisException as error:
        return error.getCondition() == "PATH_NOT_FOUND"
    return True
