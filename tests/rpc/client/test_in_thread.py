"""Daemon threads: one for many calls, and another one after an abandoned call."""

from __future__ import annotations

import threading
import weakref
from functools import partial

import anyio
import pytest

from nebula.threads import DaemonThread

pytestmark = pytest.mark.anyio


class Thing:
    """An object that a weak reference can point to."""


async def test_calls_go_to_one_thread_until_it_is_closed() -> None:
    thread = DaemonThread()
    first, second = [await thread.call(threading.current_thread) for _ in range(2)]
    thread.close()
    await anyio.to_thread.run_sync(first.join, 10)

    assert first is second
    assert first.daemon
    assert not first.is_alive()


async def test_exception_of_a_call_is_raised_and_the_thread_goes_on() -> None:
    thread = DaemonThread()
    before = await thread.call(threading.current_thread)
    with pytest.raises(ZeroDivisionError):
        await thread.call(lambda: 1 / 0)
    after = await thread.call(threading.current_thread)
    thread.close()

    assert before is after


async def test_call_after_one_that_was_given_up_has_another_thread_and_the_first_ends() -> None:
    thread, may_end = DaemonThread(), threading.Event()
    hung: list[threading.Thread] = []

    def hang() -> None:
        hung.append(threading.current_thread())
        may_end.wait(10)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(thread.call, hang)
            while not hung:
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
    other = await thread.call(threading.current_thread)
    thread.close()
    may_end.set()
    await anyio.to_thread.run_sync(hung[0].join, 10)

    assert other is not hung[0]
    assert not hung[0].is_alive()


async def test_thread_that_waits_keeps_nothing_of_what_it_did() -> None:
    thread, made = DaemonThread(), Thing()
    is_gone = threading.Event()
    weakref.finalize(made, is_gone.set)
    await thread.call(partial(id, made))
    del made
    was_gone = await anyio.to_thread.run_sync(is_gone.wait, 5)
    thread.close()

    assert was_gone
