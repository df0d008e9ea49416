"""Nebula's own Client and Responder. `python -m benchmarks.rpc.with_nebula PORT VERB IN_FLIGHT SECONDS`.

That is the caller; the service is `nebula run benchmarks.rpc.with_nebula:app`, or the broker hosts it
(`nebula broker --app …`). `wait` and `compute` are for the rows that ask what a hosted verb costs its broker.
"""

from __future__ import annotations

import sys
import time

import anyio

from benchmarks.rpc.caller import report
from benchmarks.rpc.shop import ORDER, Quote, price
from nebula import Client, Responder

app = Responder("shop")


@app.verb
async def quote(symbol: str, qty: int) -> Quote:
    """The price of an order."""
    return price(symbol, qty)


@app.verb
def wait(seconds: float) -> float:
    """Do nothing for so long, as a handler does that waits for a disk or another service."""
    time.sleep(seconds)
    return seconds


@app.verb
def compute(seconds: float) -> int:
    """Count in Python for so long: a handler that never lets go of the interpreter by itself."""
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        count += 1
    return count


async def call(port: int, verb: str, in_flight: int, seconds: float) -> None:
    """Ask the service."""
    async with Client(f"stomp://127.0.0.1:{port}") as client:

        async def ask_quote() -> Quote:
            return await client.call("shop", "quote", ORDER, result=Quote, timeout=10)

        async def ask_other() -> object:
            return await client.call("shop", verb, {"seconds": _HOSTED_SECONDS}, timeout=10)

        await report(ask_quote if verb == "quote" else ask_other, in_flight, seconds)


# Long beside a request, short beside a measurement.
_HOSTED_SECONDS = 0.25


if __name__ == "__main__":
    anyio.run(
        call,
        int(sys.argv[1]),
        sys.argv[2],
        int(sys.argv[3]),
        float(sys.argv[4]),
        backend_options={"use_uvloop": True},
    )
