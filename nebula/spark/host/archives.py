"""The archive of Java's classes that this host's JVM starts from, or misses."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from pathlib import Path

from nebula.spark import cds
from nebula.spark.java import Java
from nebula.spark.lines import Configure
from nebula.spark.sizes import heap_bytes


@dataclass(frozen=True, slots=True)
class Archive:
    """One engine's archive.

    Attributes:
        path: where it is, or would be; None: the engine wants none.
        is_there: it is, and the JVM is to start from it.
        is_wanted: False: the last start with it failed.
        is_trusted: False: others could have written it.
    """

    path: Path | None = None
    is_there: bool = False
    is_wanted: bool = True
    is_trusted: bool = True

    @classmethod
    def of(cls, config: Configure, java: Java) -> Archive:
        """The one that fits this engine. Nothing that is wrong with it keeps an engine from starting."""
        if config.archives is None:
            return cls()
        heap = heap_bytes(config.conf.get("spark.driver.memory", config.memory))
        version = importlib.metadata.version("pyspark")
        path = cds.archive_path(Path(config.archives), java, spark_jars(), version, config.conf, heap)
        is_trusted = cds.why_distrusted(path) is None
        is_there = is_trusted and config.with_archive and path.is_file()
        if is_there:
            cds.note_use(path)
        return cls(path, is_there, config.with_archive, is_trusted)

    def options(self) -> str:
        """Flags for the JVM."""
        return cds.java_options(self.path) if self.path is not None and self.is_there else ""

    def state(self, jvm_pid: int) -> str:
        """What became of it, once this JVM runs."""
        if self.path is None:
            return "off"
        if not self.is_trusted:
            return "distrusted"
        if not self.is_wanted:
            return "unused"
        if not self.is_there:
            return "missing"
        return "used" if cds.is_used_by(jvm_pid, self.path) else "refused"


def spark_jars() -> Path:
    """The folder of Spark's classes."""
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home()) / "jars"
