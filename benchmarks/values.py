"""Last values under load: deliveries to a hundred subscribers, and the snapshot of an eager one."""

from __future__ import annotations

import select
import selectors
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from statistics import median
from uuid import uuid4

from benchmarks.peers import Broker
from benchmarks.publish import PER_BLOCK, Publisher, block, stored
from benchmarks.stream import Clock, Measurement
from benchmarks.wire import BODY, AckingLink, Link, ack_of, message, subscribe

KEYS = 100_000
_GROUPS = 100
_PER_GROUP = KEYS // _GROUPS
# Ten of each group's keys change, over and over in turn, each time to another version.
_BUSY = 10 * _GROUPS
# What is told late by a whole round of versions would pass for right: no window here is that large.
_VERSIONS = 64
_WARM_UP_SECONDS = 0.5
_PATIENCE_SECONDS = 20.0
# The slow reader takes some dozen messages, twice a second.
_SLOW_EVERY_SECONDS = 0.5
_SLOW_BYTES = 4_096
# The slow reader is not waited for, only looked at this often.
_LOOK_EVERY_SECONDS = 0.01

_THE_END = b"the end"


def updates(broker: Broker, seconds: float, *, each_its_part: bool) -> Measurement:
    """Change values as fast as the broker takes it, before a hundred subscribers, one of them slow.

    Args:
        each_its_part: each subscriber watches a hundredth of the keys; otherwise each watches all.

    Raises:
        ConnectionError: the broker rejected a change, or a reader did not receive the last values.
    """
    name = f"X/bench-{uuid4().hex[:12]}"
    patterns = [f"{name}.{group}.*" if each_its_part else f"{name}.*" for group in range(_GROUPS)]
    keys = [f"{name}.{group}.{n}" for n in range(_PER_GROUP) for group in range(_GROUPS)]
    # The slow one watches the last group, or all.
    seen = range(_GROUPS - 1, _BUSY, _GROUPS) if each_its_part else range(_BUSY)
    with stored(keys, broker), ExitStack() as stack:
        audience = _Audience(stack, broker, patterns, keys[:_BUSY])
        audience.run(time.perf_counter() + _WARM_UP_SECONDS)
        clock, before = Clock(broker.pid), audience.published
        audience.run(time.perf_counter() + seconds)
        measured = clock.measured(audience.published - before)
        audience.finish(keys[-_GROUPS:], seen)
        share = _GROUPS if each_its_part else 1
        received, slow_received = audience.received(share)
    return replace(measured, received=received, slow_received=slow_received)


def snapshot(broker: Broker, seconds: float, *, ack: str) -> Measurement:
    """Subscribe eagerly to a hundred thousand values, again and again; counts values shown."""
    name = f"X/bench-{uuid4().hex[:12]}"
    with stored([f"{name}-{n}" for n in range(KEYS)], broker):
        clock, end = Clock(broker.pid), time.perf_counter() + seconds
        taken = [take_snapshot(broker, f"{name}-*", ack)]
        while time.perf_counter() < end:
            taken.append(take_snapshot(broker, f"{name}-*", ack))
        measured = clock.measured(KEYS * len(taken))
    return replace(measured, took=median(seconds for seconds, _ in taken), size_bytes=taken[0][1])


def take_snapshot(broker: Broker, pattern: str, ack: str) -> tuple[float, int]:
    """How long it took from SUBSCRIBE to the last of all `KEYS`, and how many bytes came.

    Raises:
        ConnectionError: that was not the end of the snapshot.
    """
    link = AckingLink(broker) if ack == "client" else Link(broker)
    start = time.perf_counter()
    link.socket.sendall(subscribe(pattern, ack, "eager:true\nsnapshot:true\n"))
    missing = KEYS + 1  # the RECEIPT is first
    while missing > 0:
        missing -= link.take()
    took = time.perf_counter() - start
    if missing or b"snapshot:end" not in link.last:
        raise ConnectionError(f"the snapshot does not end where it should: {link.last!r}")
    link.disconnect()
    return took, link.size_bytes


