"""Readers that leave or are slow: the effect on the handler."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread
import pytest

from nebula.errors import ConnectionLost
from nebula.rpc.client.client import Client
from nebula.rpc.service.responder import Responder
from tests.rpc.conftest import Serving
from tests.rpc.streams.market import (
    endless,
    one,
    plain_endless,
    quiet,
    read,
    wait,
    wait_thread,
    watch,
)

pytestmark = pytest.mark.anyio


async def leave_by_break(client: Client, function: Callable[[], AsyncIterator[int]]) -> None:
    async for item in client.stream(function):
        if item == 3:
            break


async def leave_by_error(client: Client, function: Callable[[], AsyncIterator[int]]) -> None:
    async def fail() -> None:
        async for _ in client.stream(function):
            raise KeyError

    with pytest.raises(KeyError):
        await fail()


async def leave_by_cancelling(client: Client, function: Callable[[], AsyncIterator[int]]) -> None:
    with anyio.CancelScope() as scope:
        async for _ in client.stream(function):
            scope.cancel()


async def leave_by_block(client: Client, function: Callable[[], AsyncIterator[int]]) -> None:
    async with client.stream(function) as items:
        async for _ in items:
            break
        # Held here still.
        assert items is not None


async def leave_by_closing(client: Client, function: Callable[[], AsyncIterator[int]]) -> None:
    items = client.stream(function)
    async with aclosing(items):
        await anext(items)
    assert [item async for item in items] == []


WAYS = [leave_by_break, leave_by_error, leave_by_cancelling, leave_by_block, leave_by_closing]


@pytest.mark.parametrize("leave", WAYS)
async def test_leaving_closes_the_handler(client: Client, prices: str, leave: Callable[..., Any]) -> None:
    with anyio.fail_after(10):
        await leave(client, endless)

    await wait(watch.closed)


@pytest.mark.parametrize("leave", WAYS)
async def test_leaving_closes_a_plain_handler(client: Client, prices: str, leave: Callable[..., Any]) -> None:
    with anyio.fail_after(10):
        await leave(client, plain_endless)

    await wait_thread(watch.thread_closed)


async def test_handler_that_waits_is_cancelled(client: Client, prices: str) -> None:
    stream = client.stream(quiet)
    await anext(stream)
    await wait(watch.begun)
    await stream.aclose()

    await wait(watch.closed)


async def test_worker_is_free_after_its_stream_was_left(broker_url: str, serving: Serving) -> None:
    narrow = Responder(f"narrow-{uuid4().hex}", concurrency=1)
    narrow.verb(name="endless")(endless_of())
    async with serving(narrow), Client(broker_url, timeout=5) as client:
        for _ in range(5):
            assert await read(client.stream(narrow.name, "endless"), most=2) == [0, 1]


def endless_of() -> Callable[[], AsyncIterator[int]]:
    async def numbers() -> AsyncIterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    return numbers


async def test_stream_that_was_never_begun_asks_nothing(client: Client, prices: str) -> None:
    stream = client.stream(endless)
    await stream.aclose()

    assert [item async for item in stream] == []
    assert not watch.begun.is_set()


async def test_stream_that_the_collector_finds_is_withdrawn(client: Client, prices: str) -> None:
    stream = client.stream(endless)
    await anext(stream)
    loop = [stream]
    loop.append(loop)  # type: ignore[arg-type]  # a cycle, as tracebacks make them
    del stream, loop
    gc.collect()

    await wait(watch.closed)


async def test_reader_whose_connection_ends_closes_the_handler(broker_url: str, prices: str) -> None:
    async with Client(broker_url, timeout=5) as client:
        stream = client.stream(endless)
        await anext(stream)

    await wait(watch.closed)
    with pytest.raises(ConnectionLost):
        await read(stream)


# --- a slow reader ---


async def test_slow_reader_slows_the_handler(client: Client, prices: str) -> None:
    stream = client.stream(prices, "endless", credit=10)
    await anext(stream)
    # Another call shows that the service has come to rest, not that it has not yet gone on.
    for _ in range(3):
        await client.call(one)

    assert watch.yielded <= 10 + 1
    for _ in range(20):
        await anext(stream)
    await client.call(one)
    assert 20 <= watch.yielded <= 20 + 10 + 1
    await stream.aclose()


async def test_slow_reader_slows_a_plain_handler(client: Client, prices: str) -> None:
    stream = client.stream(prices, "plain_endless", credit=10)
    for _ in range(30):
        await anext(stream)
    for _ in range(3):
        await client.call(one)

    assert 29 <= watch.yielded <= 30 + 10 + 1
    await stream.aclose()
