"""Memory stays bounded, measured: far more than the limit offered to a queue that nobody reads."""

from __future__ import annotations

import selectors
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest

from tests.broker.script import octets
from tests.faults.served import Wire

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

# So much that a tenth of it, if it stayed, would be seen.
_TIMES_THE_LIMIT = 16
_CHUNK_BYTES = 1 << 20

# Replies to nobody, reads its stdin to the end: it cannot outlive the test.
_PROGRAM = """
import asyncio, sys
import uvloop
from nebula.broker.core.limits import Limits
from nebula.broker.server.server import Listener, Server

async def main():
    limit = int(sys.argv[1])
    server = Server([Listener(port=0)], limits=Limits(max_queue_bytes=limit, max_memory_bytes=limit))
    await server.start()
    print(server.urls[0], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop()

uvloop.run(main())
"""


class Child:
    """A broker in a process of its own, watched."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.port = int(process.stdout.readline().rpartition(":")[2])
        self._watched = psutil.Process(process.pid)
        self.peak_bytes = self.base_bytes = self._watched.memory_info().rss

    def watch(self) -> None:
        """Take a look at the resident memory."""
        self.peak_bytes = max(self.peak_bytes, self._watched.memory_info().rss)


@contextmanager
def serving(limit_bytes: int) -> Iterator[Child]:
    """A broker of that size."""
    command = [sys.executable, "-c", _PROGRAM, str(limit_bytes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Child(process)
        finally:
            process.kill()


def offer(broker: Child, wires: list[Wire], chunk: bytes, offered_bytes: int) -> None:
    """Write so much to all of these at once, as fast as each of them is read."""
    # Whole chunks, so that no frame is cut.
    left = dict.fromkeys(wires, max(1, offered_bytes // len(wires) // len(chunk)) * len(chunk))
    with selectors.DefaultSelector() as selector:
        for wire in wires:
            wire.socket.setblocking(False)
            selector.register(wire.socket, selectors.EVENT_WRITE, wire)
        while left:
            for key, _ in selector.select(10):
                wire = key.data
                left[wire] -= wire.socket.send(memoryview(chunk)[-left[wire] % len(chunk) :])
                if not left[wire]:
                    selector.unregister(wire.socket)
                    wire.socket.settimeout(60)
                    del left[wire]
            broker.watch()


# Small frames take long, and a small limit is reached by fewer. With large ones the unfinished frame of each
# connection comes on top, whatever the limit is: it has to be large beside them.
@pytest.mark.parametrize(
    ("connections", "consumer", "body_bytes", "limit_mib"),
    [
        (1, "nobody", 500, 16),
        (30, "one that never acks", 500, 16),
        (100, "nobody", 100_000, 64),
        (1, "one that never acks", 100_000, 64),
    ],
)
def test_queue_that_nobody_reads_stays_under_twice_the_limit_whatever_is_offered(
    connections: int,
    consumer: str,
    body_bytes: int,
    limit_mib: int,
    record_property: Callable[[str, object], None],
) -> None:
    limit_bytes = limit_mib << 20
    frame = octets("SEND destination:/queue/a | " + "x" * body_bytes)
    with serving(limit_bytes) as broker:
        reader = Wire(broker.port)
        reader.connect("1.2")
        if consumer != "nobody":
            reader.say("SUBSCRIBE id:s; destination:/queue/a; ack:client; prefetch-count:1")
            assert reader.is_in_order()
        wires = [Wire(broker.port) for _ in range(connections)]
        for wire in wires:
            wire.connect("1.2")

        offer(broker, wires, frame * (_CHUNK_BYTES // len(frame)), _TIMES_THE_LIMIT * limit_bytes)

        assert all(wire.is_in_order() for wire in wires)
        broker.watch()
    grown = broker.peak_bytes - broker.base_bytes
    record_property("grown_mib", grown >> 20)
    print(f"grown by {grown >> 20} MiB over {broker.base_bytes >> 20} MiB")
    assert grown < 2 * limit_bytes


@pytest.fixture
def broker() -> Iterator[Child]:
    with serving(64 << 20) as child:
        yield child


def test_body_that_a_hundred_do_not_read_is_there_once(
    broker: Child, record_property: Callable[[str, object], None]
) -> None:
    deaf = [Wire(broker.port, receive_buffer_bytes=4096) for _ in range(100)]
    for wire in deaf:
        wire.connect("1.2")
        wire.say("SUBSCRIBE id:s; destination:/topic/t")
        assert wire.is_in_order()
    sender = Wire(broker.port)
    sender.connect("1.2")

    sender.send(octets("SEND destination:/topic/t | " + "x" * 8_000_000))

    assert sender.is_in_order()
    # Who comes after them all in the line of those who are to be written.
    deaf[-1].next()
    broker.watch()
    grown = broker.peak_bytes - broker.base_bytes
    record_property("grown_mib", grown >> 20)
    assert grown < 80 << 20  # a tenth of what copies would take
