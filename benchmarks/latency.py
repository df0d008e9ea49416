"""How long a delivery takes at a given rate: an open loop, which sends at its times whatever the broker does.

A closed loop, which waits for the broker before it sends more, hides exactly the delays that a user sees.
Here the n-th message is due at n divided by the rate, and its latency counts from then on, also where the
sender was held up. A queue is FIFO and has one consumer, so the n-th delivery is that of the n-th message.
"""

from __future__ import annotations

import gc
import select
import time
from array import array
from dataclasses import replace
from uuid import uuid4

from benchmarks.echo import summary
from benchmarks.peers import Broker
from benchmarks.stream import Clock, Measurement
from benchmarks.wire import Link, message

_WARM_UP_SECONDS = 0.5
_DRAIN_SECONDS = 20.0


def deliveries(broker: Broker, seconds: float, *, rate: int) -> Measurement:
    """Send this many messages a second through a queue; percentiles of the time until they are delivered.

    Raises:
        ConnectionError: the broker lost messages, or cannot keep up by far.
    """
    queue = f"/queue/bench-{uuid4().hex[:12]}"
    sender, consumer = Link(broker), Link(broker)
    consumer.subscribe(queue)
    # A collection in the load would be taken for a delay of the broker.
    gc.disable()
    try:
        _latencies(sender, consumer, message(queue), rate, round(rate * _WARM_UP_SECONDS))
        clock = Clock(broker.pid)
        taken = _latencies(sender, consumer, message(queue), rate, round(rate * seconds))
        measured = clock.measured(len(taken))
    finally:
        gc.enable()
    sender.disconnect()
    consumer.disconnect()
    ordered = sorted(taken)
    found = summary(ordered, len(taken) / measured.rate)
    return replace(measured, p50=found.p50, p99=found.p99, p999=ordered[int(len(ordered) * 0.999)])


def _latencies(sender: Link, consumer: Link, frame: bytes, rate: int, count: int) -> array[float]:
    """Send that many messages, each at its time, and take them."""
    latencies = array("d")
    start, sent = time.perf_counter(), 0
    end = start + count / rate + _DRAIN_SECONDS
    # It never sleeps: a timer of the system is later than a delivery takes.
    while len(latencies) < count:
        now = time.perf_counter()
        due = min(count, int((now - start) * rate) + 1)
        if due > sent:
            sender.socket.sendall(frame * (due - sent))
            sent = due
        if select.select([consumer], [], [], 0)[0]:
            arrived = consumer.take()
            now = time.perf_counter() - start
            first = len(latencies)
            latencies.extend([now - number / rate for number in range(first, first + arrived)])
        if now > end:
            raise ConnectionError(f"{count - len(latencies)} of {count} messages were not delivered in time")
    return latencies
