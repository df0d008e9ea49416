"""Spark as a peer on the broker: a data source and a sink with the name `nebula`.

Where this is installed Spark knows the format by itself (see `pyspark_nebula`); on a cluster it has to be
installed on the workers too. Then:

- `spark.readStream.format("nebula")` reads queues and durable subscriptions, without loss or doubles;
- `spark.read.format("nebula")` reads what last-value destinations hold;
- `df.write.format("nebula")` and `df.writeStream.format("nebula")` send rows as messages.

The options are those of `nebula.spark.source.options`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make the format `nebula` known to a session that has not found it by itself. Idempotent.

    For one that runs elsewhere, such as Spark Connect's.
    """
    from pyspark.errors import PySparkException

    from nebula.spark.source.datasource import NebulaSource

    try:
        spark.dataSource.register(NebulaSource)
    except PySparkException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
