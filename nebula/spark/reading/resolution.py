"""Schema resolution of Avro, a column at a time: from decoded columns to the wanted ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias, assert_never

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]

from nebula.spark.reading.avro_types import (
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    Unsupported,
    unwrap,
)
from nebula.spark.reading.columns import arrow_type, raw_type
from nebula.spark.reading.errors import DataError, UnsupportedTypeError

Convert: TypeAlias = Callable[[pa.Array], pa.Array]

_PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}

_UNITS: Final = {"millis": "ms", "micros": "us"}


# Avro resolves schemas value by value while it decodes. Here a writer's schema is resolved once, into one
# function for each column (`converter`), and the data pass through Arrow's kernels: no Python runs for a
# value. The rules are Avro's (section "Schema Resolution" of its specification), with those of spark-avro
# where that differs.
#
# Nulls are the trap: under a null parent, child columns hold whatever the decoder left there. So children
# are converted without those rows and spread out again (`_record`, `_spread`).
class Resolution:
    """How rows of a writer's schema become columns of a reader's.

    Args:
        writer: what the data were written with.
        reader: what they are read as.
        columns: of the reader's fields, in this order; None: all.

    Raises:
        DataError: the writer's cannot be read so, or there is no such column. Names the field.

    Attributes:
        needed: the writer's fields that have to be decoded.
        schema: of the batches that are made.
    """

    def __init__(self, writer: Record, reader: Record, columns: Sequence[str] | None = None) -> None:
        if not _same_name(writer, reader):
            raise DataError(f"{writer.name} cannot be read as {reader.name}: give that one an alias")
        # The reader's order, and only what is wanted.
        fields = {field.name: field for field in reader.fields}
        wanted = [fields[name] for name in fields if columns is None or name in columns]
        self._sources = [_source(writer, field, field.name) for field in wanted]
        self.needed = tuple(
            field.name for field in writer.fields if field.name in {s for s, _ in self._sources}
        )
        self.schema = pa.schema([pa.field(field.name, arrow_type(field.type)) for field in wanted])

    def batch(self, columns: Mapping[str, pa.Array], count: int) -> pa.RecordBatch:
        """The wanted columns of this number of rows.

        Args:
            columns: those `needed`, raw.

        Raises:
            DataError: a value cannot be read so: null where there may be none, a symbol that the reader
                lacks, a text that is no UTF-8, a time that is out of Spark's range.
        """
        # A reader's field without a writer's is made from its default, which needs the number of rows
        # alone.
        nothing = pa.nulls(count)
        arrays = [
            convert(columns[source] if source is not None else nothing) for source, convert in self._sources
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _source(writer: Record, field: Field, path: str) -> tuple[str | None, Convert]:
    """The writer's field that a reader's is made of, and how; without one, its default."""
    written = source_of(writer, field)
    if written is not None:
        return written.name, converter(written.type, field.type, path)
    if not field.has_default:
        raise DataError(f"{path} is not written, and the reader's schema has no default for it")
    return None, _constant(field.default, field.type, path)


def source_of(writer: Record, field: Field) -> Field | None:
    """The writer's field of the same name, or else of the first alias that is written; None: none is."""
    written = {each.name: each for each in writer.fields}
    return next((written[name] for name in (field.name, *field.aliases) if name in written), None)


def pairs(writer: AvroType, reader: AvroType) -> Iterator[tuple[AvroType, AvroType]]:
    """What is written and what it is read as, and behind them all such pairs within them."""
    (inner, _), (wanted, _) = unwrap(writer), unwrap(reader)
    yield inner, wanted
    match inner, wanted:
        case Array(), Array():
            yield from pairs(inner.items, wanted.items)
        case Map(), Map():
            yield from pairs(inner.values, wanted.values)
        case Record(), Record():
            for field in wanted.fields:
                written = source_of(inner, field)
                if written is not None:
                    yield from pairs(written.type, field.type)


def converter(writer: AvroType, reader: AvroType, path: str) -> Convert:
    """What makes the reader's column of a raw one. Raises DataError: it cannot be made."""
    inner, may_be_null = unwrap(writer)
    wanted, may_hold_null = unwrap(reader)
    if isinstance(wanted, Unsupported):
        raise UnsupportedTypeError(wanted.why)
    # A column that is always null has no type of its own in Arrow.
    if inner == Primitive("null") and may_hold_null:
        target = arrow_type(wanted)
        return lambda column: pa.nulls(len(column), target)
    convert = _between(inner, wanted, path)
    # The data decide: a nullable column may have no null in it, and is accepted then.
    if may_be_null and not may_hold_null:
        return _without_nulls(convert, path)
    return convert


