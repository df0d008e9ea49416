"""The rows of jobs: what a verb costs over its Spark code, how soon it answers, how soon it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import anyio

from benchmarks.echo import summary
from benchmarks.own import PROGRAM
from benchmarks.peers import Broker
from benchmarks.processes import Unavailable, running, tail
from benchmarks.stream import Measurement
from nebula import Client, JobHandle, JobState, NoResponder

_APP = "benchmarks.spark.work:app"
_SERVICE = "work"
# A JVM goes on becoming quicker for long; the first jobs are several times as slow.
_WARM_UP_JOBS = 20
# A group of jobs, then their code alone as often: whatever slows the machine for a while slows both.
_IN_TURNS = 5
# A single run of the code differs from the next by more than a job costs.
_LEAST_PAIRS = 300
_START_SECONDS = 300.0
_BUSY_AT_LEAST = 0.3
# As many as the service runs at once.
_AT_ONCE = 8
_PAUSE_SECONDS = 0.01

_Measure = Callable[[Client, float], Awaitable[Measurement]]


def overhead(broker: Broker, seconds: float) -> Measurement:
    """One job after the other, from the request to its result; `more` is what the code alone does not take.

    The code alone runs in the same engine, in turns with the jobs.
    """
    return _served(broker, seconds, _overhead)


def accepted(broker: Broker, seconds: float) -> Measurement:
    """From the request to its early `success`, while another job fills Spark."""
    return _served(broker, seconds, _accepted)


def begun(broker: Broker, seconds: float) -> Measurement:
    """Jobs that do nothing, from their requests to their results, eight at a time."""
    return _served(broker, seconds, _begun)


def loop_delay(broker: Broker, seconds: float) -> Measurement:
    """By how much the service's event loop is late while jobs run and are asked for."""
    return _served(broker, seconds, _loop_delay)


def cancelled(broker: Broker, seconds: float, *, verb: str) -> Measurement:
    """From `cancel` to `cancelled`; `took` is until a small job that was asked for then is done."""

    async def cancel(client: Client, seconds: float) -> Measurement:
        return await _cancelled(client, seconds, verb)

    return _served(broker, seconds, cancel)


def alone(broker: Broker, seconds: float, *, kind: str) -> Measurement:  # noqa: ARG001  # no broker in it
    """The same code in a program of its own: `classic` Spark, or by Spark `connect`."""
    command = [sys.executable, "-m", "benchmarks.spark.alone", kind, str(seconds)]
    taken: list[float] = json.loads(_ran(command).splitlines()[-1])
    return summary(taken, sum(taken))


def submitted(broker: Broker, seconds: float) -> Measurement:  # noqa: ARG001  # no broker in it
    """One run of the same code by spark-submit, from the command to its end."""
    import benchmarks.spark.alone as program

    began = time.perf_counter()
    _ran([program.SUBMIT, str(program.__file__), "submit", str(seconds)])
    took = time.perf_counter() - began
    return Measurement(1 / took, p50=took, p99=took)


def _ran(command: list[str]) -> str:
    root = Path(__file__).parents[1]
    # Spark's scripts look for their own folder with the `python` that is on PATH.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=_START_SECONDS * 2, cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "PATH": path, "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    if done.returncode != 0:
        raise Unavailable(f"{Path(command[0]).name} failed: {done.stderr.strip()[-600:]}")
    return done.stdout


def _served(broker: Broker, seconds: float, measure: _Measure) -> Measurement:
    url = f"stomp://127.0.0.1:{broker.port}"

    async def ask() -> Measurement:
        async with Client(url) as client:
            await _warmed_up(client)
            return await measure(client, seconds)

    with _service(url):
        return anyio.run(ask)


