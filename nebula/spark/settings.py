"""Settings of one Spark engine: values, checked when they are declared. `Spark` adds its runner."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nebula.environment import EngineEnvironment, ServiceEnvironment
from nebula.spark.addresses import check_master, parse_remote
from nebula.spark.lines import MAX_LINE_BYTES

_MEMORY = "1g"

_MORE_THAN_NOTHING = (
    *("max_rows", "start_timeout", "silence_timeout", "replace_after"),
    *("recycle_after_jobs", "recycle_after", "recycle_above_bytes", "idle_stop"),
)

_DEPLOY_MODE = "spark.submit.deployMode"

# A result travels in one line, with the names of its fields.
_MOST_RESULT_BYTES = MAX_LINE_BYTES // 2

_UNITS = {"k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_HEAP = re.compile(r"(\d+)([kmgt])b?", re.IGNORECASE)


# Checked when they are declared, so that a mistake is found at import and not by the first job.
@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The values of one engine, as `Spark` describes them."""

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
            _check_remote(self, "remote=" if is_declared else "NEBULA_SPARK=sc://…")
        elif self.master.startswith("sc://"):
            raise ValueError("a Spark Connect server is not a master: write Spark(remote=…)")
        else:
            check_master(self.master, "master" if is_declared else "NEBULA_SPARK")
        if self.ui and not self.remote and not self.master.startswith("local"):
            _check_pages(self)
        _check_values(self)
        _check_conf(self)

    @property
    def address(self) -> str:
        """Where this engine's Spark is, without a token."""
        return self.master if self.remote is None else str(parse_remote(self.remote))

    @property
    def can_isolate(self) -> bool:
        """Whether a run can have an engine process of its own; a Connect server is shared."""
        return self.remote is None


def heap_bytes(text: str) -> int | None:
    """`512m` or `1g` in bytes; None for what is not written so."""
    match = _HEAP.fullmatch(text.strip())
    return int(match[1]) * _UNITS[match[2].lower()] if match else None


def _check_remote(spark: EngineSettings, source: str) -> None:
    """Check what is declared together with a Connect server.

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
    # Settings that only the server can have are refused: ignoring them would surprise their author.
    if spark.ui:
        raise ValueError(f"with {source} Spark's pages are the Connect server's, and switched on there")
    for name in spark.conf:
        if not name.startswith("spark.sql."):
            raise ValueError(
                f"{name} is set where the Connect server is started: with {source} only settings of a "
                "session can be given, whose names begin with spark.sql."
            )


def _check_values(spark: EngineSettings) -> None:
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
    # `not value > 0` refuses NaN too.
    for name in _MORE_THAN_NOTHING:
        value = getattr(spark, name)
        if value is not None and not value > 0:
            raise ValueError(f"{name} is {value}: more than 0 is wanted")


def _check_conf(spark: EngineSettings) -> None:
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


def _check_pages(spark: EngineSettings) -> None:
    """Check that a driver whose pages stay on the loopback is found by its cluster.

    Raises:
        ValueError: it would name the loopback to its workers.
    """
    # With pages on the loopback the driver binds there, and its workers could not call it back.
    if "spark.driver.host" not in spark.conf and not _is_in_defaults("spark.driver.host"):
        raise ValueError(
            "ui=True keeps Spark's pages to the loopback, and its driver with them: on a cluster give the "
            'address of this machine as well, conf={"spark.driver.host": …}'
        )


def _is_in_defaults(name: str) -> bool:
    """Whether Spark's own file of settings has this one, where there is such a file."""
    folder = EngineEnvironment.read().spark_conf_dir
    if not folder:
        return False
    try:
        text = Path(folder, "spark-defaults.conf").read_text(errors="replace")
    except OSError:
        return False
    return re.search(rf"^\s*{re.escape(name)}[\s=:]", text, re.MULTILINE) is not None