def _between(writer: AvroType, reader: AvroType, path: str) -> Convert:
    match writer, reader:
        case Record(), Record() if _same_name(writer, reader):
            return _record(writer, reader, path)
        case Enum(), Enum() if _same_name(writer, reader):
            return _enum(writer, reader, path)
        case Fixed(), Fixed() if _same_name(writer, reader) and writer.size_bytes == reader.size_bytes:
            if (writer.precision, writer.scale) == (reader.precision, reader.scale):
                return _cast(arrow_type(reader), path)
        case Array(), Array():
            return _array(converter(writer.items, reader.items, f"{path}[]"), arrow_type(reader))
        case Map(), Map():
            return _map(converter(writer.values, reader.values, f"{path}{{}}"), arrow_type(reader))
        case Primitive(), Primitive():
            return _primitive(writer, reader, path)
    raise DataError(f"{path}: {_word(writer)} cannot be read as {_word(reader)}")


def _primitive(writer: Primitive, reader: Primitive, path: str) -> Convert:
    # Avro has no promotion between decimals.
    is_decimal = bool(writer.precision or reader.precision)
    if is_decimal and writer != reader:
        raise DataError(f"{path}: {_word(writer)} cannot be read as {_word(reader)}")
    if writer.kind != reader.kind and reader.kind not in _PROMOTIONS.get(writer.kind, ()):
        raise DataError(f"{path}: {writer.kind} cannot be read as {reader.kind}")
    target = arrow_type(reader)
    if pa.types.is_timestamp(target) and reader.kind == "long":
        # What was written as a time keeps its unit; a plain long is read in the reader's.
        said = writer.logical if writer.logical and "timestamp" in writer.logical else reader.logical
        unit = _UNITS[str(said).rpartition("-")[2]]
        if writer.kind == "int":
            return _chain(
                # By way of the 64-bit number, since Arrow casts an int of 32 bits to no timestamp.
                _cast(pa.int64(), path),
                _cast(pa.timestamp(unit, target.tz), path),
                _cast(target, path),
            )
        return _chain(_cast(pa.timestamp(unit, target.tz), path), _cast(target, path))
    # A long may have more digits than a float: Avro promotes it all the same.
    return _cast(target, path, is_safe=not pa.types.is_floating(target))


def _cast(target: pa.DataType, path: str, *, is_safe: bool = True) -> Convert:
    def cast(column: pa.Array) -> pa.Array:
        if column.type.equals(target):
            return column
        try:
            return column.cast(target, safe=is_safe)
        except pa.ArrowInvalid as error:
            raise DataError(f"{path}: a value cannot be read as {target} ({_first_line(error)})") from error

    return cast


def _chain(*converts: Convert) -> Convert:
    def chain(column: pa.Array) -> pa.Array:
        for convert in converts:
            column = convert(column)
        return column

    return chain


def _without_nulls(convert: Convert, path: str) -> Convert:
    def check(column: pa.Array) -> pa.Array:
        if column.null_count:
            raise DataError(f"{path} is null in a row, and the reader's schema has no null there")
        return convert(column)

    return check


def _record(writer: Record, reader: Record, path: str) -> Convert:
    sources = [_source(writer, field, f"{path}.{field.name}") for field in reader.fields]
    target = arrow_type(reader)

    def convert(column: pa.Array) -> pa.Array:
        order = {part.name: index for index, part in enumerate(column.type)}
        # What lies under a null is the decoder's filling, and must not be taken for a value.
        rows = column.filter(column.is_valid()) if column.null_count else column
        parts = rows.flatten()
        nothing = pa.nulls(len(rows))
        made = [each(nothing if source is None else parts[order[source]]) for source, each in sources]
        records = pa.StructArray.from_arrays(made, fields=list(target))
        return _spread(records, column) if column.null_count else records

    return convert


