"""Tables from files in Spark jobs: `ctx.read`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from nebula.spark.reading.reader import Reader, Skipped

__all__ = ["HIVE_CONF", "Reader", "Skipped"]

HIVE_CONF: Final = {
    "spark.sql.catalogImplementation": "hive",
    # On the disk, each engine would fight for one lock, and leave folders wherever it was started.
    "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:nebula;create=true",
    "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
    "spark.hadoop.hive.metastore.schema.verification": "false",
}
"""`Spark(conf=HIVE_CONF)` gives an engine Hive, and so the reader `hive`, with a metastore in memory."""


def __getattr__(name: str) -> Any:
    # Lazily: who only declares an engine with HIVE_CONF has no pyspark, and needs none.
    if name not in ("Reader", "Skipped"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from nebula.spark.reading import reader

    return getattr(reader, name)
