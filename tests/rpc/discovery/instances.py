"""Instances that serve at a broker."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import anyio

from nebula.rpc.service.responder import Responder


@asynccontextmanager
async def serving_at(url: str, *apps: Responder) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as tasks:
        for app in apps:
            started = anyio.Event()
            tasks.start_soon(partial(app.run, url, started=started, grace=0.05))
            with anyio.fail_after(5):
                await started.wait()
        yield
        tasks.cancel_scope.cancel()
