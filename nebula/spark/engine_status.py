"""What `engine.status` says of an engine's declaration and its host."""

from __future__ import annotations

import re
from time import monotonic
from typing import Any

from nebula.spark.engine import Spark
from nebula.spark.host_run import HostRun

# Settings whose values say how an engine runs: others may be passwords and keys.
_TOLD = (
    "spark.sql.",
    "spark.default.parallelism",
    "spark.driver.cores",
    "spark.driver.memory",
    "spark.dynamicAllocation.",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.executor.memory",
    "spark.scheduler.",
    "spark.shuffle.",
    "spark.task.",
)


# Of these the names are whatever a catalog takes, and one of them is a password.
_CATALOGS = "spark.sql.catalog."

# What Spark itself keeps off its pages (spark.redaction.regex), and two words more.
_SECRET = re.compile("secret|password|token|access[.-]?key|credential|passphrase", re.IGNORECASE)


def status_of(spark: Spark, host: HostRun | None) -> dict[str, Any]:
    """The declaration, and the host as far as there is one."""
    ready, beat = (host.ready, host.beat) if host else (None, None)
    return {
        "master": spark.address,
        "memory": spark.memory,
        "max_running": spark.max_running,
        "warm": spark.warm,
        "idle_stop": spark.idle_stop,
        "conf": told_conf(spark),
        "incarnation": host.incarnation if host else None,
        "pid": host.pid if host else None,
        "jvm_pid": ready.jvm_pid if ready else None,
        "spark": ready.spark if ready else None,
        "java": ready.java if ready else None,
        "ui": ready.ui if ready else None,
        "start_seconds": ready.seconds if ready else None,
        "up_seconds": round(monotonic() - host.began, 3) if host else None,
        "jobs_since_start": host.handed_over if host else None,
        "rss_bytes": beat.rss_bytes if beat else None,
        "threads": beat.threads if beat else None,
    }


def told_conf(spark: Spark) -> dict[str, str | None]:
    """The declared Spark settings by name; None in place of a value that may be a secret."""
    return {name: value if _may_be_told(name, value) else None for name, value in spark.conf.items()}


def _may_be_told(name: str, value: str) -> bool:
    if not name.startswith(_TOLD) or name.startswith(_CATALOGS):
        return False
    return not _SECRET.search(name) and not _SECRET.search(str(value))
