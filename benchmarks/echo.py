"""Raw request/reply: an echo peer in a process of its own, and the load that asks it.

`python -m benchmarks.echo BROKER-AS-JSON REQUESTS REPLIES HEAD` is the peer: for each message on the queue
REQUESTS it sends one to the queue REPLIES, with the lines HEAD. Queues are FIFO and each has one consumer,
so the n-th reply answers the n-th request and nothing has to be parsed to match them.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from benchmarks.heads import Frames
from benchmarks.peers import Broker
from benchmarks.processes import running, wait_until
from benchmarks.stream import Measurement
from benchmarks.wire import Link

_WARM_UP_SECONDS = 0.3


def request_one(broker: Broker, seconds: float) -> Measurement:
    """Raw request and reply, one at a time."""
    return _request_reply(broker, seconds, in_flight=1)


def request_in_two_writes(broker: Broker, seconds: float) -> Measurement:
    """One at a time, by a client without TCP_NODELAY that writes head and body of a frame by themselves.

    Its system holds the second write back until the broker's has acknowledged the first.
    """
    name = uuid4().hex[:12]
    requests, replies = f"/queue/bench-{name}-requests", f"/queue/bench-{name}-replies"
    link = Link(broker)
    link.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
    link.subscribe(replies)
    head, _, body = Frames(requests).take(1).partition(b"\n\n")
    latencies = []
    with echo_peer(broker, requests, replies):
        start = time.perf_counter()
        while (begun := time.perf_counter()) < start + seconds:
            link.socket.sendall(head + b"\n\n")
            link.socket.sendall(body)
            while not link.take():
                pass
            latencies.append(time.perf_counter() - begun)
        measured = summary(latencies, time.perf_counter() - start)
        link.disconnect()
    return measured


def request_many(broker: Broker, seconds: float, *, head: str = "") -> Measurement:
    """Raw request and reply, 64 in flight on one connection; requests and replies with this head."""
    return _request_reply(broker, seconds, in_flight=64, head=head)


def _request_reply(broker: Broker, seconds: float, *, in_flight: int, head: str = "") -> Measurement:
    name = uuid4().hex[:12]
    requests, replies = f"/queue/bench-{name}-requests", f"/queue/bench-{name}-replies"
    link = Link(broker)
    link.subscribe(replies)
    with echo_peer(broker, requests, replies, head):
        measured = ask(link, Frames(requests, head), in_flight, seconds)
        link.disconnect()
    return measured


@contextmanager
def echo_peer(broker: Broker, requests: str, replies: str, head: str = "") -> Iterator[None]:
    """Run the echo peer; it is subscribed when this yields, and gone when it ends."""
    program = [sys.executable, "-m", "benchmarks.echo", json.dumps(asdict(broker)), requests, replies, head]
    with TemporaryDirectory(prefix="nebula-") as folder:
        log = Path(folder, "echo.log")
        with running(program, log=log) as process:
            wait_until(lambda: "ready" in log.read_text(), process, log=log)
            yield


def ask(link: Link, requests: Frames, in_flight: int, seconds: float) -> Measurement:
    """Keep a number of requests under way for some time; rate and latencies of the replies in that time."""
    link.socket.sendall(requests.take(in_flight))
    sent = deque([time.perf_counter()] * in_flight)
    _ask_until(link, requests, sent, [], time.perf_counter() + _WARM_UP_SECONDS)
    latencies: list[float] = []
    used, start = time.process_time(), time.perf_counter()
    _ask_until(link, requests, sent, latencies, start + seconds)
    elapsed, used = time.perf_counter() - start, time.process_time() - used
    while sent:
        for _ in range(link.take()):
            sent.popleft()
    return summary(latencies, elapsed, busy=used / elapsed)


def _ask_until(link: Link, requests: Frames, sent: deque[float], latencies: list[float], end: float) -> None:
    now = 0.0
    while now < end:
        count = link.take()
        now = time.perf_counter()
        latencies.extend([now - sent.popleft() for _ in range(count)])
        link.socket.sendall(requests.take(count))
        sent.extend([now] * count)


def summary(latencies: list[float], elapsed: float, *, busy: float | None = None) -> Measurement:
    """Rate and percentiles of what was answered.

    Raises:
        ConnectionError: nothing was.
    """
    if not latencies:
        raise ConnectionError(f"nothing was answered in {elapsed:.1f} s")
    ordered = sorted(latencies)
    p50, p99 = (ordered[int(len(ordered) * part)] for part in (0.5, 0.99))
    return Measurement(len(ordered) / elapsed, p50=p50, p99=p99, busy=busy)


def _echo(broker: Broker, requests: str, replies: str, head: str) -> None:
    link = Link(broker)
    link.subscribe(requests)
    # The peer may be idle for as long as its parent likes.
    link.socket.settimeout(None)
    print("ready", flush=True)
    frames = Frames(replies, head)
    while True:
        link.socket.sendall(frames.take(link.take()))


if __name__ == "__main__":
    _echo(Broker(**json.loads(sys.argv[1])), *sys.argv[2:])
