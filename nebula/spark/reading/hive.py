"""Avro by Hive's SerDe: Java code that each Spark has, behind tables of a metastore in memory."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nebula.spark.reading.avro_types import AvroType, Fixed, Primitive, Record, Union, parts
from nebula.spark.reading.files import NULL_NAME, File, name_hidden_from_java
from nebula.spark.reading.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

# The column that tells folders apart whose names have no columns.
_FOLDER: Final = "nebula_folder"

_FOREIGN_LOGICAL: Final = ("timestamp-micros", "local-timestamp-millis", "local-timestamp-micros")


def has_hive(spark: SparkSession) -> bool:
    """Whether the engine was started with a Hive metastore."""
    # Spark checks the default, too: it must be one of its own values.
    return spark.conf.get("spark.sql.catalogImplementation", "in-memory") == "hive"


def why_not_hive(record: Record, files: Sequence[File], folder_types: Mapping[str, str]) -> str | None:
    """What Hive cannot read of these; None: it can."""
    names = [field.name.lower() for field in record.fields] + [name.lower() for name in folder_types]
    if len(set(names)) < len(names):
        return "Hive knows no capital letters, and two columns have the same name without them"
    for field in record.fields:
        if why := next(filter(None, map(_foreign, parts(field.type))), None):
            return f"Hive cannot read {why} ({field.name})"
    wanted = {file.path for file in files}
    folders = _folders(files)
    if hidden := name_hidden_from_java([*(file.path for file in files), *folders]):
        return f"Hive leaves out files that are called {hidden}"
    for folder in folders:
        held = [entry for entry in os.scandir(folder) if not entry.name.startswith((".", "_"))]
        if any(entry.path not in wanted for entry in held):
            return f"Hive reads whole folders only, and {folder} holds more than the files wanted"
    return None


def read(spark: SparkSession, plan: Plan) -> DataFrame:
    """The table of a plan."""
    from pyspark.sql import functions

    name = _table(spark, plan)
    nullable = {name for file in plan.files for name, value in file.parts if value is None}

    def column(field: StructField) -> Column:
        # Hive's names are in small letters, those within structs too.
        found = functions.col(field.name.lower()).cast(field.dataType)
        if field.name in nullable and field.name in plan.folder_types:
            # A null among texts comes out as it is written in a folder's name.
            found = functions.when(found.cast("string") != NULL_NAME, found)
        return found.alias(field.name)

    return spark.table(name).select(*map(column, plan.table()))


def _table(spark: SparkSession, plan: Plan) -> str:
    """Make the table, unless another read of the same has. It stays: a DataFrame needs it until its end."""
    folders = _folders(plan.files)
    told = json.dumps([plan.schema, dict(plan.folder_types), list(folders)])
    name = f"nebula_avro_{hashlib.sha256(told.encode()).hexdigest()[:24]}"
    parts = ", ".join(f"`{n}` {kind}" for n, kind in {_FOLDER: "int", **plan.folder_types}.items())
    anywhere = _uri(next(iter(folders)))
    spark.sql(
        f"CREATE EXTERNAL TABLE IF NOT EXISTS {name} PARTITIONED BY ({parts}) STORED AS AVRO "
        f"LOCATION {_text(anywhere)} TBLPROPERTIES ('avro.schema.literal'={_text(plan.schema)})"
    )
    places = []
    for number, (folder, file) in enumerate(folders.items()):
        values = [f"{_FOLDER}={number}"]
        parts_here = ((n, value) for n, value in file.parts if n in plan.folder_types)
        values += [f"`{n}`={'NULL' if value is None else _text(value)}" for n, value in parts_here]
        places.append(f"PARTITION ({', '.join(values)}) LOCATION {_text(_uri(folder))}")
    spark.sql(f"ALTER TABLE {name} ADD IF NOT EXISTS {' '.join(places)}")
    return name


def _folders(files: Sequence[File]) -> dict[str, File]:
    """Each folder with a file in it."""
    return {str(Path(file.path).parent): file for file in reversed(files)}


def _uri(path: str) -> str:
    # Hadoop reads no escapes in it.
    return f"file://{path}"


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _foreign(each: AvroType) -> str | None:
    match each:
        case Primitive(logical=logical) if logical in _FOREIGN_LOGICAL:
            return logical
        case Primitive(kind="null"):
            return "a field that is always null"
        case Fixed(precision=precision) if precision:
            return "a decimal of a fixed size"
        case Union() if len(each.some) != 1:
            return "a union of several types"
        case _:
            return None
