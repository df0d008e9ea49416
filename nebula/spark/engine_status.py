"""Engine status: the part of a reply to `engine.status` that shows the declaration and the process."""

from __future__ import annotations

import re
from time import monotonic
from typing import Any

from nebula.spark.engine_process import EngineProcess
from nebula.spark.settings import EngineSettings

# Settings whose values say how an engine runs: others may be passwords and keys.
_SHOWN = (
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


def status_of(settings: EngineSettings, process: EngineProcess | None) -> dict[str, Any]:
    """The declaration, and the process where one runs."""
    ready, beat = (process.ready, process.beat) if process else (None, None)
    return {
        "master": settings.address,
        "memory": settings.memory,
        "max_running": settings.max_running,
        "warm": settings.warm,
        "idle_stop": settings.idle_stop,
        "conf": shown_conf(settings),
        "incarnation": process.incarnation if process else None,
        "pid": process.pid if process else None,
        "jvm_pid": ready.jvm_pid if ready else None,
        "spark": ready.spark if ready else None,
        "java": ready.java if ready else None,
        "ui": ready.ui if ready else None,
        "start_seconds": ready.seconds if ready else None,
        "up_seconds": round(monotonic() - process.began, 3) if process else None,
        "jobs_since_start": process.handed_over if process else None,
        "rss_bytes": beat.rss_bytes if beat else None,
        "threads": beat.threads if beat else None,
    }


def shown_conf(settings: EngineSettings) -> dict[str, str | None]:
    """The declared Spark settings by name; None in place of a value that may be a secret."""
    return {name: value if _may_be_shown(name, value) else None for name, value in settings.conf.items()}


def _may_be_shown(name: str, value: str) -> bool:
    if not name.startswith(_SHOWN) or name.startswith(_CATALOGS):
        return False
    return not _SECRET.search(name) and not _SECRET.search(str(value))
