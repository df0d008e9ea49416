"""A service whose verbs yield, for the tests of streams, and the records of its handlers."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread
from pydantic import BaseModel

from nebula.rpc.contract.context import Request
from nebula.rpc.errors import VerbError
from nebula.rpc.service.responder import Responder


class Tick(BaseModel):
    symbol: str
    cents: int


class SoldOut(VerbError):
    """There is nothing left."""

    code = "sold-out"


class Watch:
    """Records of handlers: how far they got, and whether they were closed."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the records of the last test."""
        self.yielded = 0
        self.begun = anyio.Event()
        self.closed = anyio.Event()
        self.thread_closed = threading.Event()


watch = Watch()
app = Responder(f"prices-{uuid4().hex}")
impatient = Responder(f"impatient-{uuid4().hex}", stream_idle=0.3)


@app.verb
async def ticks(symbol: str, count: int) -> AsyncIterator[Tick]:
    for number in range(count):
        yield Tick(symbol=symbol, cents=number)


@app.verb
def plain_ticks(request: Request, symbol: str, count: int) -> Iterator[Tick]:
    for number in range(count):
        yield Tick(symbol=symbol, cents=number)


@app.verb
async def endless() -> AsyncGenerator[int, None]:
    watch.begun.set()
    try:
        while True:
            yield watch.yielded
            watch.yielded += 1
    finally:
        watch.closed.set()


@app.verb
async def endless_and_slow() -> AsyncGenerator[int, None]:
    try:
        while True:
            yield watch.yielded
            watch.yielded += 1
            await anyio.sleep(0.001)
    finally:
        watch.closed.set()


@app.verb
def plain_endless() -> Iterator[int]:
    try:
        while True:
            yield watch.yielded
            watch.yielded += 1
    finally:
        watch.thread_closed.set()


@app.verb
async def quiet() -> AsyncIterator[int]:
    yield 0
    watch.begun.set()
    try:
        await anyio.sleep_forever()
    finally:
        watch.closed.set()


@app.verb(errors=[SoldOut])
async def failing(count: int, kind: str = "declared") -> AsyncIterator[int]:
    for number in range(count):
        yield number
    if kind == "declared":
        raise SoldOut("none left", details={"left": 0})
    raise ZeroDivisionError("secret")


@app.verb
def plain_failing(count: int) -> Iterator[int]:
    yield from range(count)
    raise VerbError("sold-out", "none left")


@app.verb
async def odd(wait: bool = False) -> AsyncIterator[Any]:
    yield 1
    yield object()
    if wait:
        await anyio.sleep_forever()


@app.verb
async def large(size: int, count: int) -> AsyncIterator[str]:
    for _ in range(count):
        yield "x" * size


@app.verb
async def numbers() -> list[int]:
    return [1, 2, 3]


@app.verb
async def one() -> int:
    return 1


@app.verb
def rows(count: int) -> Iterator[int]:
    # Bound to its thread: another one may not touch it.
    with sqlite3.connect(":memory:") as database:
        found = database.execute(
            "with recursive n(x) as (values(0) union all select x + 1 from n where x < ?) select x from n",
            (count - 1,),
        )
        for (number,) in found:
            yield number


@impatient.verb
async def endless_watched() -> AsyncIterator[int]:
    try:
        while True:
            yield watch.yielded
            watch.yielded += 1
    finally:
        watch.closed.set()


@impatient.verb
async def quiet_for_ever() -> AsyncIterator[int]:
    await anyio.sleep_forever()
    yield 0


async def read(
    stream: AsyncIterator[Any], most: int | None = None, into: list[Any] | None = None
) -> list[Any]:
    found: list[Any] = [] if into is None else into
    with anyio.fail_after(20):
        async for item in stream:
            found.append(item)
            if len(found) == most:
                break
    return found


async def wait(event: anyio.Event) -> None:
    with anyio.fail_after(10):
        await event.wait()


async def wait_thread(event: threading.Event) -> None:
    assert await anyio.to_thread.run_sync(event.wait, 10)
