"""What idle connections cost a broker in memory.

Each broker is one that was just started: those of the other rows have traces of them in their memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

import psutil

from benchmarks.peers import Broker
from benchmarks.stream import Measurement
from benchmarks.wire import Link

CONNECTIONS = 1_000
# What a broker does after the first connection, once: caches, threads, compiled code.
_FIRST = 20
# Memory of a virtual machine settles a little later than the connection is there.
_SETTLE_SECONDS = 2.0


def connections(
    broker: Broker,  # noqa: ARG001 # a fresh one is measured
    seconds: float,  # noqa: ARG001 # it is over when all are connected
    *,
    start: Callable[[], AbstractContextManager[Broker]],
) -> Measurement:
    """Connect a thousand clients that then do nothing; what the broker grew by."""
    with start() as fresh, ExitStack() as stack:
        for _ in range(_FIRST):
            stack.callback(Link(fresh).close)
        time.sleep(_SETTLE_SECONDS)
        before, begun = _resident_bytes(fresh), time.perf_counter()
        for _ in range(CONNECTIONS):
            stack.callback(Link(fresh).close)
        took = time.perf_counter() - begun
        time.sleep(_SETTLE_SECONDS)
        return Measurement(CONNECTIONS / took, resident_bytes=_resident_bytes(fresh) - before)


def _resident_bytes(broker: Broker) -> int:
    return int(psutil.Process(broker.pid).memory_info().rss)
