"""A plain generator in its thread: how far it runs ahead, and how it is ended. No loop."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nebula.rpc.streams.threads import ThreadedItems

pytestmark = pytest.mark.timeout(20)


class Run:
    """A generator in a thread, and the loop's side played by the test."""

    def __init__(self, generator: Any, limit: int) -> None:
        self.ready: deque[Any] = deque()
        self.woken = threading.Semaphore(0)
        self.source = ThreadedItems(generator, self.ready, self.woken.release)
        self.source.allow(limit)
        self._pool = ThreadPoolExecutor(1)
        self.done = self._pool.submit(self.source.run)

    def take(self, limit: int) -> list[Any]:
        self.source.hold()
        found = [self.ready.popleft() for _ in range(len(self.ready))]
        self.source.allow(limit)
        return found


def counting(log: list[Any]) -> Iterator[int]:
    try:
        for number in range(1000):
            log.append(number)
            yield number
    finally:
        log.append(threading.get_ident())


def test_all_items_come_in_order_from_one_thread() -> None:
    log: list[Any] = []
    run = Run(counting(log), 10)
    found: list[int] = []
    while len(found) < 1000:
        assert run.woken.acquire(timeout=10)
        found += run.take(10)

    run.done.result(10)
    assert found == list(range(1000))
    assert log[-1] != threading.get_ident()


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_lies_there_than_may(limit: int) -> None:
    run = Run(counting([]), limit)
    found: list[int] = []
    while len(found) < 1000:
        assert run.woken.acquire(timeout=10)
        taken = run.take(limit)
        found += taken

        assert len(taken) <= limit
    run.done.result(10)


def test_closing_ends_a_generator_that_waits_and_closes_it() -> None:
    log: list[Any] = []
    run = Run(counting(log), 1)
    assert run.woken.acquire(timeout=10)
    run.source.close()

    run.done.result(10)
    assert isinstance(log[-1], int)
    assert log[-1] > 1000  # the thread that ran the `finally`


def test_error_of_the_generator_comes_out() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise KeyError("mine")

    run = Run(failing(), 10)

    with pytest.raises(KeyError):
        run.done.result(10)
    assert list(run.ready) == [1]


def test_loop_is_woken_once_for_all_that_it_has_not_looked_at() -> None:
    run = Run(iter_of(5), 10)
    run.done.result(10)

    assert run.woken.acquire(blocking=False)
    assert not run.woken.acquire(blocking=False)


def iter_of(count: int) -> Iterator[int]:
    yield from range(count)