class _SlowReader(Link):
    """Takes little at a time, ACKs it, and remembers the last value of each key."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.values: dict[bytes, bytes] = {}
        self._rest = b""

    def take(self) -> int:
        """Read a little, and ACK the messages that ended in it."""
        *frames, self._rest = (self._rest + self.socket.recv(_SLOW_BYTES)).split(b"\0")
        for frame in frames:
            head, _, body = frame.partition(b"\n\n")
            self.values[head.partition(b"\ndestination:")[2].partition(b"\n")[0]] = body
        if frames:
            self.socket.sendall(ack_of(frames[-1]))
        return len(frames)


class _Audience:
    """Who changes the busy keys, and a reader for each pattern, the last of them slow.

    What is opened here is closed by the caller's `stack`.
    """

    def __init__(
        self, stack: ExitStack, broker: Broker, patterns: Sequence[str], busy: Sequence[str]
    ) -> None:
        self._publisher = stack.enter_context(Publisher(broker))
        self._selector = stack.enter_context(selectors.DefaultSelector())
        self._selector.register(self._publisher, selectors.EVENT_READ)
        self._busy = busy
        self._blocks = _blocks(busy)
        self._sent = 0
        self._counts: dict[Link, int] = {}
        self._slow = _SlowReader(broker)
        stack.callback(self._slow.close)
        self._slow.subscribe(patterns[-1], "client")
        self._slow_count = 0
        self._slow_due = 0.0
        self._slow_every = _SLOW_EVERY_SECONDS
        for pattern in patterns[:-1]:
            link = Link(broker)
            stack.callback(link.close)
            link.subscribe(pattern)
            self._counts[link] = 0
            self._selector.register(link, selectors.EVENT_READ)
        # Readers that have not received the last change.
        self._behind = set(self._counts)

    @property
    def published(self) -> int:
        """Changes that the broker has receipted."""
        return self._publisher.published

    def received(self, share: int) -> tuple[float, float]:
        """How many messages a quick reader and the slow one had for each change that concerned them."""
        due = self._sent / share
        return sum(self._counts.values()) / len(self._counts) / due, self._slow_count / due

    def run(self, end: float) -> None:
        """Change values until then."""
        while time.perf_counter() < end:
            while self._publisher.is_open:
                self._publisher.send(self._blocks[self._sent // PER_BLOCK % len(self._blocks)])
                self._sent += PER_BLOCK
            self._turn()

    def finish(self, last_keys: Sequence[str], seen: Sequence[int]) -> None:
        """Change the last keys once, and check that all readers received the last values.

        Args:
            seen: indices of the busy keys that the slow reader watches.
        """
        expected = {self._busy[index].encode(): self._last_version(index) for index in seen}
        self._publisher.send(block([message(key, body=_THE_END) for key in last_keys]), len(last_keys))
        self._slow_due = self._slow_every = 0.0
        deadline = time.perf_counter() + _PATIENCE_SECONDS
        while self._behind or not expected.items() <= self._slow.values.items():
            if time.perf_counter() > deadline:
                wrong = sum(self._slow.values.get(key) != body for key, body in expected.items())
                raise ConnectionError(f"{len(self._behind)} readers are behind, {wrong} values are wrong")
            self._turn()
        self._publisher.settle()

    def _last_version(self, index: int) -> bytes:
        return _version((self._sent - 1 - index) // len(self._busy))

    def _turn(self) -> None:
        for key, _ in self._selector.select(_LOOK_EVERY_SECONDS):
            if isinstance(key.fileobj, Link):
                self._counts[key.fileobj] += key.fileobj.take()
                if _THE_END in key.fileobj.last:
                    self._behind.discard(key.fileobj)
            else:
                self._publisher.take()
        if (now := time.perf_counter()) >= self._slow_due:
            self._slow_due = now + self._slow_every
            if select.select([self._slow], [], [], 0)[0]:
                self._slow_count += self._slow.take()


def _blocks(busy: Sequence[str]) -> list[bytes]:
    """Every version of every key, each version of all before the next of any."""
    frames = [message(key, body=_version(number)) for number in range(_VERSIONS) for key in busy]
    return [block(frames[at : at + PER_BLOCK]) for at in range(0, len(frames), PER_BLOCK)]


def _version(number: int) -> bytes:
    return b"%03d" % (number % _VERSIONS) + BODY[3:]
