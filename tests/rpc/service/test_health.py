"""Hooks that say whether a service is well."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable

import anyio
import pytest

from nebula.rpc.service.health import Checks
from nebula.rpc.service.responder import Responder

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


class Database:
    async def ping(self) -> bool:
        return False

    async def __call__(self) -> bool:
        return False


def unmarked(function: Callable[[], Awaitable[bool]]) -> Callable[[], Awaitable[bool]]:
    """What a plain decorator makes: only its result says that it is async."""
    return lambda: function()


@pytest.mark.parametrize("hook", [lambda: Database().ping(), Database(), unmarked(Database())])
async def test_hook_whose_result_has_to_be_awaited_is_awaited(hook: Callable[[], Awaitable[bool]]) -> None:
    app = Responder("prices")
    app.ready(hook)

    for _ in range(2):
        assert len(await app.not_ready()) == 1


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


async def test_plain_hook_that_hangs_holds_one_thread_and_is_asked_again_when_it_came_back() -> None:
    checks, database_is_back, runs = Checks("live", seconds=0.01), threading.Event(), []

    @checks.declare
    def database() -> None:
        runs.append(threading.current_thread())
        database_is_back.wait()

    with anyio.fail_after(10):
        answers = [await checks.failing()]
        while not runs:
            await anyio.sleep(0.001)
        answers += [await checks.failing() for _ in range(19)]
        assert (answers, len(runs)) == ([["database"]] * 20, 1)
        database_is_back.set()
        runs[0].join()
        failing = ["database"]
        # Each time it has 10 ms, which a loaded machine may need for the thread alone.
        while len(runs) < 2 or failing:
            failing = await checks.failing()


@pytest.mark.parametrize("is_plain", [True, False])
async def test_caller_during_a_run_of_a_hook_gets_its_outcome(*, is_plain: bool) -> None:
    checks, may_end, plain_may_end, runs = Checks("ready"), anyio.Event(), threading.Event(), []

    async def hook() -> bool:
        runs.append(1)
        await may_end.wait()
        return False

    def plain_hook() -> bool:
        runs.append(1)
        plain_may_end.wait()
        return False

    checks.declare(plain_hook if is_plain else hook)
    answers: list[list[str]] = []

    async def ask() -> None:
        answers.append(await checks.failing())

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            may_end.set()
            plain_may_end.set()

    assert (len(runs), {len(one) for one in answers}, len(answers)) == (1, {1}, 10)


async def test_hook_is_run_again_for_the_others_if_the_caller_that_ran_it_was_cancelled() -> None:
    checks, may_end, runs = Checks("ready"), anyio.Event(), []

    @checks.declare
    async def hook() -> bool:
        runs.append(1)
        await may_end.wait()
        return True

    answers: list[list[str]] = []

    async def ask() -> None:
        answers.append(await checks.failing())

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            first = anyio.CancelScope()

            async def ask_and_leave() -> None:
                with first:
                    await checks.failing()

            tasks.start_soon(ask_and_leave)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            first.cancel()
            await anyio.wait_all_tasks_blocked()
            may_end.set()

    assert (answers, len(runs)) == ([[]], 2)


@pytest.mark.parametrize("is_plain", [True, False])
async def test_hook_that_would_end_the_program_says_no(*, is_plain: bool) -> None:
    checks = Checks("ready")

    def plain_hook() -> None:
        raise SystemExit

    async def hook() -> None:
        raise SystemExit

    checks.declare(plain_hook if is_plain else hook)
    with anyio.fail_after(10):
        assert len(await checks.failing()) == 1


async def test_hook_that_wants_an_argument_is_refused() -> None:
    def hook(about: str) -> bool:
        return True

    with pytest.raises(TypeError, match="hook: a hook for ready takes no arguments"):
        Responder("prices").ready(hook)  # type: ignore[type-var]
