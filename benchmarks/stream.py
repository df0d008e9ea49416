"""One sender and its consumers around one selector: what the throughput rows have in common."""

from __future__ import annotations

import selectors
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, cycle, repeat
from typing import cast

from benchmarks.heads import Frames
from benchmarks.peers import Broker
from benchmarks.processes import cpu_seconds
from benchmarks.wire import BODY, Link, message

# How far the sender may be ahead of the slowest consumer, in messages. It keeps a queue from growing without
# end on the brokers that would let it, and is deep enough that no broker waits for us.
_WINDOW = 8192
_PER_BLOCK = 256
_BLOCKS_UNDER_WAY = _WINDOW // _PER_BLOCK
# Receipt ids repeat after this many, far more than can be under way.
_RECEIPT_BLOCKS = 4 * _WINDOW // _PER_BLOCK
_WARM_UP_SECONDS = 0.5
_SILENCE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one contestant did in one row of one round.

    Attributes:
        rate: messages, deliveries, requests or connects per second.
        p50: the median latency in seconds of a request or of a delivery, where the row measures it; `p99` and
            `p999` likewise.
        busy: the part of a core that the load itself needed; near 1 the load is the limit, not the broker.
        cost: CPU seconds of the broker for each of what `rate` counts.
        received: messages that a reader had for each change of a value that it watches; below 1 where the
            broker skipped what had changed again.
        slow_received: the same of a reader that is slow on purpose.
        took: seconds of the one thing that the row does.
        size_bytes: bytes that it brought.
        drained: messages a second that were taken out again, where `rate` counts those put in.
        resident_bytes: memory of the broker, or what it grew by.
        others: messages a second that others had meanwhile.
        more: how many seconds longer it took than the same thing without us, which was done in turns with
            it: the median of the differences; `more_p90` likewise.
    """

    rate: float
    p50: float | None = None
    p99: float | None = None
    p999: float | None = None
    busy: float | None = None
    cost: float | None = None
    received: float | None = None
    slow_received: float | None = None
    took: float | None = None
    size_bytes: float | None = None
    drained: float | None = None
    resident_bytes: float | None = None
    others: float | None = None
    more: float | None = None
    more_p90: float | None = None


class Clock:
    """Starts to run when it is made: the time, the work of the load, and that of the broker `pid`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._broker = cpu_seconds(pid)
        self._load = time.process_time()
        self._start = time.perf_counter()

    def measured(self, count: int) -> Measurement:
        """The rate of this many messages, or of whatever the rate counts, by now."""
        elapsed = time.perf_counter() - self._start
        load, broker = time.process_time() - self._load, cpu_seconds(self._pid) - self._broker
        cost = broker / count if count else None
        return Measurement(count / elapsed, busy=load / elapsed, cost=cost)


