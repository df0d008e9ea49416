"""Local paths in the form that Spark and Hadoop take.

A bare path would mean the file system of the cluster, so each path names its scheme. `Path.as_uri()` is
wrong here: Hadoop decodes no escapes, and would look for a folder `my%20state` where the path has a space.
"""

from __future__ import annotations

import os
import re
from typing import Final

__all__ = ["spark_glob", "spark_path"]

_IN_GLOBS: Final = re.compile(r"[{}\[\]*?\\]")


def spark_path(path: str | os.PathLike[str]) -> str:
    """The address of an absolute path, to write to or for a setting."""
    return f"file://{os.fspath(path)}"


def spark_glob(path: str | os.PathLike[str]) -> str:
    """The address of an absolute path, to read from: Spark takes each path that it reads for a glob."""
    return spark_path(_IN_GLOBS.sub(r"\\\g<0>", os.fspath(path)))
