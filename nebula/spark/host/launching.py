"""Starts the JVM of a driver, so that what it is told is not for whoever lists the machine's processes."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]  # it ships no types

# By this variable PySpark is told what it shall give to Spark's launcher.
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"


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
    # Whoever gives a file of settings has to ask for spark-defaults.conf, too.
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
    octets = found[0].encode("utf-16-be")  # a pair of surrogates beyond the basic plane
    return "".join(f"\\u{octets[at : at + 2].hex()}" for at in range(0, len(octets), 2))
