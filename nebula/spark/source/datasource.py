"""What Spark makes of `format("nebula")`: the readers and writers, with their options checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from nebula.errors import SettingsError

# Each job's session gets to know this class, and few use it: what it needs is loaded when it is used.
if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter

    from nebula.avro import Schema
    from nebula.spark.source.options import BrokerOptions, ContentOptions, ReadOptions


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
        from nebula.spark.source.options import any_read_options
        from nebula.spark.source.rows import columns_of

        read = any_read_options(self.options)
        return columns_of(read.content, self._avro(read.content, read.broker))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of `spark.read`: a snapshot of last values."""
        from nebula.spark.source.options import read_options
        from nebula.spark.source.snapshot import SnapshotReader

        read = read_options(self.options)
        return SnapshotReader(read, self._checked(schema, read))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Of `spark.readStream`: a queue, or a durable subscription."""
        from nebula.spark.source.options import stream_options

        try:
            from nebula.spark.source.stream import StreamReader
        except ImportError as error:
            raise SettingsError(f"readStream of nebula needs PySpark 4.2 or newer ({error})") from error
        options = stream_options(self.options)
        return StreamReader(options, self._checked(schema, options.read))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002
        """Of `df.write`."""
        from nebula.spark.source.options import write_options
        from nebula.spark.source.writer import BatchWriter

        _check_appends(overwrite=overwrite)
        options = write_options(self.options)
        return BatchWriter(options, self._avro(options.content, options.broker))

    def streamWriter(  # noqa: N802  # Spark's name
        self,
        schema: StructType,  # noqa: ARG002
        overwrite: bool,
    ) -> DataSourceStreamWriter:
        """Of `df.writeStream`."""
        from nebula.spark.source.options import write_options

        try:
            from nebula.spark.source.stream_writer import StreamWriter
        except ImportError as error:
            raise SettingsError(f"writeStream to nebula needs PySpark 4.1 or newer ({error})") from error
        _check_appends(overwrite=overwrite)
        options = write_options(self.options)
        return StreamWriter(options, self._avro(options.content, options.broker))

    def _checked(self, schema: StructType, read: ReadOptions) -> Schema | None:
        from nebula.spark.source.rows import columns_of

        found = self._avro(read.content, read.broker)
        ours = columns_of(read.content, found).simpleString()
        if schema.simpleString() != ours:
            raise SettingsError(f"the columns are {ours}: leave .schema(…) out, or give avroSchema")
        return found

    def _avro(self, content: ContentOptions, broker: BrokerOptions) -> Schema | None:
        from nebula.avro import Schema
        from nebula.spark.source.schemas import schema_of

        if self._definition is not None:
            return Schema(self._definition)
        found = schema_of(content, broker)
        self._definition = None if found is None else found.definition
        return found


def _check_appends(*, overwrite: bool) -> None:
    if overwrite:
        raise SettingsError('messages that were sent cannot be overwritten: write with .mode("append")')
