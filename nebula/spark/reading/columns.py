"""Types of columns: the Spark, Arrow and decoder's type for an Avro type.

A value has three forms on its way: the decoder's, plain numbers and bytes without logical types (*raw*);
Arrow's, exactly as Spark's Python workers expect it; and Spark's own. The mapping is that of spark-avro, so
that a table is the same whichever reader made it.
"""

from __future__ import annotations

from itertools import compress, count
from typing import Any, assert_never

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import types as spark

from nebula.spark.reading.avro_types import (
    Array,
    AvroType,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    Unsupported,
    parts,
    unwrap,
)
from nebula.spark.reading.errors import UnsupportedTypeError

_STRING = Primitive("string")

_PLAIN_ARROW = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}

_LOGICAL_ARROW = {
    "date": pa.date32(),
    # Spark's times have microseconds, so milliseconds are widened once, here.
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}

_PLAIN_SPARK: dict[str, spark.DataType] = {
    "null": spark.NullType(),
    "boolean": spark.BooleanType(),
    "int": spark.IntegerType(),
    "long": spark.LongType(),
    "float": spark.FloatType(),
    "double": spark.DoubleType(),
    "bytes": spark.BinaryType(),
    "string": spark.StringType(),
    "date": spark.DateType(),
    "timestamp-millis": spark.TimestampType(),
    "timestamp-micros": spark.TimestampType(),
    "local-timestamp-millis": spark.TimestampNTZType(),
    "local-timestamp-micros": spark.TimestampNTZType(),
}


def spark_type(each: AvroType) -> spark.DataType:
    """The type of a column. All of it may be null, as in every file that Spark reads.

    Raises:
        UnsupportedTypeError: Spark has no such type. Names the field.
    """
    inner, _ = unwrap(each)
    match inner:
        # First, since a decimal is bytes or fixed with a precision.
        case Primitive(precision=precision, scale=scale) | Fixed(precision=precision, scale=scale) if (
            precision
        ):
            return spark.DecimalType(precision, scale)
        case Primitive():
            return _PLAIN_SPARK[inner.logical or inner.kind]
        case Enum():
            return spark.StringType()
        case Fixed():
            return spark.BinaryType()
        case Array():
            return spark.ArrayType(spark_type(inner.items))
        case Map():
            return spark.MapType(spark.StringType(), spark_type(inner.values))
        case Record():
            return spark.StructType([spark.StructField(f.name, spark_type(f.type)) for f in inner.fields])
        case Unsupported():
            raise UnsupportedTypeError(inner.why)
        case Union():
            raise AssertionError("Avro's unions do not nest")
        case _:
            assert_never(inner)


def arrow_type(each: AvroType) -> pa.DataType:
    """The type in which Spark's Python workers expect the column. Raises as `spark_type`."""
    inner, _ = unwrap(each)
    match inner:
        case Primitive(precision=precision, scale=scale) | Fixed(precision=precision, scale=scale) if (
            precision
        ):
            return pa.decimal128(precision, scale)
        case Primitive():
            return _LOGICAL_ARROW[inner.logical] if inner.logical else _PLAIN_ARROW[inner.kind]
        case Enum():
            return pa.string()
        case Fixed():
            return pa.binary()
        case Array():
            # The inner fields have the names that Spark gives them in Arrow.
            return pa.list_(pa.field("element", arrow_type(inner.items)))
        case Map():
            return pa.map_(pa.string(), pa.field("value", arrow_type(inner.values)))
        case Record():
            return pa.struct([pa.field(f.name, arrow_type(f.type)) for f in inner.fields])
        case Unsupported():
            raise UnsupportedTypeError(inner.why)
        case Union():
            raise AssertionError("Avro's unions do not nest")
        case _:
            assert_never(inner)


