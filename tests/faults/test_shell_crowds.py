"""A thousand idle connections and a hundred busy ones: memory stays flat.

Eight seconds in `make test-slow`, minutes in `make torture` (see `tests.depth`).
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import pytest

from tests.depth import DEPTH
from tests.faults.programs import Program, program
from tests.faults.served import Wire

_SECONDS = 2.0 * DEPTH

pytestmark = [pytest.mark.slow, pytest.mark.timeout(int(_SECONDS) + 120)]

_IDLE = 1000
_BUSY = 100

# Of every twenty messages one is kept on disk, as in a house where few things must not be lost.
_ROUND = 20

# What one look may find more than another: a collection that is due, a page of the allocator.
_NOISE_BYTES = 4 << 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Program]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * (_IDLE + _BUSY)
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard), hard))
    with program(tmp_path) as started:
        yield started


def work(wires: list[Wire], seconds: float, watched: psutil.Process) -> tuple[int, int]:
    """Keep all busy for so long: the rounds, and the most resident memory in octets."""
    until, rounds, peak_bytes = time.monotonic() + seconds, 0, 0
    while time.monotonic() < until or rounds < 3:
        for number, wire in enumerate(wires):
            *plain, last = [f"SEND destination:/queue/{number} | {'x' * 200}"] * _ROUND
            wire.say(*plain, last.replace(" | ", "; persistent:true; receipt:r | "))
        for wire in wires:
            frames = [wire.next() for _ in range(_ROUND + 1)]
            acks = [f"ACK id:{frame[1]['ack']}" for frame in frames if frame and frame[0] == "MESSAGE"]
            assert len(acks) == _ROUND
            wire.say(*acks)
        rounds += 1
        peak_bytes = max(peak_bytes, watched.memory_info().rss)
    return rounds, peak_bytes


def test_memory_stays_flat_under_a_thousand_idle_and_a_hundred_busy_connections(broker: Program) -> None:
    with ExitStack() as stack:
        idle = [stack.enter_context(closing(broker.connect())) for _ in range(_IDLE)]
        busy = [stack.enter_context(closing(broker.connect())) for _ in range(_BUSY)]
        for number, wire in enumerate(busy):
            wire.say(f"SUBSCRIBE id:s; destination:/queue/{number}; ack:client-individual")
        watched = psutil.Process(broker.process.pid)
        # Not counted: allocator and caches grow to what the load needs.
        work(busy, _SECONDS / 4, watched)

        first_rounds, first_bytes = work(busy, _SECONDS * 3 / 8, watched)
        second_rounds, second_bytes = work(busy, _SECONDS * 3 / 8, watched)

        per_round = _BUSY * _ROUND
        print(
            f"{first_rounds * per_round} messages, then {second_rounds * per_round}:"
            f" {first_bytes >> 20} and {second_bytes >> 20} MiB at most"
        )
        assert second_bytes < first_bytes + _NOISE_BYTES
        assert all(wire.is_in_order() for wire in idle)
