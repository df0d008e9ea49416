"""The caller's side of every RPC row: keep some calls under way for a while, and say how it went."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict

from benchmarks.echo import summary
from benchmarks.rpc.shop import ORDER, Quote, price
from benchmarks.stream import Measurement

_WARM_UP_SECONDS = 0.5
_START_SECONDS = 30.0

Call = Callable[[], Awaitable[object]]


async def report(call: Call, in_flight: int, seconds: float) -> None:
    """Measure, and print the `Measurement` as a line of JSON for the program that started us."""
    print(json.dumps(asdict(await measure(call, in_flight, seconds))), flush=True)


async def measure(call: Call, in_flight: int, seconds: float) -> Measurement:
    """Call from `in_flight` tasks at once for some time; rate and latencies of the replies in that time."""
    await _answered(call)
    print("calling", flush=True)
    await _call_for(call, in_flight, _WARM_UP_SECONDS)
    used, start = time.process_time(), time.perf_counter()
    latencies = await _call_for(call, in_flight, seconds)
    elapsed = time.perf_counter() - start
    return summary(latencies, elapsed, busy=(time.process_time() - used) / elapsed)


async def _answered(call: Call) -> None:
    # The service may still be starting, and each framework has its own error for that.
    deadline = time.perf_counter() + _START_SECONDS
    while True:
        try:
            answer = await call()
            break
        except Exception:
            if time.perf_counter() > deadline:
                raise
            await asyncio.sleep(0.05)
    expected = price(**ORDER)  # type: ignore[arg-type] # a dict of mixed values
    if isinstance(answer, Quote) and answer != expected:
        raise ValueError(f"the service answered {answer!r} instead of {expected!r}")


async def _call_for(call: Call, in_flight: int, seconds: float) -> list[float]:
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def keep_calling() -> None:
        before = time.perf_counter()
        while before < end:
            await call()
            now = time.perf_counter()
            latencies.append(now - before)
            before = now

    await asyncio.gather(*(keep_calling() for _ in range(in_flight)))
    return latencies
