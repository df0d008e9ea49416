"""Statuses as last values of a Nebula broker: what a late watcher finds, and what goes with its service.

Rules: G.job-status.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from uuid import uuid4

import anyio
import pytest

from nebula.headers import JOB_PREFIX
from nebula.rpc.client.client import Client
from nebula.rpc.jobs import Job, JobHandle, JobState
from nebula.rpc.service.responder import Responder
from tests.rpc.conftest import Serving

pytestmark = pytest.mark.anyio

_DEADLINE = 20.0


class _House:
    """A service whose job goes on when it is let."""

    def __init__(self, state: Path) -> None:
        self.gate = threading.Event()
        self.name = f"counting-{uuid4().hex}"
        self.app = Responder(self.name, state=state)

        @self.app.job(engine=None, max_running=1)
        def count(ctx: Job) -> int:
            ctx.progress(1, 2, "half")
            while not self.gate.wait(0.01):
                ctx.raise_if_cancelled()
            return 2

        self.count = count


def _destination(job: JobHandle) -> str:
    return f"{JOB_PREFIX}{job.id.replace('/', '.')}"


async def _values(client: Client, destination: str) -> list[bytes]:
    async with client.stomp.subscribe(destination, eager=True) as subscription:
        return [message.body async for message in subscription.snapshot()]


async def test_end_of_a_job_is_there_when_its_service_has_gone(
    client: Client, serving: Serving, tmp_path: Path
) -> None:
    house = _House(tmp_path)
    house.gate.set()
    with anyio.fail_after(_DEADLINE):
        async with serving(house.app):
            job = await client.start(house.name, "count")
            await job.wait()
        (kept,) = await _values(client, _destination(job))

    assert json.loads(kept)["state"] == JobState.DONE


async def test_watch_outlives_the_absence_of_the_service(
    client: Client, serving: Serving, tmp_path: Path
) -> None:
    house = _House(tmp_path)
    seen = []
    is_watched = anyio.Event()

    async def watch(job: JobHandle) -> None:
        async for status in job.watch():
            seen.append(str(status.state))
            is_watched.set()

    with anyio.fail_after(_DEADLINE):
        async with (
            client.stomp.subscribe(f"{JOB_PREFIX}{house.name}.*") as events,
            anyio.create_task_group() as tasks,
        ):
            async with serving(house.app):
                running = await client.start(house.name, "count")
                waiting = await client.start(house.name, "count")
                tasks.start_soon(watch, waiting)
                await is_watched.wait()
            # Its statuses go with the connection that published them.
            async for event in events:
                if event.is_deletion and event.destination == _destination(waiting):
                    break
            assert await _values(client, _destination(waiting)) == []
            house.gate.set()
            async with serving(house.app):
                assert (await running.wait()).state == JobState.LOST
                await waiting.wait()

    assert seen[0] == "queued"
    assert seen[-1] == "done"
