"""Active session of a thread, among those of one engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def use_in_thread(spark: SparkSession) -> None:
    """Make our session the calling thread's: Spark looks formats up in no other one.

    One of Spark Connect is left as it is: there a thread has none.
    """
    # A Connect session has no JVM on this side.
    if hasattr(spark, "_jvm"):
        type(spark)._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def session_of_thread(root: SparkSession) -> SparkSession:
    """The session that is the calling thread's; one of several of a driver, whose root that is."""
    # PySpark's own question gives the root, whatever the thread.
    kind = type(root)
    active = kind._get_j_spark_session_class(root._jvm).getActiveSession()
    return kind(root.sparkContext, active.get()) if active.isDefined() else root
