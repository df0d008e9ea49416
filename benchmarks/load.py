"""The rows that need no second program: throughput through queues and topics, and connects."""

from __future__ import annotations

import socket
import time
from uuid import uuid4

from benchmarks.peers import Broker
from benchmarks.stream import Measurement, Stream
from benchmarks.wire import BODY, AckingLink, Link, connect_frame

_SUBSCRIBERS = 10
_TIMEOUT = 20.0


def queue_auto(broker: Broker, seconds: float, *, head: str = "") -> Measurement:
    """Send to a queue and consume from it at the same time, `ack:auto`; `head` as `Stream` takes it."""
    with Stream(broker, _fresh("/queue/"), head=head) as stream:
        stream.add_consumer(Link(broker))
        return stream.measure(seconds)


def queue_between(broker: Broker, seconds: float, *, pairs: int, body: bytes = BODY) -> Measurement:
    """This many publishers and consumers of one queue, each on a connection of its own, `ack:auto`."""
    with Stream(broker, _fresh("/queue/"), senders=pairs, body=body) as stream:
        for _ in range(pairs):
            stream.add_consumer(Link(broker))
        return stream.measure(seconds)


def queue_client(broker: Broker, seconds: float) -> Measurement:
    """The same with `ack:client` and one cumulative ACK for each hundred messages."""
    with Stream(broker, _fresh("/queue/")) as stream:
        consumer = AckingLink(broker)
        stream.add_consumer(consumer, ack="client")
        measured = stream.measure(seconds)
        consumer.acknowledge_rest()
        return measured


def queue_receipts(broker: Broker, seconds: float) -> Measurement:
    """The same with `ack:auto` and a receipt of its own for every SEND, pipelined."""
    with Stream(broker, _fresh("/queue/"), receipt_every=1) as stream:
        stream.add_consumer(Link(broker))
        return stream.measure(seconds)


def fan_out(broker: Broker, seconds: float, *, head: str = "") -> Measurement:
    """Send to a topic with ten subscribers, each on a connection of its own; counts deliveries."""
    with Stream(broker, _fresh("/topic/"), head=head) as stream:
        for _ in range(_SUBSCRIBERS):
            stream.add_consumer(Link(broker))
        return stream.measure(seconds)


def connects(broker: Broker, seconds: float) -> Measurement:
    """Connect, CONNECT, CONNECTED, DISCONNECT, its RECEIPT, close: one after the other."""
    hello = connect_frame(broker)
    _connect_once(broker, hello)
    used, start, count = time.process_time(), time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < seconds:
        _connect_once(broker, hello)
        count += 1
    return Measurement(count / elapsed, busy=(time.process_time() - used) / elapsed)


def _connect_once(broker: Broker, hello: bytes) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=_TIMEOUT) as link:
        link.sendall(hello)
        _expect(link, b"CONNECTED\n")
        link.sendall(b"DISCONNECT\nreceipt:bye\n\n\0")
        _expect(link, b"RECEIPT\n")


def _expect(link: socket.socket, command: bytes) -> None:
    answer = b""
    while b"\0" not in answer:
        data = link.recv(4096)
        answer += data
        if not data:
            break
    if not answer.lstrip(b"\n").startswith(command):
        raise ConnectionError(f"expected {command!r}, the broker sent {answer[:300]!r}")


def _fresh(prefix: str) -> str:
    # A new name for each measurement: what a broker kept of the last one cannot weigh on this one.
    return f"{prefix}bench-{uuid4().hex[:12]}"
