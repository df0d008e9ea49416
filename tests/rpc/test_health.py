"""Hooks that say whether a service is well."""

from __future__ import annotations

import threading

import anyio
import pytest

from nebula.rpc.health import Checks
from nebula.rpc.responder import Responder

pytestmark = pytest.mark.anyio


async def test_service_without_hooks_is_well() -> None:
    app = Responder("prices")

    assert (await app.not_ready(), await app.not_live()) == ([], [])


async def test_false_and_an_exception_are_not_well_and_all_else_is() -> None:
    app = Responder("prices")

    @app.ready
    async def database() -> bool:
        return False

    @app.ready
    def cache() -> None:
        raise OSError("away")

    @app.ready
    async def fine() -> None: ...

    @app.ready
    def also_fine() -> bool:
        return True

    assert await app.not_ready() == ["database", "cache"]
    assert await app.not_live() == []


async def test_decorator_returns_the_hook_itself() -> None:
    def hook() -> bool:
        return True

    assert Responder("prices").live(hook) is hook


async def test_plain_hook_runs_in_a_thread_of_its_own() -> None:
    app, seen = Responder("prices"), []

    @app.live
    def where() -> None:
        seen.append(threading.current_thread())

    assert await app.not_live() == []
    assert seen != [threading.main_thread()]


async def test_hook_that_hangs_is_not_well() -> None:
    checks = Checks("ready", seconds=0.01)

    @checks.declare
    async def hangs() -> None:
        await anyio.sleep_forever()

    assert await checks.failing() == ["hangs"]


async def test_hook_that_wants_an_argument_is_refused() -> None:
    def hook(about: str) -> bool:
        return True

    with pytest.raises(TypeError, match="hook: a hook for ready takes no arguments"):
        Responder("prices").ready(hook)  # type: ignore[type-var]
