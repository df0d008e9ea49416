"""What each host of one engine is started with, and the folders that it writes to."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nebula.environment import ServiceEnvironment
from nebula.rpc.jobs.registry.unfinished import UNFINISHED, sweep
from nebula.spark import lines
from nebula.spark.child import ERRORS
from nebula.spark.engine import Spark
from nebula.spark.job_table import Key

_SCRATCH = "scratch"
_RUNS = "runs"


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """What an engine's hosts have in common.

    Attributes:
        spark: the declaration.
        service: the service's name.
        name: the engine's.
        folder: where a host writes to, and nobody else.
        results: where jobs' results appear, those of the service's other engines too.
        notes: where attempts note what they have begun to write, see `nebula.rpc.jobs.registry.unfinished`.
        command: what to start as a host.
        archives: where archives of Java's classes are kept; None: the engine starts without.
    """

    spark: Spark
    service: str
    name: str
    folder: Path
    results: Path
    notes: Path
    command: Sequence[str]
    archives: Path | None = None

    @staticmethod
    def results_of(state: Path) -> Path:
        """Where results of an instance appear: in its folder, or in one of that name in `NEBULA_RESULTS`."""
        root = ServiceEnvironment.read().results_root
        home = state.absolute() if root is None else root / state.parent.name / state.name
        return home / "results"

    def of_run(self, key: Key) -> EnginePlan:
        """The plan for a host that runs this attempt alone."""
        job, attempt = key
        return replace(self, folder=self.folder / _RUNS / f"{job}.{attempt}")

    def clean(self) -> None:
        """Remove what hosts that were killed left unfinished. Only before any engine of the service runs."""
        for unfinished in self.results.glob(f"*{UNFINISHED}*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        shutil.rmtree(self.folder / _RUNS, ignore_errors=True)

    def prepare(self) -> None:
        """Make the folders for the next host. Blocks; only while none runs there."""
        # What a JVM said last is worth most when its successor has just been started.
        said = self.folder / ERRORS
        if said.exists():
            said.replace(said.with_name(f"{ERRORS}.1"))
        shutil.rmtree(self.folder / _SCRATCH, ignore_errors=True)
        for folder in (self.folder / _SCRATCH, self.results):
            folder.mkdir(parents=True, exist_ok=True)

    def remove_unfinished(self, keys: Iterable[Key]) -> None:
        """Remove what these attempts had begun to write. Blocks; after their host's end."""
        for job, attempt in keys:
            for unfinished in self.results.glob(f"{job}*{UNFINISHED}{job}.{attempt}"):
                shutil.rmtree(unfinished, ignore_errors=True)

        sweep(self.notes)

    def configuration(self, incarnation: str, *, with_archive: bool) -> lines.Configure:
        """The first line to a host."""
        spark = self.spark
        return lines.Configure(
            name=self.service,
            incarnation=incarnation,
            folder=str(self.folder),
            results=str(self.results),
            notes=str(self.notes),
            master=spark.master,
            memory=spark.memory,
            conf=dict(spark.conf),
            max_rows=spark.max_rows,
            max_result_bytes=spark.max_result_bytes,
            cancel_grace=spark.cancel_grace,
            remote=spark.remote,
            ui=spark.ui,
            archives=None if self.archives is None else str(self.archives),
            with_archive=with_archive,
        )
