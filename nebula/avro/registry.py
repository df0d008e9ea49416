"""Schemas by fingerprint: a folder of `.avsc` files, and further sources behind it."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from nebula.avro.compatibility import why_unreadable
from nebula.avro.schema import MAX_SCHEMA_BYTES, Schema
from nebula.errors import AvroError, SettingsError
from nebula.private import sync_folder

MAX_SCHEMAS: Final = 10_000


class SchemaSource(Protocol):
    """Knows the schemas that data were written with."""

    def by_fingerprint(self, fingerprint: int) -> Schema | None:
        """The schema of this fingerprint; None: it is not known."""
        ...


class Registry:
    """The schemas of a folder. May be used from several threads.

    Args:
        folder: of `.avsc` files, one schema each; it is made if missing.

    Raises:
        SettingsError: the folder cannot be used, or a file in it is one that `register` would refuse.
            Names the file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Held only to register: a look-up in a dictionary is atomic, and a schema is complete before it is
        # added.
        self._lock = threading.Lock()
        self._schemas: dict[int, Schema] = {}
        self._by_name: dict[str, list[Schema]] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            files = sorted(folder.glob("*.avsc"))
            for file in files:
                schema = Schema.from_text(file.read_bytes())
                # Two files may differ in what a fingerprint leaves out, such as a description.
                if schema.fingerprint not in self._schemas:
                    self._check(schema)
                    self._add(schema)
        except AvroError as error:
            raise SettingsError(f"{file}: {error}") from error
        except OSError as error:
            raise SettingsError(f"schemas {folder}: {error}") from error

    def by_fingerprint(self, fingerprint: int) -> Schema | None:
        """The schema of this fingerprint; None: it is not known."""
        return self._schemas.get(fingerprint)

    def by_name(self, name: str) -> list[Schema]:
        """All schemas of the types that are called so, in no order."""
        return list(self._by_name.get(name, ()))

    def __iter__(self) -> Iterator[Schema]:
        return iter(sorted(self._schemas.values(), key=lambda each: (each.name, each.fingerprint)))

    def register(self, definition: Any) -> Schema:
        """Take a schema in, and keep it in the folder. Idempotent.

        A name's schemas must be readable by each other, both ways: who cannot promise that gives the
        type a new major version, and so a new name (B.9).

        Args:
            definition: the schema as text, or read from JSON.

        Raises:
            AvroError: no schema, not compatible with those of its name, or one too many.
            OSError: the file cannot be written.
        """
        is_text = isinstance(definition, str | bytes)
        schema = Schema.from_text(definition) if is_text else Schema(definition)
        # Two schemas of one name that come at once have to be compared with each other.
        with self._lock:
            if schema.fingerprint not in self._schemas:
                self._check(schema)
                self._write(schema)
                # On disk before it can be found: after a restart the broker has every schema by which it has
                # accepted data.
                self._add(schema)
            return self._schemas[schema.fingerprint]

    def _add(self, schema: Schema) -> None:
        self._schemas[schema.fingerprint] = schema
        self._by_name.setdefault(schema.name, []).append(schema)

    def _check(self, schema: Schema) -> None:
        if len(self._schemas) >= MAX_SCHEMAS:
            raise AvroError(f"more than {MAX_SCHEMAS} schemas")
        if not isinstance(schema.parsed, Mapping) or "name" not in schema.parsed:
            raise AvroError(f"an {schema.name} has no name to be known by: put it into a record")
        # Compared with all schemas of its name, both ways: readers and writers of any age may meet.
        for other in self.by_name(schema.name):
            for writer, reader in ((other, schema), (schema, other)):
                difference = why_unreadable(writer.parsed, reader.parsed)
                if difference is not None:
                    raise AvroError(
                        f"{schema.name} is not compatible with {other.fingerprint_hex}: {difference};"
                        " a breaking change needs a new major version in the name"
                    )

    def _write(self, schema: Schema) -> None:
        text = _text(schema.definition)
        # Seen whole or not at all, whenever the folder is read, and after a power cut.
        with tempfile.NamedTemporaryFile(
            "w", dir=self._folder, prefix=".", suffix=".tmp", delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(self._folder / f"{_safe(schema.name)}.{schema.fingerprint_hex}.avsc")
        # The file is synced, but a power cut loses its name unless the folder is synced too.
        sync_folder(self._folder)


def _text(definition: Any) -> str:
    """For a file: for people where there is room, and never longer than what is read again."""
    compact = json.dumps(definition, separators=(",", ":"))
    if len(compact) > MAX_SCHEMA_BYTES:
        raise AvroError(f"a schema of more than {MAX_SCHEMA_BYTES} bytes")
    pretty = json.dumps(definition, indent=2)
    return pretty if len(pretty) < MAX_SCHEMA_BYTES else compact


def _safe(name: str) -> str:
    """Names of types are letters, digits, underscores and dots; what is not must not reach a path."""
    return "".join(each if each.isalnum() or each in "._" else "_" for each in name)[:200]
