"""Request of a job to read files, settled into a plan: schemas, columns and contents."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from nebula.avro import Schema
from nebula.errors import AvroError
from nebula.spark.reading.avro_types import parse_record
from nebula.spark.reading.blocks import read_blocks, read_header
from nebula.spark.reading.choosing import Wanted, why_no_polars
from nebula.spark.reading.decoding import FastavroDecoder
from nebula.spark.reading.envelopes import unpack
from nebula.spark.reading.errors import CorruptFileError, DataError
from nebula.spark.reading.files import File
from nebula.spark.reading.plan import Plan, choose_columns
from nebula.spark.reading.rows import is_envelope
from nebula.spark.reading.splits import Part

SchemaLike: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any]"
Envelopes: TypeAlias = Literal["content", "raw"]


@dataclass(frozen=True, slots=True)
class Request:
    """What `Reader.avro` was asked for; see there.

    Attributes:
        files: those that are left after `where`.
        samples: those that a schema is taken from, where none is given.
        folder_types: the columns in the names of folders.
        skips: damaged files are no error.
        slots: how many tasks run side by side.
    """

    files: Sequence[File]
    samples: Sequence[File]
    folder_types: Mapping[str, str]
    schema: SchemaLike | None
    columns: Sequence[str] | None
    envelope: Envelopes
    schemas: str | os.PathLike[str] | None
    skips: bool
    slots: int

    def settle(self) -> tuple[Plan, Wanted]:
        """What is read, and what a reader must be able to do for it.

        Raises:
            DataError: there is no schema to be had, a schema or column is wrong, or, unless they are
                skipped, the last file is damaged.
        """
        text, writer = self._last_schema()
        contents = None
        # Envelopes are a column of bytes: the wanted columns are those of the data in them.
        if text is not None and self.envelope == "content" and is_envelope(_record(text)):
            contents = _folder_of_schemas(self.schemas)
            text = self._content_schema(contents) if self.schema is None else None
            writer = text
        reader = text if self.schema is None else _schema_text(self.schema)
        if reader is None:
            raise DataError("there is no Avro file to take the schema from: give schema= for an empty table")
        record = _record(reader)
        # The data win over the folders where both have a column of that name.
        folders = {name: kind for name, kind in self.folder_types.items() if not _has(record, name)}
        columns = choose_columns(record, folders, self.columns)
        # Judged by the writer's schema, since that is what a decoder has to understand.
        lacks = why_no_polars(None if writer is None else _record(writer))
        decoder = "polars" if lacks is None else "fastavro"
        plan = Plan(decoder, self.files, folders, reader, columns, self.slots, contents)
        return plan, Wanted(record, self.files, plan.data_columns, contents is not None, lacks)

    def _last_schema(self) -> tuple[str | None, str | None]:
        # The last file by name, as recorders name files by time: its schema is the newest.
        for file in reversed(self.samples):
            try:
                text = read_header(file.path).schema
            except CorruptFileError:
                if not self.skips:
                    raise
            else:
                return text, text
        return None, None

    def _content_schema(self, contents: Mapping[int, str]) -> str:
        # The newest file first here too; one with only deletions has no value to take a schema from.
        for file in reversed(self.samples):
            try:
                fingerprint = _first_content(file)
            except CorruptFileError:
                if not self.skips:
                    raise
            else:
                if fingerprint is not None and fingerprint in contents:
                    return contents[fingerprint]
        raise DataError(
            "no envelope holds a value of the schemas given: give schema=, or all .avsc files in schemas="
        )


def _first_content(file: File) -> int | None:
    """The fingerprint of the first value in a file of envelopes."""
    writer = _record(read_header(file.path).schema)
    decoder = FastavroDecoder(writer, ("content",))
    # Reading ends at the first value, whatever the size of the file.
    try:
        for data, count in read_blocks(Part(file, 0, file.size_bytes)):
            for found in unpack(decoder.decode(data, count)["content"]):
                return found.fingerprint
    except AvroError as error:
        raise CorruptFileError(file.path, str(error)) from error
    return None


def _folder_of_schemas(folder: str | os.PathLike[str] | None) -> dict[int, str]:
    if folder is None:
        raise DataError(
            "the files hold envelopes: give schemas= the folder of .avsc files that their contents were "
            'written with, or envelope="raw"'
        )
    files = sorted(Path(folder).glob("*.avsc"))
    if not files:
        raise DataError(f"{folder}: there are no .avsc files in it")
    read = [_read_schema(file) for file in files]
    return {schema.fingerprint: json.dumps(schema.definition) for schema in read}


def _schema_text(schema: SchemaLike) -> str:
    if isinstance(schema, Mapping):
        return json.dumps(_checked(schema, "schema=").definition)
    text = os.fspath(schema)
    # Text that begins like JSON is a schema, and anything else a path.
    if text.lstrip().startswith(("{", "[", '"')):
        return json.dumps(_checked(text, "schema=").definition)
    return json.dumps(_read_schema(Path(text)).definition)


def _read_schema(file: Path) -> Schema:
    try:
        return _checked(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: the schema cannot be read: {error}") from error


def _checked(schema: str | Mapping[str, Any], where: str) -> Schema:
    try:
        return Schema.from_text(schema) if isinstance(schema, str) else Schema(schema)
    except AvroError as error:
        raise DataError(f"{where}: {error}") from error


def _record(text: str) -> Any:
    try:
        return parse_record(Schema.from_text(text).parsed)
    except AvroError as error:
        raise DataError(f"the schema of the data cannot be used: {error}") from error


def _has(record: Any, name: str) -> bool:
    return any(field.name == name for field in record.fields)
