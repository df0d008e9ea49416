"""One trace id in the log of a request's caller, its service, its job and the job's run in an engine."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from nebula import Responder
from nebula.rpc.middleware.logs import log_calls, log_requests
from nebula.spark import Spark, SparkRunner
from nebula.spark.engine_process import ERRORS
from nebula.testing import TestClient
from tests.own_logs import all_logs
from tests.spark.engine import Engine
from tests.spark.fakes import fake_runner
from tests.spark.told import task

FOLLOWED = {"call answered", "request answered", "job accepted", "job handed to engine", "job ended"}
TRACE = "0af7651916cd43dd8448eb211c80319c"


class PretendedSpark(Spark):
    """An engine whose host only pretends."""

    def runner(self, state: Path, *_names: str, is_shared: bool = True) -> SparkRunner:
        return fake_runner(state, is_shared=is_shared)


def trace() -> dict[str, str]:
    """What the fake host does for a function of this name: it returns the trace that it was given."""
    raise AssertionError("it runs in the fake host")


@pytest.mark.anyio
async def test_request_is_followed_by_one_id_from_its_caller_to_the_engine() -> None:
    reports = Responder("reports", middleware=[log_requests], spark=PretendedSpark())
    reports.job(trace)

    with all_logs() as lines:
        async with TestClient(reports, middleware=[log_calls]) as client:
            with anyio.fail_after(20):
                job = await client.start("reports", "trace")
                given = await job.result()

    followed = [line for line in lines if line["event"] in FOLLOWED]
    (trace_id,) = {line["trace_id"] for line in followed if line.get("verb") == "trace"}
    assert {line["event"] for line in followed} == FOLLOWED
    assert given["traceparent"].split("-")[1] == trace_id


def test_engine_host_logs_the_trace_id_of_a_run(shared_engine: Engine, shared_state: Path) -> None:
    sent = task("followed", "tests.spark.jobs:nothing")
    shared_engine.submit(replace(sent, trace={"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}))
    shared_engine.told.wait("followed", "done", "failed")

    logged = next(shared_state.rglob(ERRORS)).read_text()
    assert re.search(rf"job begun job=followed attempt=1 verb=\S+ trace_id={TRACE}$", logged, re.MULTILINE)
