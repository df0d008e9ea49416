"""Arguments of jobs besides their parameters: from providers, and from the lifespan of their service."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

from nebula.errors import JobEnded
from nebula.rpc.contract.injection import Depends
from nebula.rpc.contract.job_context import Job
from nebula.rpc.jobs.model.record import JobRecord, LogLine
from nebula.rpc.jobs.model.states import JobState
from nebula.rpc.jobs.registry.sqlite import SqliteJobRegistry
from nebula.rpc.jobs.verb import JobVerb
from nebula.rpc.service.lifespan import lifespan_state
from nebula.rpc.service.responder import Responder
from nebula.testing import TestClient


@asynccontextmanager
async def lifespan() -> AsyncIterator[list[str]]:
    yield ["opened"]


def fresh(tmp_path: Path) -> Responder:
    return Responder(f"service-{uuid4().hex}", state=tmp_path, lifespan=lifespan)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_jobs_have_state_and_what_providers_make(kind: str, tmp_path: Path) -> None:
    app = fresh(tmp_path)
    lines: list[str] = []

    async def opened(job: Job) -> AsyncIterator[str]:
        lines.append(f"opened for {job.verb}")
        yield "given"
        lines.append("closed")

    async def report(
        ctx: Job, month: int, *, given: str = Depends(opened), state: list[str] = Depends(lifespan_state)
    ) -> list[Any]:
        return [month, given, state == ctx.state == ["opened"]]

    def report_plainly(
        ctx: Job, month: int, *, given: str = Depends(opened), state: list[str] = Depends(lifespan_state)
    ) -> list[Any]:
        return [month, given, state == ctx.state == ["opened"]]

    app.job(engine=None, name="report")(report if kind == "async" else report_plainly)
    async with TestClient(app) as client:
        with anyio.fail_after(10):
            job = await client.start(app.name, "report", {"month": 3})
            assert await job.result() == [3, "given", True]
            described = await client.call(app.name, "describe")
    (shown,) = (one for one in described["verbs"] if one["verb"] == "report")
    assert list(shown["parameters"]["properties"]) == ["month"]
    assert lines == ["opened for report", "closed"]


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_provider_learns_that_the_job_failed(kind: str, tmp_path: Path) -> None:
    app = fresh(tmp_path)
    lines: list[str] = []

    def opened() -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            lines.append(repr(error))
            raise

    async def failing(*, given: None = Depends(opened)) -> None:
        raise ValueError("no")

    def failing_plainly(*, given: None = Depends(opened)) -> None:
        raise ValueError("no")

    app.job(engine=None, name="failing")(failing if kind == "async" else failing_plainly)
    async with TestClient(app) as client:
        with anyio.fail_after(10), pytest.raises(JobEnded, match="ValueError: no"):
            await (await client.start(app.name, "failing")).result()
    assert lines == ["ValueError('no')"]


@pytest.mark.anyio
async def test_error_of_a_provider_is_the_jobs(tmp_path: Path) -> None:
    app = fresh(tmp_path)

    async def refusing() -> None:
        raise ValueError("no database")

    @app.job(engine=None)
    async def report(*, given: None = Depends(refusing)) -> None: ...

    async with TestClient(app) as client:
        with anyio.fail_after(10), pytest.raises(JobEnded, match="ValueError: no database"):
            await (await client.start(report)).result()


@pytest.mark.anyio
async def test_cancelled_job_closes_what_it_was_given(tmp_path: Path) -> None:
    app = fresh(tmp_path)
    lines: list[str] = []
    runs = anyio.Event()

    async def opened() -> AsyncIterator[None]:
        try:
            yield
            lines.append("kept")
        finally:
            await anyio.lowlevel.checkpoint()
            lines.append("closed")

    @app.job(engine=None)
    async def endless(*, given: None = Depends(opened)) -> None:
        runs.set()
        await anyio.sleep_forever()

    async with TestClient(app) as client:
        with anyio.fail_after(10):
            job = await client.start(endless)
            await runs.wait()
            await job.cancel()
            assert str((await job.wait()).state) == "cancelled"
    assert lines == ["closed"]


def test_job_of_an_engine_cannot_be_given_anything() -> None:
    def report(*, given: dict[str, str] = Depends(dict)) -> None: ...

    with pytest.raises(TypeError, match=r"runs in another process .* Depends"):
        JobVerb("report", report, engine="default")


# As the first version wrote it, with one job and its log.
_VERSION_1 = """
CREATE TABLE jobs (number INTEGER PRIMARY KEY, id, verb, parameters, accepted_at, owner, dedupe, state,
    attempt, seq, priority, expires_at, timeout, progress_every, reply_id, notify, started_at, ended_at,
    progress, note, step, tasks, output, error, ends_as, incarnation);
CREATE UNIQUE INDEX job_ids ON jobs (id);
CREATE UNIQUE INDEX job_keys ON jobs (owner, verb, dedupe) WHERE dedupe IS NOT NULL;
CREATE INDEX job_states ON jobs (state);
CREATE TABLE lines (number INTEGER PRIMARY KEY, job TEXT NOT NULL, at REAL NOT NULL, text TEXT NOT NULL);
CREATE INDEX job_lines ON lines (job, number);
INSERT INTO jobs (id, verb, parameters, accepted_at, owner, state, attempt, seq, priority, progress_every,
    note) VALUES ('01J00000000000000000000001', 'report', '{}', 1.0, '', 'done', 1, 4, 4, 2.0, '');
INSERT INTO lines (job, at, text) VALUES ('another', 1.0, 'x'), ('01J00000000000000000000001', 1.0,
    'begun'), ('another', 2.0, 'y'), ('01J00000000000000000000001', 2.0, 'over');
PRAGMA user_version = 1;
"""


def test_registry_of_the_version_before_is_brought_up_to_date(tmp_path: Path) -> None:
    file = tmp_path / "jobs.sqlite"
    with sqlite3.connect(file) as db:
        db.executescript(_VERSION_1)
    record = JobRecord("01J0000000000000000000000A", "report", {}, 1.0, traceparent="00-a", tracestate="b=c")

    registry = SqliteJobRegistry(file)
    try:
        with registry.transaction():
            registry.insert(record)
        assert registry.find(record.id) == record
        old = registry.find("01J00000000000000000000001")
        assert old is not None
        assert (old.state, old.steps, old.is_owed) == (JobState.DONE, (), False)
        assert registry.lines(old.id, 10) == [LogLine(1.0, "begun", 1), LogLine(2.0, "over", 2)]
    finally:
        registry.close()
