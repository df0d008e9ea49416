"""Compatibility of two schemas: whether data of one can be read with the other ("Schema Resolution")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# A writer's type on the left may be read as those on the right.
_PROMOTIONS: Final = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


def why_unreadable(writer: Any, reader: Any) -> str | None:
    """Why data written with one parsed schema cannot be read with another; None: it can.

    A branch or symbol that the reader lacks counts, though data without it could be read: a
    subscriber does not choose what is published.
    """
    return _Comparison(writer, reader).difference(writer, reader, "")


class _Comparison:
    def __init__(self, writer: Any, reader: Any) -> None:
        self._writer_names = _named(writer, {})
        self._reader_names = _named(reader, {})
        # What is known of pairs of records. Without it, records that hold records that hold records … twice
        # each would be compared again and again. A pair that is being compared further up counts as
        # alike: recursive types are, unless something else is not.
        self._alike: dict[tuple[str, str], None] = {}
        self._different: dict[tuple[str, str], str] = {}

    def difference(self, writer: Any, reader: Any, path: str) -> str | None:
        writer = self._resolve(writer, self._writer_names)
        reader = self._resolve(reader, self._reader_names)
        if isinstance(writer, list):
            # Any of its branches may be written, so each must be readable.
            found = [self.difference(branch, reader, path) for branch in writer]
            return next((each for each in found if each), None)
        if isinstance(reader, list):
            # One branch of the reader that fits is enough.
            if any(self.difference(writer, branch, path) is None for branch in reader):
                return None
            return _at(path, f"{_kind(writer)} is none of the reader's choices")
        return self._compare(writer, reader, path)

    def _compare(self, writer: Any, reader: Any, path: str) -> str | None:
        kind, wanted = _kind(writer), _kind(reader)
        if kind != wanted:
            if wanted in _PROMOTIONS.get(kind, ()):
                return None
            return _at(path, f"{kind} cannot be read as {wanted}")
        match kind:
            case "record" | "error":
                return self._records(writer, reader, path)
            case "enum":
                # The reader's default replaces symbols that it does not know.
                missing = set(writer["symbols"]) - set(reader["symbols"])
                if missing and "default" not in reader:
                    return _at(path, f"the reader has no symbol {min(missing)}")
                return _names(writer, reader, path)
            case "fixed":
                if writer["size"] != reader["size"]:
                    return _at(path, f"fixed of {writer['size']} and of {reader['size']} bytes")
                return _names(writer, reader, path)
            case "array":
                return self.difference(writer["items"], reader["items"], f"{path}[]")
            case "map":
                return self.difference(writer["values"], reader["values"], f"{path}{{}}")
        return None

    def _records(self, writer: Any, reader: Any, path: str) -> str | None:
        pair = (writer["name"], reader["name"])
        if pair in self._different:
            return _at(path, self._different[pair])
        if pair in self._alike:
            return None
        assumed = len(self._alike)
        self._alike[pair] = None
        found = _names(writer, reader, path) or self._fields(writer, reader, path)
        if found:
            # What was found alike since may have been so only because this pair was taken to be.
            while len(self._alike) > assumed:
                self._alike.popitem()
            self._different[pair] = f"{_unqualified(writer)} cannot be read as the reader's"
        return found

    def _fields(self, writer: Any, reader: Any, path: str) -> str | None:
        written = {field["name"]: field for field in writer["fields"]}
        # Only the reader's fields count: it skips the others.
        for field in reader["fields"]:
            here = f"{path}.{field['name']}".lstrip(".")
            names = [field["name"], *field.get("aliases", ())]
            source = next((written[name] for name in names if name in written), None)
            if source is None:
                if "default" not in field:
                    return _at(here, "is not written, and the reader has no default for it")
            elif found := self.difference(source["type"], field["type"], here):
                return found
        return None

    def _resolve(self, schema: Any, names: Mapping[str, Any]) -> Any:
        if isinstance(schema, str):
            return names.get(schema, schema)
        if isinstance(schema, Mapping) and isinstance(schema["type"], Mapping | list):
            return self._resolve(schema["type"], names)
        return schema


def _kind(schema: Any) -> str:
    return str(schema["type"]) if isinstance(schema, Mapping) else str(schema)


def _names(writer: Any, reader: Any, path: str) -> str | None:
    # Names without their namespaces, as the specification compares them ("Schema Resolution").
    ours, theirs = _unqualified(writer), _unqualified(reader)
    if ours == theirs or writer["name"] in reader.get("aliases", ()) or ours in reader.get("aliases", ()):
        return None
    return _at(path, f"the types are called {ours} and {theirs}")


def _unqualified(schema: Any) -> str:
    return str(schema["name"]).rpartition(".")[2]


def _named(schema: Any, found: dict[str, Any]) -> dict[str, Any]:
    """All named types that are defined within a parsed schema."""
    if isinstance(schema, list):
        for branch in schema:
            _named(branch, found)
    elif isinstance(schema, Mapping):
        if "name" in schema and schema["type"] in ("record", "error", "enum", "fixed"):
            found[schema["name"]] = schema
        for inner in ("items", "values", "type"):
            if isinstance(schema.get(inner), Mapping | list):
                _named(schema[inner], found)
        for field in schema.get("fields", ()):
            _named(field["type"], found)
    return found


def _at(path: str, what: str) -> str:
    return f"{path}: {what}" if path else what
