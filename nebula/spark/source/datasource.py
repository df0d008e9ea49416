"""What Spark makes of `format("nebula")`: the readers and writers, with their options checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from nebula.avro import Schema
from nebula.errors import SettingsError
from nebula.spark.source.options import (
    BrokerOptions,
    ContentOptions,
    ReadOptions,
    any_read_options,
    read_options,
    stream_options,
    write_options,
)
from nebula.spark.source.rows import columns_of
from nebula.spark.source.schemas import schema_of
from nebula.spark.source.snapshot import SnapshotReader
from nebula.spark.source.writer import BatchWriter

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter


class NebulaSource(DataSource):
    """The data source. Spark makes one for each read or write, and sends it to its other processes.

    All methods raise `SettingsError` where the options are not what they should be, with a sentence.
    """

    # Found once, then sent along: all processes are to have the same columns.
    _definition: Any = None

    @classmethod
    def name(cls) -> str:
        """What `format` calls it."""
        return "nebula"

    def schema(self) -> StructType:
        """The columns of a batch or of a stream; Spark does not say which it will be."""
        read = any_read_options(self.options)
        return columns_of(read.content, self._avro(read.content, read.broker))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of `spark.read`: a snapshot of last values."""
        read = read_options(self.options)
        return SnapshotReader(read, self._checked(schema, read))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Of `spark.readStream`: a queue, or a durable subscription."""
        try:
            from nebula.spark.source.stream import StreamReader
        except ImportError as error:
            raise SettingsError(f"readStream of nebula needs PySpark 4.2 or newer ({error})") from error
        options = stream_options(self.options)
        return StreamReader(options, self._checked(schema, options.read))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002
        """Of `df.write`."""
        _check_appends(overwrite=overwrite)
        options = write_options(self.options)
        return BatchWriter(options, self._avro(options.content, options.broker))

    def streamWriter(  # noqa: N802  # Spark's name
        self,
        schema: StructType,  # noqa: ARG002
        overwrite: bool,
    ) -> DataSourceStreamWriter:
        """Of `df.writeStream`."""
        try:
            from nebula.spark.source.stream_writer import StreamWriter
        except ImportError as error:
            raise SettingsError(f"writeStream to nebula needs PySpark 4.1 or newer ({error})") from error
        _check_appends(overwrite=overwrite)
        options = write_options(self.options)
        return StreamWriter(options, self._avro(options.content, options.broker))

    def _checked(self, schema: StructType, read: ReadOptions) -> Schema | None:
        found = self._avro(read.content, read.broker)
        ours = columns_of(read.content, found).simpleString()
        if schema.simpleString() != ours:
            raise SettingsError(f"the columns are {ours}: leave .schema(…) out, or give avroSchema")
        return found

    def _avro(self, content: ContentOptions, broker: BrokerOptions) -> Schema | None:
        if self._definition is not None:
            return Schema(self._definition)
        found = schema_of(content, broker)
        self._definition = None if found is None else found.definition
        return found


def _check_appends(*, overwrite: bool) -> None:
    if overwrite:
        raise SettingsError('messages that were sent cannot be overwritten: write with .mode("append")')
