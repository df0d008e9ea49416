"""Avro schema: parsed, named, with its fingerprint, ready to read and write with."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, Final

import fastavro
from fastavro.schema import SchemaParseException, UnknownType, fingerprint, to_parsing_canonical_form

from nebula.avro.prescan import scan
from nebula.avro.programs import USUAL_DATES, Program, compile_schema, logical_type
from nebula.errors import AvroError

MAX_SCHEMA_BYTES: Final = 256 * 1024
MAX_SCHEMA_DEPTH: Final = 64


class Schema:
    """A schema of its own: every type that it names is defined in it.

    Args:
        definition: as in an `.avsc` file, read from JSON.

    Attributes:
        definition: the same.
        name: full name of its type; of one without a name, what it is ("array").
        fingerprint: CRC-64-AVRO of its Parsing Canonical Form.

    Raises:
        AvroError: it is no schema. Says what is wrong with it.
    """

    def __init__(self, definition: Any) -> None:
        _check_depth(definition)
        self.definition = definition
        try:
            self.parsed: Any = fastavro.parse_schema(definition)
            # The canonical form is without documentation, defaults and aliases: schemas that differ in
            # nothing else have one fingerprint, and write the same bytes.
            canonical = to_parsing_canonical_form(definition)
            # The hexadecimal text is that of the bytes in their order, which is little-endian.
            self.fingerprint = int.from_bytes(bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO")), "little")
        except UnknownType as error:
            raise AvroError(
                f"the type {error.name!r} is not defined: write it where it is first used"
            ) from error
        except (SchemaParseException, ValueError, TypeError, KeyError, AttributeError) as error:
            raise AvroError(f"no Avro schema: {error}") from error
        # Compiled here, so that what breaks a rule is refused when it is registered, and not at the first
        # message.
        self._program = compile_schema(self.parsed)
        self._sure = self._sure_program()
        self.name = _name(self.parsed)

    @classmethod
    def from_text(cls, text: str | bytes) -> Schema:
        """Read a schema. Raises AvroError as the constructor, also for what is no JSON, or too much of it."""
        # Before the text is parsed, as parsing takes many times its size.
        if len(text) > MAX_SCHEMA_BYTES:
            raise AvroError(f"a schema of more than {MAX_SCHEMA_BYTES} bytes")
        try:
            return cls(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise AvroError(f"no JSON: {error}") from error

    @property
    def fingerprint_hex(self) -> str:
        """As people write it: 16 hexadecimal digits, the highest first."""
        return f"{self.fingerprint:016x}"

    def encode(self, value: Any) -> bytes:
        """The bytes of a value. Raises AvroError for one that is not of this type."""
        out = io.BytesIO()
        try:
            # `strict` refuses a value with a field that the schema lacks; otherwise the field would be
            # dropped silently.
            fastavro.schemaless_writer(out, self.parsed, value, strict=True)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, IndexError) as error:
            raise AvroError(f"not a value of {self.name}: {error}") from error
        return out.getvalue()

    def decode(self, datum: bytes, reader: Schema | None = None) -> Any:
        """The value of a datum that was written with this schema, in bounded time and memory.

        Args:
            reader: the reader's schema, by Avro's rules of resolution; None: as it was written.

        Raises:
            AvroError: it is no such datum, or cannot be read so.
        """
        scan(self._program, datum)
        return self._read(datum, reader)

    def is_datum(self, datum: bytes) -> bool:
        """Whether `decode` would succeed. Never raises."""
        # Nearly all data pass this program, which is much quicker than decoding them.
        if self._sure is not None and _passes(self._sure, datum):
            return True
        # Without logical types both programs are the same, so its refusal is final.
        if self._sure is self._program:
            return False
        try:
            self.decode(datum)
        except AvroError:
            return False
        return True

    def _sure_program(self) -> Program | None:
        """A program that passes nothing but data, though not all of them; None if no such program exists."""
        # Whether bytes are a decimal, or a text a UUID, only those who make one of it know.
        logical = _logical_types(self.parsed)
        if not logical:
            return self._program
        try:
            return compile_schema(self.parsed, USUAL_DATES) if logical <= USUAL_DATES.keys() else None
        except AvroError:  # too large
            return None

    def _read(self, datum: bytes, reader: Schema | None) -> Any:
        try:
            return fastavro.schemaless_reader(
                io.BytesIO(datum), self.parsed, None if reader is None else reader.parsed
            )
        # Logical types and resolution raise what they please: a date may be none, a reader lack a default.
        except Exception as error:
            raise AvroError(f"no datum of {self.name}: {type(error).__name__}") from error


def _name(parsed: Any) -> str:
    if isinstance(parsed, Mapping):
        return str(parsed.get("name", parsed["type"]))
    return "union" if isinstance(parsed, list) else str(parsed)


def _passes(program: Program, datum: bytes) -> bool:
    try:
        scan(program, datum)
    except AvroError:
        return False
    return True


def _logical_types(parsed: Any) -> set[str]:
    """The types of which a decoder would do more with a value than to read it."""
    if isinstance(parsed, list):
        return {each for inner in parsed for each in _logical_types(inner)}
    if not isinstance(parsed, Mapping):
        return set()
    fields = [field["type"] for field in parsed.get("fields", ())]
    found = _logical_types([parsed.get("items"), parsed.get("values"), *fields])
    own = logical_type(parsed)
    return found if own is None else {own, *found}


def _check_depth(definition: Any) -> None:
    """A library would go down as deep as the schema does, by recursion."""
    level = [definition]
    # Level by level and not by recursion, which a deep definition would exhaust.
    for _ in range(MAX_SCHEMA_DEPTH):
        below: list[Any] = []
        for each in level:
            below += each.values() if isinstance(each, Mapping) else each if isinstance(each, list) else ()
        if not below:
            return
        level = below
    raise AvroError(f"a schema deeper than {MAX_SCHEMA_DEPTH} levels")
