"""Streams without await."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from uuid import uuid4

import anyio
import pytest
from anyio.from_thread import start_blocking_portal

from nebula.rpc.service.responder import Responder
from nebula.sync import Client

app = Responder(f"numbers-{uuid4().hex}")
closed = threading.Event()


@app.verb
async def count(to: int) -> AsyncIterator[int]:
    try:
        for number in range(to):
            yield number
    finally:
        closed.set()


@pytest.fixture
def client(broker_url: str) -> Iterator[Client]:
    closed.clear()
    with start_blocking_portal() as portal:
        started = portal.call(anyio.Event)
        future = portal.start_task_soon(partial(app.run, broker_url, started=started, grace=0.05))
        portal.call(started.wait)
        with Client(broker_url, timeout=5) as one:
            yield one
        future.cancel()


def test_items_come_as_the_loop_asks_for_them(client: Client) -> None:
    assert list(client.stream(count, 1000)) == list(range(1000))
    assert list(client.stream(app.name, "count", [3], result=float)) == [0.0, 1.0, 2.0]


def test_leaving_the_loop_closes_the_handler(client: Client) -> None:
    for number in client.stream(count, 1_000_000):
        if number == 3:
            break

    assert closed.wait(10)


def test_timeout_is_for_the_whole_stream(client: Client) -> None:
    with pytest.raises(TimeoutError):
        for _ in client.stream(app.name, "count", [10**9], timeout=0.6):
            pass

    assert closed.wait(10)
