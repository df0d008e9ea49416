"""Latencies of deliveries at given rates."""

from __future__ import annotations

from functools import partial

from benchmarks import latency
from benchmarks.contestants import stomp
from benchmarks.row import Aim, Row

# What we aim at for 99 of a hundred, in seconds, by messages a second.
_P99_SECONDS = {1_000: 0.0005, 10_000: 0.0007, 50_000: 0.001, 100_000: 0.002}
# A rate that the other brokers carry too.
_COMPARED_RATE = 10_000


def _row(rate: int) -> Row:
    contestants = stomp(partial(latency.deliveries, rate=rate))
    return Row(
        f"latency-{rate // 1_000}k",
        f"Latency of a delivery at {rate:,} messages/s",
        "From the moment at which a message is due to be sent to a queue until its consumer has it;"
        " the sender does not wait for the broker.",
        "messages",
        contestants if rate <= _COMPARED_RATE else [one for one in contestants if one.is_ours],
        by_latency=True,
        aims=[Aim("Nebula", "p99", _P99_SECONDS[rate])],
    )


ROWS = tuple(_row(rate) for rate in _P99_SECONDS)
