"""What waits: on disk, a million deep, in ten thousand queues, and at the next start.

The others' queues are durable, and each of the three syncs its files before it says RECEIPT: strace shows
`fdatasync` of SQLite's log, `fsync` of RabbitMQ's queue index and `fsync` of KahaDB's journal.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import psutil

from benchmarks.own import nebula_broker
from benchmarks.peers import Broker
from benchmarks.publish import PER_BLOCK, Publisher
from benchmarks.stream import Measurement, Stream
from benchmarks.wire import AckingLink, Link, message, subscribe

DEEP = 1_000_000
QUEUES = 10_000
# A second's fraction long, and little enough for every broker to keep it in memory.
_SHALLOW = 16 * PER_BLOCK
_PERSISTENT = "persistent:true\n"


def sends(broker: Broker, seconds: float, *, receipt_every: int = 1) -> Measurement:
    """Send persistent messages to a queue without consumers; counts those that were receipted."""
    queue = _fresh()
    with Stream(broker, queue, receipt_every=receipt_every, headers=_PERSISTENT) as stream:
        measured = stream.measure(seconds)
    drain(broker, queue, stream.sent)
    return measured


def sends_and_acks(broker: Broker, seconds: float, *, receipt_every: int = 1) -> Measurement:
    """Send persistent messages, and consume them meanwhile with a cumulative ACK for each hundred."""
    with Stream(broker, _fresh(), receipt_every=receipt_every, headers=_PERSISTENT) as stream:
        consumer = AckingLink(broker)
        stream.add_consumer(consumer, ack="client")
        measured = stream.measure(seconds)
        consumer.acknowledge_rest()
        return measured


def sends_once_and_acks(broker: Broker, seconds: float, *, ack: str = "client") -> Measurement:
    """The same with a `dedup-id` of its own for each."""
    with Stream(broker, _fresh(), headers=_PERSISTENT, has_ids=True) as stream:
        consumer = AckingLink(broker) if ack == "client" else Link(broker)
        stream.add_consumer(consumer, ack=ack)
        measured = stream.measure(seconds)
        if isinstance(consumer, AckingLink):
            consumer.acknowledge_rest()
        return measured


def deep(broker: Broker, seconds: float, *, depth: int) -> Measurement:
    """Send to a queue in which this many messages wait, then take out everything."""
    queue = _fresh()
    with _filling(broker, queue) as stream:
        stream.fill(depth)
        resident = _resident_bytes(broker)
        measured = stream.measure(seconds)
    took = drain(broker, queue, stream.sent)
    return replace(measured, drained=stream.sent / took, resident_bytes=resident)


def shallow(broker: Broker, seconds: float) -> Measurement:
    """Send to a queue that is empty at first; then put a little into another and take it out, repeatedly."""
    measured = sends(broker, seconds, receipt_every=PER_BLOCK)
    queue = _fresh()
    draining = 0.0
    with _filling(broker, queue) as stream:
        while draining < seconds / 4:
            stream.fill(_SHALLOW)
            draining += drain(broker, queue, _SHALLOW)
    return replace(measured, drained=stream.sent / draining)


def drain(broker: Broker, queue: str, count: int) -> float:
    """Take this many persistent messages out of a queue; the seconds from SUBSCRIBE until they are gone.

    That is when a persistent message that was sent after the last of them came has its RECEIPT: without it a
    broker with little to take out would be done before it has told its disk anything.

    Raises:
        ConnectionError: there were others.
    """
    took, surplus = _take(broker, queue, count)
    if surplus:
        raise ConnectionError(f"{queue}: {surplus} messages more than the {count} that were sent")
    return took


def _take(broker: Broker, queue: str, count: int) -> tuple[float, int]:
    """Take at least this many; the seconds from SUBSCRIBE until they are gone, and how many more came."""
    link = Link(broker)
    start = time.perf_counter()
    link.socket.sendall(subscribe(queue))
    missing = count + 1  # the RECEIPT
    while missing > 0:
        missing -= link.take()
    missing += 1
    link.socket.sendall(message(f"{queue}-end", f"{_PERSISTENT}receipt:end\n"))
    while missing > 0:
        missing -= link.take()
    took = time.perf_counter() - start
    link.close() if missing else link.disconnect()
    return took, -missing


def start_up(broker: Broker, seconds: float, *, depth: int) -> Measurement:  # noqa: ARG001
    """Start Nebula's broker with this many messages in a queue on disk, until it listens.

    It is another one than `broker`, which has other things to do than to be ended.
    """
    with TemporaryDirectory(prefix="nebula-") as folder:
        data, queue = Path(folder, "data"), _fresh()
        with nebula_broker(store="sqlite", data=data) as first, _filling(first, queue) as stream:
            stream.fill(depth)
        start = time.perf_counter()
        with nebula_broker(store="sqlite", data=data) as second:
            took = time.perf_counter() - start
            resident = _resident_bytes(second)
            _take(second, queue, _SHALLOW)  # they are there
    return Measurement(depth / took, took=took, resident_bytes=resident)


def many_queues(broker: Broker, seconds: float) -> Measurement:  # noqa: ARG001
    """Send a message to each of ten thousand queues, on a broker that had none; what it grew by."""
    frames = [message(f"{_fresh()}-{n}") for n in range(QUEUES)]
    with nebula_broker() as fresh, Publisher(fresh) as publisher:
        before, start = _resident_bytes(fresh), time.perf_counter()
        publisher.send_all(frames)
        took = time.perf_counter() - start
        return Measurement(QUEUES / took, resident_bytes=_resident_bytes(fresh) - before)


def _filling(broker: Broker, queue: str) -> Stream:
    return Stream(broker, queue, receipt_every=PER_BLOCK, headers=_PERSISTENT)


def _resident_bytes(broker: Broker) -> int:
    return int(psutil.Process(broker.pid).memory_info().rss)


def _fresh() -> str:
    return f"/queue/bench-{uuid4().hex[:12]}"
