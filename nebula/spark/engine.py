"""What a service declares about its Spark engine. Plain values: nothing is started here."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nebula.environment import ServiceEnvironment
from nebula.spark.lines import MAX_LINE_BYTES
from nebula.spark.masters import check_master
from nebula.spark.remote import parse_remote
from nebula.spark.sizes import heap_bytes

if TYPE_CHECKING:
    from nebula.spark.runner import SparkRunner

_MEMORY = "1g"

_MORE_THAN_NOTHING = (
    *("max_rows", "start_timeout", "silence_timeout", "replace_after"),
    *("recycle_after_jobs", "recycle_after", "recycle_above_bytes", "idle_stop"),
)

_DEPLOY_MODE = "spark.submit.deployMode"

# It travels in one line, with what else is said of it.
_MOST_RESULT_BYTES = MAX_LINE_BYTES // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """One Spark engine of a service: `Responder("reports", spark=Spark())`, or one of several by name.

    An engine is one child process with one session. What has none of its jobs to do is *idle*: only then
    is it stopped or replaced, with the reason in the log and in `engine.status`; meanwhile jobs wait.

    Attributes:
        master: where Spark runs: on this machine, `local[*]`, or on a cluster in client mode:
            `spark://host:7077`, `yarn`, `k8s://https://host:6443`, `local-cluster[2,1,1024]`. Without master
            and remote `NEBULA_SPARK` says which of both it is, and where; without that it is `local[*]`.
        remote: a Spark Connect server instead of a master: `sc://host:15002`, with `/;token=…` where it
            wants one. The driver is the server's, so that no Java is needed here.
        ui: show Spark's own pages, on the loopback alone; the engine's status has their address.
        conf: Spark settings; they win over ours.
        memory: the driver's heap. In local mode every job shares it; an isolated run has one of its own.
        max_running: jobs that run side by side, isolated ones included; more wait in the service.
        warm: start with the service; otherwise with the first job. An engine all of whose jobs are isolated
            is not started by itself.
        max_rows: rows that a job may return as a list; a larger table belongs in a file.
        max_result_bytes: the size of a returned value as JSON, 8 MiB at most.
        start_timeout: seconds until a session must be up.
        silence_timeout: seconds without a sign of life after which the engine counts as dead. It
            beats each second.
        stop_grace: seconds for a clean stop.
        cancel_grace: seconds for the code of a cancelled job to end before it is called stuck.
        replace_after: seconds that an engine with a stuck job is kept while other jobs run on it.
        recycle_after_jobs: an idle engine is replaced after so many jobs: a JVM that is never
            restarted grows.
        recycle_after: seconds of age after which an idle engine is replaced, if it had a job.
        recycle_above_bytes: an idle engine that had a job is replaced when host and JVM hold more memory.
            By default one and a half times the heap and 1 GiB.
        idle_stop: seconds without a job after which an engine is stopped until the next one comes; None: it
            stays.
        cds: start from an archive of Java's classes, which is made once, in the background, in a cache
            folder (`NEBULA_CACHE`): a session is up in about two thirds of the time.
        operators: the principals that may restart it with `engine.restart`. By default nobody for whom the
            broker vouches, and everybody where it vouches for nobody.
    """

    master: str = ""
    remote: str | None = field(default=None, repr=False)  # it may have a token
    ui: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)
    memory: str = _MEMORY
    max_running: int = 4
    warm: bool = True
    max_rows: int = 1000
    max_result_bytes: int = 64 * 1024
    start_timeout: float = 120.0
    silence_timeout: float = 15.0
    stop_grace: float = 5.0
    cancel_grace: float = 10.0
    replace_after: float = 60.0
    recycle_after_jobs: int = 500
    recycle_after: float = 86400.0
    recycle_above_bytes: int | None = None
    idle_stop: float | None = None
    cds: bool = True
    operators: Collection[str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "master", self.master.strip())
        is_declared = bool(self.master) or self.remote is not None
        if not is_declared:
            at = ServiceEnvironment.read().spark_place
            object.__setattr__(self, "remote" if at.startswith("sc://") else "master", at)
        if self.remote is not None:
            check_remote(self, "remote=" if is_declared else "NEBULA_SPARK=sc://…")
        elif self.master.startswith("sc://"):
            raise ValueError("a Spark Connect server is not a master: write Spark(remote=…)")
        else:
            check_master(self.master, "master" if is_declared else "NEBULA_SPARK")
        if self.ui and not self.remote and not self.master.startswith("local"):
            check_pages(self)
        check_values(self)
        check_conf(self)

    @property
    def address(self) -> str:
        """Where this engine's Spark is, without a token."""
        return self.master if self.remote is None else str(parse_remote(self.remote))

    @property
    def can_isolate(self) -> bool:
        """Whether a run can have an engine process of its own; a Connect server is everybody's."""
        return self.remote is None

    def runner(
        self, state: Path, service: str, name: str = "default", *, is_shared: bool = True
    ) -> SparkRunner:
        """The supervisor of this engine; it starts nothing before its `run`.

        Args:
            state: the service instance's own folder. The engine writes below it: `engine/<name>/` (logs,
                scratch space) and `results/`, which all engines share; with `NEBULA_RESULTS` these are there.
            service: its name; Spark shows it as the application.
            name: the engine's own.
            is_shared: False if each job is isolated: then nothing is started before the first one.
        """
        from nebula.spark.runner import SparkRunner

        return SparkRunner(self, state, service, name, is_shared=is_shared)


