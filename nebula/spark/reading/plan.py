"""Plan of a read, as a Python data source gets it: all of it text, as Spark's options are."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from pyspark.sql import types as spark

from nebula.avro import Schema
from nebula.errors import AvroError
from nebula.spark.reading.avro_types import Record, parse_record
from nebula.spark.reading.columns import spark_type
from nebula.spark.reading.errors import DataError
from nebula.spark.reading.files import File

SPARK_TYPES: Final[dict[str, spark.DataType]] = {
    "int": spark.IntegerType(),
    "bigint": spark.LongType(),
    "date": spark.DateType(),
    "string": spark.StringType(),
}


@dataclass(frozen=True)
class Plan:
    """One read of a data set.

    Attributes:
        decoder: `polars` or `fastavro`.
        files: to be read.
        folder_types: the types of the columns in the names of folders, those that a row gets.
        schema: the reader's, as JSON: what rows are read as.
        columns: in this order; of the schema or of the folders.
        slots: how many tasks run side by side.
        contents: of envelopes, the schemas by fingerprint as JSON; None: rows are read as they are.
    """

    decoder: str
    files: Sequence[File]
    folder_types: Mapping[str, str]
    schema: str
    columns: Sequence[str]
    slots: int
    contents: Mapping[int, str] | None = None

    @cached_property
    def record(self) -> Record:
        """The reader's schema as a tree."""
        return parse_record(Schema.from_text(self.schema).parsed)

    @property
    def data_columns(self) -> list[str]:
        """The columns that are in the files."""
        return [name for name in self.columns if name not in self.folder_types]

    def table(self) -> spark.StructType:
        """The table that comes out.

        Raises:
            UnsupportedTypeError: a column is of a type that Spark does not have.
        """
        fields = {field.name: field.type for field in self.record.fields}
        return spark.StructType(
            [
                spark.StructField(
                    name,
                    SPARK_TYPES[self.folder_types[name]]
                    if name in self.folder_types
                    else spark_type(fields[name]),
                )
                for name in self.columns
            ]
        )

    def stored(self) -> spark.StructType:
        """All that the files have of the table, and all that their folders' names have. Raises as `table`."""
        columns = [*self.data_columns, *self.folder_types]
        # Spark's reader of Avro appends columns of folders to those of the data, so they are asked for in
        # this order.
        return replace(self, columns=columns).table()

    def narrowed(self) -> str:
        """The reader's schema with no other fields than the wanted ones, if it is one without the others."""
        definition = json.loads(self.schema)
        fields = [field for field in definition.get("fields", ()) if field["name"] in self.data_columns]
        narrow = json.dumps({**definition, "fields": fields})
        try:
            Schema.from_text(narrow)
        except AvroError:  # one of the others defines a type that a wanted one has, too
            return self.schema
        return narrow

    def to_text(self) -> str:
        """As an option of Spark's."""
        contents = None if self.contents is None else {str(key): text for key, text in self.contents.items()}
        told = {
            "decoder": self.decoder,
            "files": [[file.path, file.size_bytes, file.parts] for file in self.files],
            "folder_types": dict(self.folder_types),
            "schema": self.schema,
            "columns": list(self.columns),
            "slots": self.slots,
            "contents": contents,
        }
        # Options are text, and a list of files is long and repetitive: level 1 is enough.
        return base64.b64encode(zlib.compress(json.dumps(told).encode(), 1)).decode()

    @classmethod
    def from_text(cls, text: str) -> Plan:
        """The reverse of `to_text`."""
        told: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(text)))
        told["files"] = [
            File(path, size, tuple((name, value) for name, value in parts))
            for path, size, parts in told["files"]
        ]
        if told["contents"] is not None:
            told["contents"] = {int(key): schema for key, schema in told["contents"].items()}
        return cls(**told)


def choose_columns(record: Record, folders: Mapping[str, str], columns: Sequence[str] | None) -> list[str]:
    """The wanted columns: those that are given, or all of the data and then those of folders.

    Raises:
        DataError: there is no such column.
    """
    # A column of the data takes precedence over a folder's of the same name.
    every = [*dict.fromkeys([*(field.name for field in record.fields), *folders])]
    if columns is None:
        return every
    unknown = [name for name in columns if name not in every]
    if unknown:
        raise DataError(f"there is no column {unknown[0]!r}: there are {', '.join(every)}")
    return list(dict.fromkeys(columns))