# Why a raw form at all: decoders differ in what they make of logical types (units, time zones) and agree
# on plain numbers, bytes and decimals. So they get a schema without the others, and the conversion to
# dates and times is ours, once, over whole columns.
def raw_type(each: AvroType) -> pa.DataType:
    """The type of a decoded column, before symbols, dates and their like are made of it."""
    inner, _ = unwrap(each)
    match inner:
        case Primitive(precision=precision, scale=scale) | Fixed(precision=precision, scale=scale) if (
            precision
        ):
            return pa.decimal128(precision, scale)
        case Primitive():
            return _PLAIN_ARROW[inner.kind]
        # The index of the symbol; the texts are looked up by it over the whole column.
        case Enum():
            return pa.int32()
        case Array():
            return pa.list_(raw_type(inner.items))
        # Avro's map is encoded as a series of pairs.
        case Map():
            entry = [pa.field("key", pa.string()), pa.field("value", raw_type(inner.values))]
            return pa.list_(pa.struct(entry))
        case Record():
            # Raw records lack what Spark cannot hold, as does the schema that they are decoded by.
            return pa.struct([pa.field(f.name, raw_type(f.type)) for f in inner.fields if _is_held(f.type)])
        case Fixed() | Union() | Unsupported():
            return pa.binary()
        case _:
            assert_never(inner)


def _is_held(each: AvroType) -> bool:
    """Whether Spark can hold it: what it cannot is not decoded."""
    inner, _ = unwrap(each)
    match inner:
        case Unsupported():
            return False
        case Array():
            return _is_held(inner.items)
        case Map():
            return _is_held(inner.values)
        case Primitive() | Enum() | Fixed() | Record() | Union():
            return True
        case _:
            assert_never(inner)


def raw_schema(record: Record, *, only_held: bool = False) -> dict[str, Any]:
    """An Avro schema for the same bytes that decodes quickly, and in more libraries than the writer's.

    An enum's index is an int, a map's entries are an array of records, and a named type is written out
    wherever it is used: Avro's encoding is the same for each of these.

    Args:
        record: of the writer.
        only_held: without the fields that Spark cannot hold, its own and those of records within it: what
            is read by that schema skips them.
    """
    # Records need different names; nothing reads the names.
    numbers = count()

    def raw(each: AvroType) -> Any:
        match each:
            case Primitive(precision=0):
                return each.kind
            case Primitive():
                return {"type": each.kind, **_decimal(each)}
            case Enum():
                return "int"
            case Fixed():
                plain = {"type": "fixed", "name": f"n{next(numbers)}", "size": each.size_bytes}
                return plain | _decimal(each) if each.precision else plain
            case Array():
                return {"type": "array", "items": raw(each.items)}
            case Map():
                return {"type": "array", "items": fields([("key", _STRING), ("value", each.values)])}
            case Record():
                return fields([(f.name, f.type) for f in each.fields])
            case Union():
                return [raw(branch) for branch in each.branches]
            case Unsupported():
                raise UnsupportedTypeError(each.why)
            case _:
                assert_never(each)

    def fields(named: list[tuple[str, AvroType]]) -> dict[str, Any]:
        name = f"n{next(numbers)}"
        # Those that are left out have numbers, too: the others have the same names with them and without.
        made = [{"name": field, "type": raw(each)} for field, each in named]
        kept = [not only_held or _is_held(each) for _, each in named]
        return {"type": "record", "name": name, "fields": list(compress(made, kept))}

    return fields([(f.name, f.type) for f in record.fields])


def _decimal(each: Primitive | Fixed) -> dict[str, Any]:
    return {"logicalType": "decimal", "precision": each.precision, "scale": each.scale}


def why_not_polars(each: AvroType) -> str | None:
    """What polars cannot decode in this type, even by its raw schema; None: nothing."""
    return next(filter(None, map(_foreign_to_polars, parts(each))), None)


def _foreign_to_polars(each: AvroType) -> str | None:
    match each:
        case Primitive(kind="null"):
            return "a field that is always null"
        # One branch alone is no nullable type to polars.
        case Union() if len(each.some) != 1 or len(each.branches) != 2:
            return "a union that is not of null and one type"
        case Record() if not each.fields:
            return "a record without fields"
        case Primitive() | Enum() | Fixed() | Array() | Map() | Record() | Union() | Unsupported():
            return None
        case _:
            assert_never(each)
