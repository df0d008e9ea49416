"""What a service declares about its Spark engine. Plain values: nothing is started here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nebula.spark.runner import SparkRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """One Spark engine for one service: `Responder("reports", spark=Spark())`.

    Attributes:
        master: where Spark runs: `local[*]`, or a cluster in client mode.
        conf: Spark settings; they win over ours.
        memory: the driver's heap. In local mode every job shares it.
        max_running: jobs that run side by side; more wait in the service.
        warm: start with the service; otherwise with the first job.
        max_rows: rows that a job may return as a list; a larger table belongs in a file.
        max_result_bytes: the size of a returned value as JSON.
        start_timeout: seconds until a session must be up.
        silence_timeout: seconds without a sign of life after which the engine counts as dead. It
            beats each second.
        stop_grace: seconds for a clean stop.
        cancel_grace: seconds for the code of a cancelled job to end before it is called stuck.
        replace_after: seconds that an engine with a stuck job is kept while other jobs run on it.
        recycle_after_jobs: an idle engine is replaced after so many jobs: a JVM that is never
            restarted grows.
    """

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    memory: str = "1g"
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

    def __post_init__(self) -> None:
        if self.master.startswith("sc://"):
            raise ValueError(
                "Spark Connect is not supported: give a master such as local[*] or spark://host:7077"
            )
        if self.max_running < 1:
            raise ValueError(f"max_running is {self.max_running}, and no job would ever run")

    def runner(self, state: Path, service: str) -> SparkRunner:
        """The supervisor of this engine; it starts nothing before its `run`.

        Args:
            state: the service instance's own folder. The engine writes below it: `engine/` (logs,
                scratch space) and `results/`.
            service: its name; Spark shows it as the application.
        """
        from nebula.spark.runner import SparkRunner

        return SparkRunner(self, state, service)
