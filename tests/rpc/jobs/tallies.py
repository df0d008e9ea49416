"""A service for tests that kill its process."""

from __future__ import annotations

import os
from pathlib import Path

import anyio

from nebula.rpc.contract.job_context import Job
from nebula.rpc.jobs.model.limits import JobLimits
from nebula.rpc.service.responder import Responder

app = Responder("tallies", job_limits=JobLimits(adopt_every=0.1))


@app.job(engine=None)
async def hold() -> None:
    """Never end."""
    await anyio.sleep_forever()


@app.job(engine=None, on_lost="rerun")
async def hold_once(ctx: Job) -> int:
    """Never end at the first attempt; at the second, say so."""
    if ctx.attempt == 1:
        await anyio.sleep_forever()
    return ctx.attempt


@app.job(engine=None, on_lost="rerun", retries=1)
def crash() -> None:
    """Take the process along."""
    os._exit(9)


@app.job(engine=None, on_lost="rerun", retries=9)
async def until_there(ctx: Job, path: str) -> str:
    """End when there is a file at `path`; each attempt says in the log that it waits."""
    ctx.log(f"attempt {ctx.attempt} waits")
    while not Path(path).exists():
        await anyio.sleep(0.02)
    return "it is there"