class Stream:
    """Sends to one destination as fast as its consumers, and the RECEIPTs if asked for, come back.

    Without a consumer it is the RECEIPTs that are counted, and the messages stay where they are.

    A context manager: leaving it says DISCONNECT on every connection.

    Args:
        receipt_every: each so-manieth SEND asks for a RECEIPT, 256 at most; 0: none does.
        headers: whole lines of each SEND.
        has_ids: each SEND has a `dedup-id` that no other one has, and asks for a RECEIPT.
        head: lines with marks, of which no two SENDs have the same: see `benchmarks.heads`.
        body: of each SEND. Of large ones fewer are under way, about as many bytes.
        senders: connections that send; more than one only without receipts.
    """

    def __init__(
        self,
        broker: Broker,
        destination: str,
        *,
        receipt_every: int = 0,
        headers: str = "",
        has_ids: bool = False,
        head: str = "",
        body: bytes = BODY,
        senders: int = 1,
    ) -> None:
        receipt_every = 1 if has_ids else receipt_every
        assert senders == 1 or not receipt_every
        self._destination = destination
        self._pid = broker.pid
        self._selector = selectors.DefaultSelector()
        self._links: list[Link] = []
        self._arrived: list[int] = []
        # What is half written on a connection.
        self._rests = {Link(broker): memoryview(b"") for _ in range(senders)}
        # Without receipts nothing comes back to a sender, but an ERROR might: it is read and not counted.
        for link in self._rests:
            self._watch(link, counted=receipt_every > 0)
        self._receipt_every = receipt_every
        # A topic has a copy for each consumer, of a queue they have one together.
        self._is_shared = destination.startswith("/queue/")
        self._per_block = max(1, min(_PER_BLOCK, _PER_BLOCK * len(BODY) // len(body)))
        if head:
            self._blocks = _differing_blocks(Frames(destination, head))
        elif has_ids:
            self._blocks = _blocks_with_ids(destination, headers)
        elif receipt_every:
            self._blocks = cycle(_blocks_with_receipts(destination, headers, receipt_every))
        else:
            self._blocks = repeat(message(destination, headers, body) * self._per_block)
        self._sent = 0
        self._is_writing = False
        self._may_begin = True

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._selector.close()
        for link in self._links:
            # After a failure a link may hold anything: no polite farewell then.
            link.disconnect() if kind is None else link.close()

    def add_consumer(self, link: Link, ack: str = "auto") -> None:
        """Subscribe one more connection to the destination."""
        link.subscribe(self._destination, ack)
        self._watch(link, counted=True)

    def measure(self, seconds: float) -> Measurement:
        """Warm up, count deliveries for this time, then stop sending and check that every message arrives.

        Raises:
            ConnectionError: the broker sent an ERROR, closed a connection, or lost messages.
        """
        self._run(time.perf_counter() + _WARM_UP_SECONDS)
        clock, before = Clock(self._pid), self._delivered()
        self._run(time.perf_counter() + seconds)
        measured = clock.measured(self._delivered() - before)
        self._drain()
        return measured

    @property
    def sent(self) -> int:
        """Messages that the broker was given so far."""
        return self._sent

    def fill(self, count: int) -> None:
        """Send about this many more, and wait until each was receipted, or consumed."""
        end = self._sent + count
        while self._sent < end:
            self._go_on()
        self._drain()

    def _watch(self, link: Link, *, counted: bool) -> None:
        self._links.append(link)
        index = None
        if counted:
            index = len(self._arrived)
            self._arrived.append(0)
        self._selector.register(link, selectors.EVENT_READ, index)

    def _delivered(self) -> int:
        # RECEIPTs are counted first, and count only without consumers.
        begin = 1 if self._receipt_every and len(self._arrived) > 1 else 0
        return sum(self._arrived[begin:])

    def _run(self, end: float) -> None:
        while time.perf_counter() < end:
            self._go_on()

    def _missing(self) -> int:
        """How many of the messages that were sent the slowest consumer has still to get."""
        consumed = self._arrived[1:] if self._receipt_every else self._arrived
        slowest = sum(consumed) if self._is_shared and consumed else min(consumed, default=self._sent)
        return self._sent - (min(slowest, self._arrived[0]) if self._receipt_every else slowest)

    def _go_on(self) -> None:
        self._write_while(self._missing() <= (_BLOCKS_UNDER_WAY - 1) * self._per_block)
        self._turn()

    def _drain(self) -> None:
        # The blocks that are half written have to be finished, or their last messages would be cut.
        self._may_begin = False
        while any(self._rests.values()) or self._missing():
            self._write_while(any(self._rests.values()))
            self._turn()
        self._may_begin = True

    def _write_while(self, is_open: bool) -> None:
        if is_open != self._is_writing:
            self._is_writing = is_open
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if is_open else 0)
            for sender in self._rests:
                self._selector.modify(sender, events, self._selector.get_key(sender).data)

    def _turn(self) -> None:
        ready = self._selector.select(_SILENCE_SECONDS)
        if not ready:
            said = f"silence for {_SILENCE_SECONDS:g} s with {self._missing()} messages under way"
            raise ConnectionError(said)
        for key, events in ready:
            link = cast("Link", key.fileobj)
            if events & selectors.EVENT_READ:
                count = link.take() * (self._receipt_every if link in self._rests else 1)
                if key.data is not None:
                    self._arrived[key.data] += count
                if link in self._rests and b"disposition:rejected" in link.last:
                    raise ConnectionError(f"the broker sent {link.last!r}")
            if events & selectors.EVENT_WRITE:
                self._write(link)

    def _write(self, link: Link) -> None:
        rest = self._rests[link]
        if not rest:
            if not self._may_begin:
                return
            rest = memoryview(next(self._blocks))
            self._sent += self._per_block
        self._rests[link] = rest[link.socket.send(rest) :]


def _differing_blocks(frames: Frames) -> Iterator[bytes]:
    while True:
        yield frames.take(_PER_BLOCK)


def _blocks_with_ids(destination: str, headers: str) -> Iterator[bytes]:
    before, _, behind = message(destination, f"{headers}*").partition(b"*")
    for begin in count(0, _PER_BLOCK):
        ids = (b"dedup-id:%d\nreceipt:r%d" % (number, number) for number in range(begin, begin + _PER_BLOCK))
        yield b"".join(before + id_ + b"\n" + behind for id_ in ids)


def _blocks_with_receipts(destination: str, headers: str, receipt_every: int) -> Sequence[bytes]:
    plain = message(destination, headers)
    last = (f"{headers}receipt:r{n}\n" for n in range(_RECEIPT_BLOCKS * _PER_BLOCK // receipt_every))
    groups = [plain * (receipt_every - 1) + message(destination, lines) for lines in last]
    per_block = _PER_BLOCK // receipt_every
    return [b"".join(groups[at : at + per_block]) for at in range(0, len(groups), per_block)]
