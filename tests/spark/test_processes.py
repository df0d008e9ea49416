"""Each process of a real service is killed in its turn while a job runs: what the job becomes, what is left.

Broker, service and callers are programs of their own, as a user starts them. Every process that the service
starts, at whatever remove, inherits a mark in its environment; so nothing that is left can hide.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
from pyarrow import parquet  # type: ignore[import-untyped]  # it ships no types

from nebula.rpc.contract.job_runner import JobOutput
from nebula.sync import Client, JobHandle
from tests.cli.programs import NEBULA, Program, environment, running_process
from tests.spark.engine import PATIENCE_SECONDS, living, until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

_MARK = "NEBULA_TEST_MARK"


class Site:
    """A broker, the service, and a caller. The service is started again where a test has killed it."""

    def __init__(self, folder: Path, programs: ExitStack) -> None:
        self.mark = uuid4().hex
        self._programs = programs
        _, line = programs.enter_context(running_process("broker", "--port", "0"))
        self.environment = {"NEBULA_BROKER": line["url"], "NEBULA_STATE": str(folder), _MARK: self.mark}
        self.client = programs.enter_context(Client(line["url"], timeout=PATIENCE_SECONDS))
        self._service: Program | None = None

    def service(self) -> Program:
        """The service's process, started if there is none."""
        if self._service is None or self._service.poll() is not None:
            # Its environment is looked up in /proc, where a fork has that of its parent.
            program = running_process("run", "tests.spark.killed:app", env=self.environment)
            self._service, _ = self._programs.enter_context(program)
        return self._service

    def engine(self) -> dict[str, Any]:
        """What `engine.status` says."""
        self.service()
        return dict(self.client.call("killed", "engine.status")["default"])

    def busy(self, folder: Path) -> tuple[JobHandle, dict[str, Any], list[psutil.Process]]:
        """A job that holds two Python workers, the engine that it runs in, and the workers."""
        self.service()
        job = self.client.start("killed", "hold", {"folder": str(folder)})
        until(lambda: len(list(folder.iterdir())) == 2, "Python workers are busy")
        return job, self.engine(), [psutil.Process(int(file.name)) for file in folder.iterdir()]

    def marked(self) -> list[psutil.Process]:
        """The service and whatever it started that lives."""
        return _marked(self.mark)

    def strays(self) -> list[psutil.Process]:
        """What bears the mark and is no descendant of the service that runs."""
        service = psutil.Process(self.service().pid)
        family = {service.pid, *(child.pid for child in service.children(recursive=True))}
        return [process for process in self.marked() if process.pid not in family]

    def assert_works_on(self) -> None:
        """It takes the next job, and nobody was left behind."""
        assert self.client.start("killed", "count").result() == 10
        assert self.strays() == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as programs:
        site = Site(tmp_path_factory.mktemp("state"), programs)
        yield site
    until(lambda: not site.marked(), "nothing outlives the tests", seconds=5)


def test_table_is_found_as_parquet_where_its_job_says(site: Site) -> None:
    site.service()
    output = site.client.start("killed", "numbers", {"rows": 1000}).result()

    assert isinstance(output, JobOutput)
    assert (output.rows, output.schema) == (1000, {"id": "bigint"})
    assert output.path is not None
    assert sorted(parquet.read_table(output.path)["id"].to_pylist()) == list(range(1000))


def test_killed_client_leaves_its_job_running_and_no_process(site: Site, tmp_path: Path) -> None:
    job, engine, _ = site.busy(tmp_path)
    mark = uuid4().hex
    watching = subprocess.Popen(
        [*NEBULA, "watch", job.id], env=environment(site.environment | {_MARK: mark}), stdout=subprocess.PIPE
    )
    with watching:
        assert watching.stdout is not None
        assert watching.stdout.readline()
        watching.kill()

    assert _marked(mark) == []
    assert job.status().state == "running"
    assert site.engine()["incarnation"] == engine["incarnation"]
    job.cancel()
    assert job.wait().state == "cancelled"


def test_killed_python_worker_fails_its_job_alone(site: Site, tmp_path: Path) -> None:
    job, engine, workers = site.busy(tmp_path)
    workers[0].kill()

    end = job.wait()

    assert end.error is not None
    assert (end.state, end.error.code) == ("failed", "worker-crashed")
    until(lambda: not any(map(_lives, workers)), "the job's other worker has ended", seconds=10)
    site.assert_works_on()
    assert site.engine()["incarnation"] == engine["incarnation"]


@pytest.mark.parametrize("victim", ["pid", "jvm_pid"], ids=["host", "jvm"])
def test_killed_engine_loses_its_job_and_leaves_no_process(site: Site, tmp_path: Path, victim: str) -> None:
    job, engine, workers = site.busy(tmp_path)
    psutil.Process(engine[victim]).kill()

    end = job.wait()

    assert end.error is not None
    assert (end.state, end.error.code) == ("lost", "engine-lost")
    until(lambda: not living(engine["incarnation"]), "nothing of the engine is left", seconds=5)
    # A process that is being ended has lost its environment, by which `living` finds it, before it is gone.
    until(lambda: not any(map(_lives, workers)), "the job's workers have ended", seconds=5)
    site.assert_works_on()


def test_killed_service_leaves_no_process_and_its_job_is_lost_when_it_is_back(
    site: Site, tmp_path: Path
) -> None:
    job, _, workers = site.busy(tmp_path)
    service = site.service()
    assert {*workers, psutil.Process(service.pid)} < set(site.marked())
    service.kill()
    service.wait()

    until(lambda: not site.marked(), "nothing of the service is left", seconds=5)
    until(lambda: not any(map(_lives, workers)), "the job's workers have ended", seconds=5)
    assert site.service() is not service
    assert job.wait().state == "lost"


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found
