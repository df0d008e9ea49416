"""Declaration of a service's Spark engine: what users write. Plain values; nothing is started here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nebula.spark.settings import EngineSettings

if TYPE_CHECKING:
    from nebula.spark.runner import SparkRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark(EngineSettings):
    """One Spark engine of a service: `Responder("reports", spark=Spark())`, or one of several by name.

    An engine is one child process with one session. An engine without a job is *idle*: only then is it
    stopped or replaced, with the reason in the log and in `engine.status`; meanwhile jobs wait.

    Attributes:
        master: where Spark runs: on this machine, `local[*]`, or on a cluster in client mode:
            `spark://host:7077`, `yarn`, `k8s://https://host:6443`, `local-cluster[2,1,1024]`. Without master
            and remote, `NEBULA_SPARK` gives one of the two; without that it is `local[*]`.
        remote: a Spark Connect server instead of a master: `sc://host:15002`, with `/;token=…` if it requires
            one. The driver runs in the server, so that no Java is needed here.
        ui: serve Spark's own pages, on loopback only; the engine's status has their address.
        conf: Spark settings; they override Nebula's.
        memory: the driver's heap. In local mode every job shares it; an isolated run has one of its own.
        max_running: jobs that run at the same time, including isolated ones; more wait in the service.
        warm: start with the service; otherwise with the first job. An engine all of whose jobs are isolated
            is not started by itself.
        max_rows: rows that a job may return as a list; a larger table belongs in a file.
        max_result_bytes: the size of a returned value as JSON, 8 MiB at most.
        start_timeout: seconds until a session must be up.
        silence_timeout: seconds without a sign of life after which the engine counts as dead. It sends one
            each second.
        stop_grace: seconds for a clean stop.
        cancel_grace: seconds for the code of a cancelled job to end before it is called stuck.
        replace_after: seconds that an engine with a stuck job is kept while other jobs run on it.
        recycle_after_jobs: an idle engine is replaced after this number of jobs: a JVM that is never
            restarted grows.
        recycle_after: seconds of age after which an idle engine is replaced, if it had a job.
        recycle_above_bytes: an idle engine that had a job is replaced when host and JVM hold more memory.
            By default one and a half times the heap and 1 GiB.
        idle_stop: seconds without a job after which an engine is stopped until the next one comes; None: it
            stays.
        cds: start from an archive of Java's classes, which is made once, in the background, in a cache
            folder (`NEBULA_CACHE`): a session is up in about two thirds of the time.
        operators: the principals that may restart it with `engine.restart`. By default no principal where the
            broker authenticates principals, and any caller where it does not.
    """

    def runner(
        self, state: Path, service: str, name: str = "default", *, is_shared: bool = True
    ) -> SparkRunner:
        """The runner of this engine; it starts nothing before its `run`.

        Args:
            state: the service instance's own folder. The engine writes below it: `engine/<name>/` (logs,
                scratch space) and `results/`, which all engines share; with `NEBULA_RESULTS` these are there.
            service: its name; Spark shows it as the application.
            name: the engine's own.
            is_shared: False if each job is isolated: then nothing is started before the first one.
        """
        # Late: an engine host imports the modules of a service, and needs no runner.
        from nebula.spark.runner import SparkRunner

        return SparkRunner(self, state, service, name, is_shared=is_shared)