def check_remote(spark: Spark, source: str) -> None:
    """Check what is declared beside a Connect server.

    Args:
        spark: the declaration.
        source: what says that there is one, for the error.

    Raises:
        ValueError: what a client of it has no say in.
    """
    assert spark.remote is not None
    if spark.master:
        raise ValueError("both a master and a remote are given: Spark runs at one of them")
    parse_remote(spark.remote, source.partition("=")[0])
    if spark.memory != _MEMORY:
        raise ValueError(f"with {source} the driver's memory is set where the Connect server is started")
    if spark.ui:
        raise ValueError(f"with {source} Spark's pages are the Connect server's, and switched on there")
    for name in spark.conf:
        if not name.startswith("spark.sql."):
            raise ValueError(
                f"{name} is set where the Connect server is started: with {source} only settings of a "
                "session can be given, whose names begin with spark.sql."
            )


def check_values(spark: Spark) -> None:
    """Check what is declared by itself.

    Raises:
        TypeError, ValueError: a value that nothing can be done with.
    """
    if spark.max_running < 1:
        raise ValueError(f"max_running is {spark.max_running}, and no job would ever run")
    if not 0 < spark.max_result_bytes <= _MOST_RESULT_BYTES:
        raise ValueError(
            f"max_result_bytes is {spark.max_result_bytes}: {_MOST_RESULT_BYTES} at most; what is larger, "
            "a job returns as a DataFrame"
        )
    for name in ("cancel_grace", "stop_grace"):
        if not 0 <= getattr(spark, name) < math.inf:
            raise ValueError(f"{name} is {getattr(spark, name)}: a number of seconds is wanted")
    if not heap_bytes(spark.memory):
        raise ValueError(f"memory is {spark.memory!r}: a number with m or g is wanted, such as 2g")
    for name in _MORE_THAN_NOTHING:
        value = getattr(spark, name)
        if value is not None and not value > 0:
            raise ValueError(f"{name} is {value}: more than 0 is wanted")


def check_conf(spark: Spark) -> None:
    """Check Spark's own settings for what is not to be set by them.

    Raises:
        TypeError, ValueError: a value that nothing can be done with, or what is declared by itself.
    """
    for name, setting in spark.conf.items():
        if not isinstance(setting, str | int):
            raise TypeError(f"conf: {name} is a {type(setting).__name__}: Spark's settings are texts")
    mode = spark.conf.get(_DEPLOY_MODE, "client")
    if mode != "client":
        raise ValueError(
            f"conf: {_DEPLOY_MODE} is {mode!r}, and the driver is always on this machine, a child of its "
            "service (client mode): leave it out"
        )
    for name in ("spark.master", "spark.remote"):
        if name in spark.conf:
            raise ValueError(f"conf: {name} is given by itself: Spark({name.rpartition('.')[2]}=…)")


def check_pages(spark: Spark) -> None:
    """Check that a driver whose pages stay on the loopback is found by its cluster.

    Raises:
        ValueError: it would name the loopback to its workers.
    """
    if "spark.driver.host" not in spark.conf and not _is_in_defaults("spark.driver.host"):
        raise ValueError(
            "ui=True keeps Spark's pages to the loopback, and its driver with them: on a cluster give the "
            'address of this machine as well, conf={"spark.driver.host": …}'
        )


def _is_in_defaults(name: str) -> bool:
    """Whether Spark's own file of settings has this one, where there is such a file."""
    try:
        text = Path(os.environ["SPARK_CONF_DIR"], "spark-defaults.conf").read_text(errors="replace")
    except (KeyError, OSError):
        return False
    return re.search(rf"^\s*{re.escape(name)}[\s=:]", text, re.MULTILINE) is not None
