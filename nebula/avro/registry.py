"""Schemas by fingerprint: a folder of `.avsc` files, and whoever else knows them."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from nebula.avro.compatibility import why_unreadable
from nebula.avro.schema import MAX_SCHEMA_BYTES, Schema
from nebula.errors import AvroError, SettingsError

MAX_SCHEMAS: Final = 10_000


class SchemaSource(Protocol):
    """Knows the schemas that data were written with."""

    def by_fingerprint(self, fingerprint: int) -> Schema | None:
        """The schema of this fingerprint; None: it is not known."""
        ...


class Registry:
    """The schemas of a folder. May be used from several threads.

    Args:
        folder: of `.avsc` files, one schema each; it is made where there is none.

    Raises:
        SettingsError: the folder cannot be used, or a file in it is no schema. Names the file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._schemas: dict[int, Schema] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            files = sorted(folder.glob("*.avsc"))
            for file in files:
                schema = Schema.from_text(file.read_text(encoding="utf-8"))
                self._schemas[schema.fingerprint] = schema
        except AvroError as error:
            raise SettingsError(f"{file}: {error}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"schemas {folder}: {error}") from error

    def by_fingerprint(self, fingerprint: int) -> Schema | None:
        """The schema of this fingerprint; None: it is not known."""
        return self._schemas.get(fingerprint)

    def by_name(self, name: str) -> list[Schema]:
        """All schemas of the types that are called so, in no order."""
        return [schema for schema in list(self._schemas.values()) if schema.name == name]

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
        schema = Schema.from_text(definition if is_text else json.dumps(definition))
        with self._lock:
            if schema.fingerprint not in self._schemas:
                self._check(schema)
                self._write(schema)
                self._schemas[schema.fingerprint] = schema
            return self._schemas[schema.fingerprint]

    def _check(self, schema: Schema) -> None:
        if len(self._schemas) >= MAX_SCHEMAS:
            raise AvroError(f"more than {MAX_SCHEMAS} schemas")
        for other in self.by_name(schema.name):
            for writer, reader in ((other, schema), (schema, other)):
                difference = why_unreadable(writer.parsed, reader.parsed)
                if difference is not None:
                    raise AvroError(
                        f"{schema.name} is not compatible with {other.fingerprint_hex}: {difference};"
                        " a breaking change needs a new major version in the name"
                    )

    def _write(self, schema: Schema) -> None:
        text = json.dumps(schema.definition, indent=2)
        assert len(text) <= 16 * MAX_SCHEMA_BYTES
        # Seen whole or not at all, whenever somebody looks.
        with tempfile.NamedTemporaryFile(
            "w", dir=self._folder, prefix=".", suffix=".tmp", delete=False, encoding="utf-8"
        ) as file:
            file.write(text + "\n")
        Path(file.name).replace(self._folder / f"{_safe(schema.name)}.{schema.fingerprint_hex}.avsc")


def _safe(name: str) -> str:
    """Names of types are letters, digits, underscores and dots; what is not must not reach a path."""
    return "".join(each if each.isalnum() or each in "._" else "_" for each in name)[:200]