@contextmanager
def _service(url: str) -> Iterator[None]:
    with TemporaryDirectory(prefix="nebula-") as folder:
        log = Path(folder, "service.log")
        environment = {"NEBULA_BROKER": url, "NEBULA_STATE": str(Path(folder, "state"))}
        with running([PROGRAM, "run", _APP], log=log, environment=environment):
            try:
                yield
            except TimeoutError as error:
                raise Unavailable(f"the service of jobs is not ready: {tail(log)}") from error


async def _warmed_up(client: Client) -> None:
    with anyio.fail_after(_START_SECONDS):
        while True:
            try:
                await client.call(_SERVICE, "ping")
                break
            except NoResponder:  # it is starting
                await anyio.sleep(0.05)
        for _ in range(_WARM_UP_JOBS):
            await _quick(client)
        await _direct(client, _WARM_UP_JOBS)


async def _overhead(client: Client, seconds: float) -> Measurement:
    jobs: list[float] = []
    alone: list[float] = []
    end = time.perf_counter() + seconds
    while len(jobs) < _LEAST_PAIRS or time.perf_counter() < end:
        jobs += [await _quick(client) for _ in range(_IN_TURNS)]
        alone += await _direct(client, _IN_TURNS)
    more = sorted(job - code for job, code in zip(jobs, alone, strict=True))
    return replace(summary(jobs, sum(jobs)), more=median(more), more_p90=more[int(len(more) * 0.9)])


async def _quick(client: Client) -> float:
    began = time.perf_counter()
    await (await client.start(_SERVICE, "quick")).result()
    return time.perf_counter() - began


async def _direct(client: Client, times: int) -> list[float]:
    return await (await client.start(_SERVICE, "direct", {"times": times})).result(list[float])


async def _accepted(client: Client, seconds: float) -> Measurement:
    await _running(client, "busy")
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while not taken or time.perf_counter() < end:
        start = time.perf_counter()
        await client.start(_SERVICE, "quick")
        taken.append(time.perf_counter() - start)
        # At full speed the service would soon have as many as it takes, and refuse.
        await anyio.sleep(_PAUSE_SECONDS)
    return summary(taken, sum(taken))


async def _begun(client: Client, seconds: float) -> Measurement:
    taken: list[float] = []
    start = time.perf_counter()

    async def keep_starting() -> None:
        while (began := time.perf_counter()) < start + seconds:
            await (await client.start(_SERVICE, "nothing")).result()
            taken.append(time.perf_counter() - began)

    async with anyio.create_task_group() as tasks:
        for _ in range(_AT_ONCE):
            tasks.start_soon(keep_starting)
    return summary(taken, time.perf_counter() - start)


async def _cancelled(client: Client, seconds: float, verb: str) -> Measurement:
    reported: list[float] = []
    free: list[float] = []
    end = time.perf_counter() + seconds
    while not reported or time.perf_counter() < end:
        job = await _running(client, verb)
        began = time.perf_counter()
        await job.cancel()
        status = await job.wait()
        reported.append(time.perf_counter() - began)
        if status.state != JobState.CANCELLED:
            raise ConnectionError(f"a job that was cancelled is {status.state}")
        await (await client.start(_SERVICE, "quick")).result()
        free.append(time.perf_counter() - began)
    measured = summary(reported, sum(reported))
    return Measurement(measured.rate, p50=measured.p50, p99=measured.p99, took=median(free))


async def _loop_delay(client: Client, seconds: float) -> Measurement:
    filling = await _running(client, "busy")
    late: list[float] = []

    async def watch() -> None:
        late.extend(await client.call(_SERVICE, "delays", {"seconds": seconds}, result=list[float]))
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        while True:
            await (await client.start(_SERVICE, "quick")).result()
    await filling.cancel()
    return summary(late, seconds)


async def _running(client: Client, verb: str) -> JobHandle:
    job = await client.start(_SERVICE, verb)
    async for status in job.watch():
        if status.state == JobState.RUNNING:
            break
    # Its tasks have to be in Spark by then.
    await anyio.sleep(_BUSY_AT_LEAST)
    return job