def _spread(values: pa.Array, like: pa.Array) -> pa.Array:
    """Put values back to where `like` is not null."""
    valid = like.is_valid()
    # For each valid row its place among the valid ones.
    places = pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1)
    return values.take(pc.if_else(valid, places, pa.scalar(None, pa.int64())))


def _lists(column: pa.Array, convert: Convert) -> tuple[pa.Array, pa.Array]:
    """Offsets of 32 bits and converted items of a column of lists; a null list is empty."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int32())
    ends = pc.cumulative_sum(lengths) if len(lengths) else lengths
    # Offsets are made anew, as those of a slice do not begin at 0.
    return pa.concat_arrays([pa.array([0], pa.int32()), ends]), convert(column.flatten())


def _array(convert: Convert, target: pa.DataType) -> Convert:
    def array(column: pa.Array) -> pa.Array:
        offsets, items = _lists(column, convert)
        mask = column.is_null() if column.null_count else None
        return pa.ListArray.from_arrays(offsets, items, type=target, mask=mask)

    return array


def _map(convert: Convert, target: pa.DataType) -> Convert:
    def mapping(column: pa.Array) -> pa.Array:
        # The entries come as a list of records; Arrow's map takes keys and values apart.
        offsets, entries = _lists(column, lambda items: items)
        keys, values = entries.flatten()
        mask = column.is_null() if column.null_count else None
        keys = keys.cast(pa.string())
        return pa.MapArray.from_arrays(offsets, keys, convert(values), type=target, mask=mask)

    return mapping


def _enum(writer: Enum, reader: Enum, path: str) -> Convert:
    known = set(reader.symbols)
    # Looked up once for each symbol and not for each value.
    symbols = pa.array([each if each in known else reader.default for each in writer.symbols], pa.string())
    unknown = [each for each in writer.symbols if each not in known and reader.default is None]

    def convert(column: pa.Array) -> pa.Array:
        try:
            texts = symbols.take(column)
        except pa.ArrowIndexError as error:
            raise DataError(f"{path}: a value is not one of the enum's symbols") from error
        # More nulls than before: a symbol that is not known.
        if unknown and texts.null_count != column.null_count:
            raise DataError(f"{path}: the reader's schema lacks one of the symbols {', '.join(unknown)}")
        return texts

    return convert


def _constant(default: Any, field: AvroType, path: str) -> Convert:
    """A column of one value: a field's default, as JSON writes it."""
    try:
        raw = pa.array([_raw_default(default, field)], raw_type(field))
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{path}: the default {default!r} is not of the field's type") from error
    # The default goes the way of data, so that its type is the same.
    value = converter(field, field, path)(raw)

    def repeat(column: pa.Array) -> pa.Array:
        # An index that is 0 for each row.
        return value.take(pa.nulls(len(column), pa.int64()).fill_null(0))

    return repeat


def _raw_default(default: Any, field: AvroType) -> Any:
    inner, may_be_null = unwrap(field)
    if default is None:
        if not may_be_null:
            raise ValueError("null")
        return None
    match inner:
        case Enum():
            return inner.symbols.index(default)
        case Primitive(kind="bytes") | Fixed():
            # Avro writes bytes in JSON as the characters of the same numbers.
            data = default.encode("latin-1")
            if not inner.precision:
                return data
            return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-inner.scale)
        case Array():
            return [_raw_default(each, inner.items) for each in default]
        case Map():
            return [{"key": key, "value": _raw_default(each, inner.values)} for key, each in default.items()]
        case Record():
            return {
                each.name: _raw_default(default.get(each.name, each.default), each.type)
                for each in inner.fields
            }
        case Primitive() | Union() | Unsupported():
            return default
        case _:
            assert_never(inner)


def _same_name(writer: Record | Enum | Fixed, reader: Record | Enum | Fixed) -> bool:
    # Without the namespace, as the specification compares names.
    own = writer.name.rpartition(".")[2]
    return own in {each.rpartition(".")[2] for each in (reader.name, *reader.aliases)}


def _word(each: AvroType) -> str:
    match each:
        case Primitive() | Fixed() if each.precision:
            return f"decimal({each.precision},{each.scale})"
        case Primitive():
            return each.logical or each.kind
        case Record() | Enum() | Fixed():
            return f"{type(each).__name__.lower()} {each.name}"
        case Array() | Map() | Union() | Unsupported():
            return type(each).__name__.lower()
        case _:
            assert_never(each)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
