"""Which Spark the driver's JVM is of, where `SPARK_HOME` names another one than PySpark has with it."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
from pathlib import Path

from nebula.spark.host.session import CannotStart

_CORE = re.compile(r"spark-core_[\d.]+-(.+)\.jar")


def settle_home(package: Path | None = None) -> None:
    """Leave `SPARK_HOME` out of account where it is not of PySpark's version; the log says so.

    PySpark would take its programs and classes from there, and fail somewhere with an error of Java's.

    Args:
        package: PySpark's folder, instead of the installed one's.

    Raises:
        CannotStart: PySpark brings no Spark of its own, so that there is none of its version.
    """
    named = os.environ.get("SPARK_HOME")
    package = package or _package()
    ours, theirs = _version_of(package), _version_in(Path(named or "."))
    # Whoever builds a Spark of their own adds something to its version.
    if not named or (theirs or "").startswith(ours):
        return
    what = f"SPARK_HOME={named} has " + (f"Spark {theirs}" if theirs else "no Spark")
    if not any((package / place / "jars").is_dir() for place in (".", "spark-distribution")):
        raise CannotStart(f"{what}, and PySpark is {ours}: install that version of it, or name another Spark")
    logging.getLogger(__name__).warning("%s, and PySpark is %s: its own Spark is taken", what, ours)
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
