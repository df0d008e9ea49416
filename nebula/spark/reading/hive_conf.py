"""The settings of an engine that has Hive: apart, as who declares an engine has no pyspark and needs none."""

from __future__ import annotations

from typing import Final

HIVE_CONF: Final = {
    "spark.sql.catalogImplementation": "hive",
    # On the disk, each engine would fight for one lock, and leave folders wherever it was started.
    "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:nebula;create=true",
    "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
    "spark.hadoop.hive.metastore.schema.verification": "false",
}
"""`Spark(conf=HIVE_CONF)` gives an engine Hive, and so the reader `hive`, with a metastore in memory."""
