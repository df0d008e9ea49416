"""Settings reach Spark's launcher by a file, in Java's form of it."""

from __future__ import annotations

from nebula.spark.host.launch import as_properties


def test_settings_are_written_so_that_java_reads_them_as_they_are() -> None:
    conf = {"spark.app.name": "two words", "spark.a=b": "c:\\d\n#é😀", "spark.sql.shuffle.partitions": "4"}

    assert as_properties(conf).splitlines() == [
        r"spark.app.name=two\u0020words",
        r"spark.a\u003db=c\u003a\u005cd\u000a\u0023\u00e9\ud83d\ude00",
        "spark.sql.shuffle.partitions=4",
    ]
