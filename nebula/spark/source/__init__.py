"""Spark as a peer on the broker: a data source and a sink with the name `nebula`.

`register` makes it known to a session; in a job's session it is known already. Then:

- `spark.readStream.format("nebula")` reads queues and durable subscriptions, without loss or doubles;
- `spark.read.format("nebula")` reads what last-value destinations hold;
- `df.write.format("nebula")` and `df.writeStream.format("nebula")` send rows as messages.

The options are those of `nebula.spark.source.options`. The processes of Spark import this package: on a
cluster it has to be installed on the workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make the format `nebula` known to a session, and make that the calling thread's. Idempotent."""
    from pyspark.errors import PySparkException

    from nebula.spark.source.datasource import NebulaSource

    jvm = getattr(spark, "_jvm", None)  # a client of Spark Connect has none
    if jvm is not None:
        # A writer looks a format up in its thread's session, whichever session its rows are of; and what is
        # known there cannot be registered in another one.
        type(spark)._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)
    try:
        spark.dataSource.register(NebulaSource)
    except PySparkException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
