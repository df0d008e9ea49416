"""Engines that reach a Spark Connect server."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil

from tests.spark.engine import Engine, engine, until
from tests.spark.told import task

# Several JVMs start beside each other, on few cores.
PATIENCE_SECONDS = 150.0


def reaching(
    address: str, state: Path, conf: Mapping[str, str] | None = None, **declared: Any
) -> AbstractContextManager[Engine]:
    where: dict[str, Any] = {"remote": f"sc://{address}", "master": "", "memory": "1g", "conf": conf or {}}
    return engine(state, patience=PATIENCE_SECONDS, **where, **declared)


def start_endless(spark: Engine, job: str, folder: Path) -> psutil.Process:
    """Start a job that never ends; the process on the server that runs its code."""
    spark.submit(task(job, "tests.spark.cluster.jobs:endless", folder=str(folder)))
    until((folder / "pid").exists, "the job's code runs on the server", PATIENCE_SECONDS)
    return psutil.Process(int((folder / "pid").read_text()))


def is_running(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
