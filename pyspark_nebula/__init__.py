"""By this name Spark finds the format `nebula` by itself, when it is first asked for a format that it lacks.

It looks through the packages whose names begin with `pyspark_` for a `DefaultSource`.
"""

from nebula.spark.source.datasource import NebulaSource as DefaultSource

__all__ = ["DefaultSource"]
