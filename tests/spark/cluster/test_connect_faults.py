"""Connect servers that hang, die or come back while an engine has to do with them."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from nebula.rpc.jobs.registry.state_folder import StateFolder
from nebula.rpc.jobs.service.service import JobService
from nebula.rpc.jobs.verb import JobVerb
from nebula.spark import Spark
from services.cluster.machines import connect_server
from tests.rpc.jobs.harness import Published, ask, request
from tests.spark.cluster import jobs
from tests.spark.cluster.connecting import PATIENCE_SECONDS, is_running, reaching, start_endless
from tests.spark.engine import living, until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


def left_over(folder: Path) -> list[Path]:
    """The names of sessions that a host could not close."""
    return list(folder.rglob("connect/*"))


def test_engine_stops_though_its_server_hangs_or_is_killed_and_the_next_one_ends_what_was_left(
    tmp_path: Path,
) -> None:
    with connect_server(tmp_path) as server:
        with reaching(server.address, tmp_path / "state") as spark:
            worker = start_endless(spark, "H", tmp_path)
            hanging = spark.status()["incarnation"]
            os.killpg(server.process.pid, signal.SIGSTOP)

        assert living(hanging) == []
        assert len(left_over(tmp_path)) == 1
        os.killpg(server.process.pid, signal.SIGCONT)
        (tmp_path / "pid").unlink()
        with reaching(server.address, tmp_path / "state") as spark:
            until(lambda: not is_running(worker), "the job's code has ended on the server", PATIENCE_SECONDS)
            until(lambda: left_over(tmp_path) == [], "no session is remembered", PATIENCE_SECONDS)
            start_endless(spark, "K", tmp_path)
            killed = spark.status()["incarnation"]
            server.kill()

        assert living(killed) == []


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_job_that_may_run_again_is_done_once_its_killed_server_is_back(tmp_path: Path) -> None:
    told, folder = Published(), {"folder": str(tmp_path)}
    rules = {"on_lost": "rerun", "retry_on": ["engine-unavailable"], "retry_delay": 1.0, "retries": 9}
    verb = JobVerb("again", jobs.again, "default", **rules)  # type: ignore[arg-type]  # of many types
    with ExitStack() as servers:
        server = servers.enter_context(connect_server(tmp_path))
        spark = Spark(remote=f"sc://{server.address}")
        async with counting(verb, spark, tmp_path / "state", told) as service:
            job = (await service.accept(request("again", folder), verb, verb.signature.bind(folder)))["job"]
            while not (tmp_path / "pid").exists():
                await anyio.sleep(0.05)
            server.kill()
            port = server.address.rpartition(":")[2]
            again = connect_server(tmp_path, "--conf", f"spark.connect.grpc.binding.port={port}")
            await anyio.to_thread.run_sync(servers.enter_context, again)
            await told.until(job, "done")
            result = await ask(service, "job.result", {"job": job})

    assert result["value"] > 1


@asynccontextmanager
async def counting(verb: JobVerb, spark: Spark, root: Path, told: Published) -> AsyncIterator[JobService]:
    """A service of this one verb, with a real engine."""
    with StateFolder.take("counting", lambda: "i", root) as state:
        runner = spark.runner(state.path, "counting")
        service = JobService("counting", state=state, runners={"default": runner})
        service.declare(verb)
        started = anyio.Event()
        with anyio.fail_after(2 * PATIENCE_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(service.run, told, started=started))
                await started.wait()
                yield service
                tasks.cancel_scope.cancel()
