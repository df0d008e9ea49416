"""Data source `nebula` for Spark: its readers and writers, with their options checked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from nebula.errors import SettingsError

# Each job's session gets to know this class, and few use it: what it needs is loaded when it is used.
if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter

    from nebula.avro import Schema
    from nebula.spark.source.options import ContentOptions, ReadOptions, WriteOptions


class NebulaSource(DataSource):
    """The data source. Spark makes one for each read or write, and sends it to its other processes.

    All methods raise `SettingsError` where the options are not what they should be, with a sentence.
    """

    # Found once, then sent along: all processes are to have the same columns.
    _settled: tuple[ContentOptions, Any] | None = None

    @classmethod
    def name(cls) -> str:
        """What `format` calls it."""
        return "nebula"

    def schema(self) -> StructType:
        """The columns of a batch or of a stream; Spark does not say which it will be."""
        from nebula.spark.source.options import any_read_options
        from nebula.spark.source.rows import columns_of

        return columns_of(*self._settle(any_read_options(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of `spark.read`: a snapshot of last values."""
        from nebula.spark.source.options import read_options
        from nebula.spark.source.snapshot import SnapshotReader

        return SnapshotReader(*self._checked(schema, read_options(self.options)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Of `spark.readStream`: a queue, or a durable subscription."""
        from nebula.spark.source.options import stream_options

        # Older versions of PySpark lack the base class; batch reads and writes work there all the same.
        try:
            from nebula.spark.source.stream import StreamReader
        except ImportError as error:
            raise SettingsError(f"readStream of nebula needs PySpark 4.2 or newer ({error})") from error
        options = stream_options(self.options)
        read, found = self._checked(schema, options.read)
        return StreamReader(replace(options, read=read), found)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002
        """Of `df.write`."""
        from nebula.spark.source.options import write_options
        from nebula.spark.source.writer import BatchWriter

        # Before the options: no options make it possible.
        _check_appends(overwrite=overwrite)
        options = write_options(self.options)
        content, found = self._settle(options)
        return BatchWriter(replace(options, content=content), found)

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
        content, found = self._settle(options)
        return StreamWriter(replace(options, content=content), found)

    def _checked(self, schema: StructType, read: ReadOptions) -> tuple[ReadOptions, Schema | None]:
        from nebula.spark.source.rows import columns_of

        content, found = self._settle(read)
        # Spark hands over the user's own schema where one is given: other columns cannot be had.
        ours = columns_of(content, found).simpleString()
        if schema.simpleString() != ours:
            raise SettingsError(f"the columns are {ours}: leave .schema(…) out, or give avroSchema")
        return replace(read, content=content), found

    def _settle(self, options: ReadOptions | WriteOptions) -> tuple[ContentOptions, Schema | None]:
        from nebula.avro import Schema
        from nebula.spark.source.schemas import settle

        if self._settled is None:
            content, found = settle(options.content, options.broker, options.destination)
            self._settled = content, None if found is None else found.definition
        content, definition = self._settled
        return content, None if definition is None else Schema(definition)


def _check_appends(*, overwrite: bool) -> None:
    if overwrite:
        raise SettingsError('messages that were sent cannot be overwritten: write with .mode("append")')
