"""Raw request/reply by stomp.py, a client that does not set TCP_NODELAY.

Each reply is settled by an ACK. No broker replies to that, and the next request follows it at once: the
client's kernel holds the request back until the broker's has acknowledged the ACK.
"""

from __future__ import annotations

import time
from queue import SimpleQueue
from uuid import uuid4

import stomp  # type: ignore[import-untyped] # it has no types

from benchmarks.echo import echo_peer, summary
from benchmarks.peers import Broker
from benchmarks.stream import Measurement
from benchmarks.wire import BODY

_WARM_UP_REQUESTS = 20


class _Replies:
    """Hands the replies to the thread that asks."""

    def __init__(self) -> None:
        self.messages: SimpleQueue[stomp.utils.Frame] = SimpleQueue()
        self.receipts: SimpleQueue[stomp.utils.Frame] = SimpleQueue()

    def on_message(self, frame: stomp.utils.Frame) -> None:
        self.messages.put(frame)

    def on_receipt(self, frame: stomp.utils.Frame) -> None:
        self.receipts.put(frame)


def request_one(broker: Broker, seconds: float) -> Measurement:
    """Request and reply, one at a time, with an ACK for each reply."""
    name = uuid4().hex[:12]
    requests, replies = f"/queue/bench-{name}-requests", f"/queue/bench-{name}-replies"
    link = stomp.Connection12([("127.0.0.1", broker.port)], vhost=broker.host)
    listener = _Replies()
    link.set_listener("", listener)
    link.connect(broker.login or None, broker.passcode or None, wait=True)
    link.subscribe(replies, "1", ack="client-individual", headers={"receipt": "sub"})
    listener.receipts.get(timeout=10)
    with echo_peer(broker, requests, replies):
        for _ in range(_WARM_UP_REQUESTS):
            _ask(link, listener, requests)
        latencies: list[float] = []
        start = now = time.perf_counter()
        while now < start + seconds:
            before = now
            _ask(link, listener, requests)
            now = time.perf_counter()
            latencies.append(now - before)
        elapsed = now - start
    link.disconnect()
    return summary(latencies, elapsed)


def _ask(link: stomp.Connection12, listener: _Replies, queue: str) -> None:
    link.send(queue, BODY)
    link.ack(listener.messages.get(timeout=10).headers["ack"])
