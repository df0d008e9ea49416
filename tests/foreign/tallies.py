"""A service for tests that kill instances which share a queue: each run leaves a line in a ledger."""

from __future__ import annotations

import os
from pathlib import Path

import anyio

from nebula.rpc.contract.job_context import Job
from nebula.rpc.jobs.model.limits import JobLimits
from nebula.rpc.service.responder import Responder

app = Responder("tallies", job_limits=JobLimits(lease=float(os.environ["TALLIES_LEASE"])))


def _note(ctx: Job, what: str) -> None:
    with Path(os.environ["TALLIES_LEDGER"]).open("a") as ledger:
        ledger.write(f"{ctx.id} {ctx.attempt} {what}\n")


@app.job(engine=None, on_lost="rerun")
async def hold_once(ctx: Job) -> int:
    """Never end at the first attempt; at the second, say so."""
    _note(ctx, "begun")
    if ctx.attempt == 1:
        await anyio.sleep_forever()
    _note(ctx, "ended")
    return ctx.attempt


@app.job(engine=None)
async def hold(ctx: Job) -> None:
    """Never end."""
    _note(ctx, "begun")
    await anyio.sleep_forever()


@app.job(engine=None, on_lost="rerun", exclusive="target", max_running=3)
async def write(ctx: Job, target: str) -> str:
    """Take a little, which is long enough to be killed amid it."""
    _note(ctx, f"begun {target}")
    await anyio.sleep(0.02)
    _note(ctx, f"ended {target}")
    return target
