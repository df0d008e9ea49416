"""What has passed the compiled broker leaves nothing behind: native code counts its references by itself."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import pairwise

import pytest

from nebula import testing
from nebula.errors import CallTimeout, NoResponder
from nebula.rpc.client.client import Client
from nebula.rpc.errors import VerbError
from nebula.rpc.service.responder import Responder
from tests.compiled.traffic import BATCH, KINDS, run

# More than what caches and lists take once, and less than a byte for each message.
_MOST_BYTES = 8_000
_BATCHES = 300

# Of client, service and broker together, which have more caches.
_MOST_BYTES_OF_CALLS = 40_000
_CALLS = 1_000


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_memory_does_not_grow_with_messages(kind: Callable[[], Iterator[bytes]]) -> None:
    batches = kind()
    run(batches, _BATCHES)
    gc.collect()
    tracemalloc.start()
    try:
        run(batches, 5)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        run(batches, _BATCHES)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert after - before < _MOST_BYTES


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_all_messages_of_a_batch_arrive(kind: Callable[[], Iterator[bytes]]) -> None:
    batches = kind()
    run(batches, 100)

    assert next(batches).count(b"MESSAGE\n") == BATCH


class SoldOut(VerbError):
    code = "sold-out"


@pytest.fixture
async def shop() -> AsyncGenerator[Client]:
    """A client of a broker and of a service, all in this process."""
    app = Responder("shop")

    @app.verb
    async def price(item: str) -> float:
        return float(len(item))

    @app.verb(errors=[SoldOut])
    async def order(item: str) -> None:
        raise SoldOut(f"no {item} is left")

    @app.verb
    async def wait() -> None:
        await asyncio.sleep(60)

    with testing.RunningBroker() as broker:
        async with testing.serving(broker.url, app), Client(broker.url, timeout=5) as client:
            yield client


async def succeeds(shop: Client) -> None:
    assert await shop.call("shop", "price", {"item": "tea"}, result=float) == 3.0


async def is_refused(shop: Client) -> None:
    with suppress(SoldOut):
        await shop.call("shop", "order", {"item": "tea"}, errors=[SoldOut])


async def finds_nobody(shop: Client) -> None:
    with suppress(NoResponder):
        await shop.call("nobody", "price", {"item": "tea"})


async def is_too_late(shop: Client) -> None:
    with suppress(CallTimeout):
        await shop.call("shop", "wait", timeout=0.001)


async def is_cancelled(shop: Client) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(0.001):
            await shop.call("shop", "wait")


ENDED = [succeeds, is_refused, finds_nobody]
GIVEN_UP = [is_too_late, is_cancelled]


async def make(call: Callable[[Client], Awaitable[None]], shop: Client, count: int) -> None:
    for _ in range(count // 10):
        await asyncio.gather(*(call(shop) for _ in range(10)))
    await asyncio.sleep(0.5)  # what was given up ends in the service too
    gc.collect()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("call", ENDED)
async def test_memory_does_not_grow_with_calls(
    call: Callable[[Client], Awaitable[None]], shop: Client
) -> None:
    await make(call, shop, _CALLS)
    sizes = []
    tracemalloc.start()
    try:
        await make(call, shop, 50)
        for _ in range(3):
            sizes.append(tracemalloc.get_traced_memory()[0])
            await make(call, shop, _CALLS)
        sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()

    # The least of three: what is noted with time, and the log that pytest keeps, are no leaks, but take some
    # ten thousand bytes in some of the rounds. A leak takes more in each.
    assert min(after - before for before, after in pairwise(sizes)) < _MOST_BYTES_OF_CALLS


# Service and broker remember the ids of calls that were given up, up to a limit. So it is objects that are
# counted here, such as coroutines and frames, and not bytes.
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("call", [*ENDED, *GIVEN_UP])
async def test_calls_leave_no_objects_behind(call: Callable[[Client], Awaitable[None]], shop: Client) -> None:
    await make(call, shop, _CALLS)
    before = len(gc.get_objects())
    await make(call, shop, _CALLS)

    assert len(gc.get_objects()) - before < _CALLS
