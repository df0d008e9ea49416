"""Nebula's own Client and Responder. `python -m benchmarks.rpc.with_nebula PORT VERB IN_FLIGHT SECONDS`.

That is the caller, or with 0 in flight the reader of a stream; the service is
`nebula run benchmarks.rpc.with_nebula:app`, or the broker hosts it (`nebula broker --app …`). `wait` and
`compute` are for the rows that ask what a hosted verb costs its broker.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import anyio

from benchmarks.rpc.caller import report
from benchmarks.rpc.shop import ORDER, Quote, price
from benchmarks.stream import Measurement
from nebula import Client, NoResponder, Responder

app = Responder("shop")


@app.verb
async def quote(symbol: str, qty: int) -> Quote:
    """The price of an order."""
    return price(symbol, qty)


@app.verb
def wait(seconds: float) -> float:
    """Do nothing for this time, as a handler does that waits for a disk or another service."""
    time.sleep(seconds)
    return seconds


@app.verb
def compute(seconds: float) -> int:
    """Count in Python for this time: a handler that never releases the interpreter by itself."""
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        count += 1
    return count


@app.verb
async def ticks() -> AsyncIterator[dict[str, object]]:
    """Small items without an end, with nothing between them."""
    number = 0
    while True:
        yield {"symbol": "ABC", "cents": number}
        number += 1


@app.verb
async def quotes() -> AsyncIterator[Quote]:
    """The same as models."""
    while True:
        yield price("ABC", 2)


@app.verb
def plain_ticks() -> Iterator[dict[str, object]]:
    """As `ticks`, from a thread."""
    number = 0
    while True:
        yield {"symbol": "ABC", "cents": number}
        number += 1


async def read(port: int, verb: str, seconds: float) -> None:
    """Read a stream for this time, and print how many items came as a line of JSON."""
    result: Any = Quote if verb == "quotes" else Any
    async with Client(f"stomp://127.0.0.1:{port}") as client:
        while True:
            try:
                await client.call("shop", "ping")
                break
            except NoResponder:  # it is starting
                await anyio.sleep(0.05)
        for limit in (_WARM_UP_SECONDS, seconds):
            count, used, start = 0, time.process_time(), time.perf_counter()
            end = start + limit
            async for _ in client.stream("shop", verb, result=result):
                count += 1
                if not count % 256 and time.perf_counter() >= end:
                    break
            elapsed = time.perf_counter() - start
    busy = (time.process_time() - used) / elapsed
    print(json.dumps(asdict(Measurement(count / elapsed, busy=busy))), flush=True)


async def call(port: int, verb: str, in_flight: int, seconds: float) -> None:
    """Ask the service."""
    async with Client(f"stomp://127.0.0.1:{port}") as client:

        async def ask_quote() -> Quote:
            return await client.call("shop", "quote", ORDER, result=Quote, timeout=10)

        async def ask_other() -> object:
            return await client.call("shop", verb, {"seconds": _HOSTED_SECONDS}, timeout=10)

        await report(ask_quote if verb == "quote" else ask_other, in_flight, seconds)


# Long compared with a request, short compared with a measurement.
_HOSTED_SECONDS = 0.25
_WARM_UP_SECONDS = 0.5


if __name__ == "__main__":
    port, verb, in_flight, seconds = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    # None in flight: it is a stream.
    work = partial(call, port, verb, in_flight, seconds) if in_flight else partial(read, port, verb, seconds)
    anyio.run(work, backend_options={"use_uvloop": True})
