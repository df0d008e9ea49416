"""How fast a broker takes messages, with a crowd of other destinations, or of globs.

Every row here publishes to one destination. What differs is what else there is, and should not matter.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import cycle
from uuid import uuid4

from benchmarks.peers import Broker
from benchmarks.stream import Clock, Measurement, Stream
from benchmarks.wire import Link, message, subscribe

PER_BLOCK = 256
# How many blocks may be under way: about 300 KB, so that the broker never waits for us.
_BLOCKS_UNDER_WAY = 4
_WARM_UP_SECONDS = 0.3
# One connection may not have them all: our limit is a thousand.
_PER_LINK = 1_000
_CROWD = 10_000


class Publisher:
    """Sends blocks of messages, each with a RECEIPT at its end, and counts what was receipted.

    A context manager: leaving it says DISCONNECT.
    """

    def __init__(self, broker: Broker) -> None:
        self._link = Link(broker)
        self._pid = broker.pid
        self._sizes: deque[int] = deque()
        self.published = 0

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._link.disconnect() if kind is None else self._link.close()

    def fileno(self) -> int:
        """So that a selector takes it: it is readable when a block was receipted."""
        return self._link.fileno()

    @property
    def is_open(self) -> bool:
        """Whether another block may be sent."""
        return len(self._sizes) < _BLOCKS_UNDER_WAY

    def send(self, block: bytes, count: int = PER_BLOCK) -> None:
        """Send a block of this many messages."""
        self._link.socket.sendall(block)
        self._sizes.append(count)

    def take(self) -> None:
        """Read RECEIPTs once. Raises ConnectionError if one says that its message was rejected."""
        for _ in range(self._link.take()):
            self.published += self._sizes.popleft()
        if b"disposition:rejected" in self._link.last:
            raise ConnectionError(f"the broker sent {self._link.last!r}")

    def settle(self) -> None:
        """Wait until all was receipted."""
        while self._sizes:
            self.take()

    def send_all(self, frames: Sequence[bytes]) -> None:
        """Send single frames without receipts as blocks, and wait until all was receipted."""
        for start in range(0, len(frames), PER_BLOCK):
            part = frames[start : start + PER_BLOCK]
            while not self.is_open:
                self.take()
            self.send(block(part), len(part))
        self.settle()

    def measure(self, blocks: Sequence[bytes], seconds: float) -> Measurement:
        """Warm up, then send the blocks again and again for this time."""
        turn = cycle(blocks)
        self._run(turn, time.perf_counter() + _WARM_UP_SECONDS)
        clock, before = Clock(self._pid), self.published
        self._run(turn, time.perf_counter() + seconds)
        measured = clock.measured(self.published - before)
        self.settle()
        return measured

    def _run(self, blocks: Iterator[bytes], end: float) -> None:
        while time.perf_counter() < end:
            while self.is_open:
                self.send(next(blocks))
            self.take()


def block(frames: Sequence[bytes]) -> bytes:
    """Frames as one text, whose last asks for a receipt."""
    command, _, rest = frames[-1].partition(b"\n")
    return b"".join([*frames[:-1], command, b"\nreceipt:block\n", rest])


def beside_globs(broker: Broker, seconds: float, *, crowd: str) -> Measurement:
    """Publish to a last-value destination without readers; `crowd` is `*`, a name, or empty for none."""
    name = uuid4().hex[:12]
    with _crowd(broker, f"X/bench-{name}-", crowd), Publisher(broker) as publisher:
        return publisher.measure([block([message(f"X/bench-{name}-here")] * PER_BLOCK)], seconds)


def beside_topic_globs(broker: Broker, seconds: float, *, crowd: str) -> Measurement:
    """The same on a topic with one subscriber, which gets all messages."""
    name = uuid4().hex[:12]
    with _crowd(broker, f"/topic/bench-{name}-", crowd), Stream(broker, f"/topic/bench-{name}.x") as stream:
        stream.add_consumer(Link(broker))
        return stream.measure(seconds)


def beside_values(broker: Broker, seconds: float, *, others: int) -> Measurement:
    """Publish to a last-value destination among this many others, each with a value."""
    name = uuid4().hex[:12]
    with stored([f"X/bench-{name}-{n}" for n in range(others)], broker), Publisher(broker) as publisher:
        return publisher.measure([block([message(f"X/bench-{name}-here")] * PER_BLOCK)], seconds)


@contextmanager
def stored(destinations: Sequence[str], broker: Broker) -> Iterator[None]:
    """Give each a value of 200 bytes, and take it away at the end."""
    with Publisher(broker) as publisher:
        publisher.send_all([message(each) for each in destinations])
    try:
        yield
    finally:
        # A broker that has failed has no values left: its failure is reported.
        with suppress(OSError), Publisher(broker) as publisher:
            publisher.send_all([message(each, body=b"") for each in destinations])


@contextmanager
def _crowd(broker: Broker, prefix: str, last: str) -> Iterator[None]:
    """Subscriptions to `PREFIX<n>.LAST`, without senders; none where `last` is empty."""
    with ExitStack() as stack:
        for start in range(0, _CROWD if last else 0, _PER_LINK):
            link = Link(broker)
            stack.callback(link.close)
            numbers = range(start, start + _PER_LINK)
            link.socket.sendall(b"".join(subscribe(f"{prefix}{n}.{last}", number=n) for n in numbers))
            missing = _PER_LINK
            while missing > 0:
                missing -= link.take()
            # A broker that takes long to forget them shall not do it while others are measured.
            stack.callback(link.disconnect)
        yield
