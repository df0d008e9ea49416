"""Start of a driver's JVM: which Spark it runs, from which archive of classes, and with which settings.

Settings may be passwords and keys, so they reach the JVM by a file that only this user can read: a command
line is visible to every user of the machine.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nebula.environment import EngineEnvironment
from nebula.spark import cds
from nebula.spark.host.session import CannotStart
from nebula.spark.java import Java
from nebula.spark.lines import ArchiveState, Configure
from nebula.spark.settings import heap_bytes

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]  # it ships no types

# PySpark reads the arguments of Spark's launcher from this variable.
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"

_CORE = re.compile(r"spark-core_[\d.]+-(.+)\.jar")


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

    def state(self, jvm_pid: int) -> ArchiveState:
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


def settle_home(package: Path | None = None) -> None:
    """Leave `SPARK_HOME` out of account where it is not of PySpark's version; the log says so.

    PySpark would take its programs and classes from there, and fail somewhere with an error of Java's.

    Args:
        package: PySpark's folder, instead of the installed one's.

    Raises:
        CannotStart: PySpark brings no Spark of its own, so no Spark of its version exists.
    """
    named = EngineEnvironment.read().spark_home
    package = package or _package()
    ours, theirs = _version_of(package), _version_in(Path(named or "."))
    # A vendor's build of Spark adds something to its version.
    if not named or (theirs or "").startswith(ours):
        return
    what = f"SPARK_HOME={named} has " + (f"Spark {theirs}" if theirs else "no Spark")
    if not any((package / place / "jars").is_dir() for place in (".", "spark-distribution")):
        raise CannotStart(f"{what}, and PySpark is {ours}: install that version of it, or name another Spark")
    logging.getLogger(__name__).warning("SPARK_HOME set aside reason=%r", f"{what}, and PySpark is {ours}")
    del os.environ["SPARK_HOME"]


def _package() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None  # that was checked first
    assert spec.origin is not None
    return Path(spec.origin).parent


def _version_of(package: Path) -> str:
    found = re.search(r"""__version__.*["'](.+)["']""", (package / "version.py").read_text())
    assert found is not None  # it is all that this file is for
    return found[1]


def _version_in(home: Path) -> str | None:
    jars = (_CORE.fullmatch(jar.name) for jar in sorted((home / "jars").glob("spark-core_*.jar")))
    return next((jar[1] for jar in jars if jar), None)


def launch(conf: Mapping[str, str], folder: Path) -> JavaGateway:
    """Start a JVM with these settings, which may be passwords and keys; takes a second or more.

    PySpark would put each of them on the command line. A file tells them, which this user alone may read,
    and which is there no longer than the start takes.

    Args:
        conf: of Spark.
        folder: to write to.
    """
    from pyspark.java_gateway import launch_gateway

    settings = folder / "launch.conf"
    settings.unlink(missing_ok=True)
    settings.touch(mode=0o600, exist_ok=False)
    settings.write_text(as_properties(conf))
    # With a file of settings, spark-defaults.conf is read only on request.
    os.environ[_ARGUMENTS] = (
        f"--properties-file {shlex.quote(str(settings))} --load-spark-defaults pyspark-shell"
    )
    try:
        # The JVM's own output goes where ours goes, never to the protocol.
        gateway: JavaGateway = launch_gateway(None, {"stdout": 2, "stderr": 2})  # type: ignore[no-untyped-call]  # PySpark's
    finally:
        del os.environ[_ARGUMENTS]
        settings.unlink(missing_ok=True)
    return gateway


def as_properties(conf: Mapping[str, str]) -> str:
    """Settings in the form of Java's properties files."""
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in conf.items())


def _escaped(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.,/*-]", _as_units, str(text))


def _as_units(found: re.Match[str]) -> str:
    data = found[0].encode("utf-16-be")  # a pair of surrogates beyond the basic plane
    return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))
