"""Messages of each kind through the sans-I/O broker: what memory they leave behind, and what time they take.

`python -m tests.compiled.traffic` prints CPU time per message of the build that its environment chooses, and
`python -m tests.compiled.traffic 10000000` how much the process grows over that many messages of each kind.
"""

from __future__ import annotations

import re
import resource
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count, cycle, islice
from statistics import median
from typing import Final

from nebula.compiled import build_name
from tests.broker.harness import BrokerHarness, Peer

BATCH: Final = 32
# Of a service in one piece, with one ACK (docs/decisions/0064).
_REPLIES: Final = 15
_BODY: Final = b"x" * 200
_REQUEST: Final = re.compile(rb"\nack:([^\n]*).*?\nneb-reply-id:([^\n]*)", re.DOTALL)


class Listener(Peer):
    """A peer that keeps the last bytes that it was written, and reads none."""

    def flush(self, now: float) -> None:
        """Take what there is to be written."""
        self.last_write = b"".join(self.protocol.take_output(now))


class World:
    """A broker without the checks of its harness, which take more time than the broker."""

    def __init__(self) -> None:
        self._harness = BrokerHarness()

    def peer(self, *frames: str) -> Listener:
        """Somebody who has connected, and has said this."""
        name = f"peer{len(self._harness.peers)}"
        peer = Listener(self._harness, name, name)
        self._harness.peers.append(peer)
        self.say(peer, b"CONNECT\naccept-version:1.2\nhost:h\n\n\0")
        for frame in frames:
            self.say(peer, frame.encode() + b"\n\n\0")
        return peer

    def say(self, peer: Peer, data: bytes) -> None:
        """These bytes come from a peer, and what follows from them is done."""
        peer.protocol.receive_data(data, self._harness.now)
        self._harness.pump.work(self._harness.now)


def _frames(head: str, numbers: range = range(BATCH)) -> bytes:
    return b"".join(head.replace("#", str(number)).encode() + b"\n\n" + _BODY + b"\0" for number in numbers)


def _sending(*subscriptions: str, head: str) -> Iterator[bytes]:
    world = World()
    receiver, *_ = [world.peer(subscription) for subscription in subscriptions]
    sender = world.peer()
    data = _frames(head)
    while True:
        world.say(sender, data)
        yield receiver.last_write


def queue() -> Iterator[bytes]:
    """A queue with automatic acks."""
    return _sending("SUBSCRIBE\nid:s\ndestination:/queue/a", head="SEND\ndestination:/queue/a")


def differing_heads() -> Iterator[bytes]:
    """A queue whose sender gives each message an id and a time: more heads than a parser remembers."""
    world = World()
    receiver = world.peer("SUBSCRIBE\nid:s\ndestination:/queue/a")
    sender = world.peer()
    head = "SEND\ndestination:/queue/a\ncorrelation-id:id-#\ntimestamp:12:00:#\ncontent-length:200"
    batches = [_frames(head, range(begin, begin + BATCH)) for begin in range(0, 256 * BATCH, BATCH)]
    for data in cycle(batches):
        world.say(sender, data)
        yield receiver.last_write


def receipts() -> Iterator[bytes]:
    """A queue whose sender asks for a receipt of each message."""
    return _sending("SUBSCRIBE\nid:s\ndestination:/queue/a", head="SEND\ndestination:/queue/a\nreceipt:r-#")


def fan_out() -> Iterator[bytes]:
    """A topic with ten subscribers."""
    subscriptions = ["SUBSCRIBE\nid:s\ndestination:/topic/a"] * 10
    return _sending(*subscriptions, head="SEND\ndestination:/topic/a")


def last_values() -> Iterator[bytes]:
    """Last values that change all the time."""
    return _sending("SUBSCRIBE\nid:s\ndestination:X/**", head="SEND\ndestination:X/v#")


def transactions() -> Iterator[bytes]:
    """A transaction for each batch, and its receipt."""
    world = World()
    receiver = world.peer("SUBSCRIBE\nid:s\ndestination:/queue/a")
    sender = world.peer()
    data = (
        b"BEGIN\ntransaction:t\n\n\0"
        + _frames("SEND\ndestination:/queue/a\ntransaction:t")
        + b"COMMIT\ntransaction:t\nreceipt:c\n\n\0"
    )
    while True:
        world.say(sender, data)
        yield receiver.last_write


def calls() -> Iterator[bytes]:
    """Requests as our client sends them, and the replies and ACKs of our service. No id comes twice."""
    world = World()
    service = world.peer("SUBSCRIBE\nid:s\ndestination:/queue/svc\nack:client-individual")
    caller = world.peer("SUBSCRIBE\nid:i\ndestination:/queue/nebula.inbox.me\nexclusive:true")
    asking = (
        "SEND\ndestination:/queue/svc\ncontent-type:application/json\nrequire-consumers:true\n"
        "receipt-on-rejection:true\nneb-reply-to:/queue/nebula.inbox.me\ncontent-length:200\n"
        "neb-timeout:10000\nreceipt:#\nneb-reply-id:id-#"
    )
    replying = (
        b"SEND\ndestination:/queue/nebula.inbox.me\ncontent-type:application/json\nneb-response:true\n"
        b"content-length:200\nneb-in-reply-to:%b\n\n%b\0"
    )
    for number in count(100_000, BATCH):
        world.say(caller, _frames(asking, range(number, number + BATCH)))
        requests = _REQUEST.findall(service.last_write)
        pieces = []
        for begin in range(0, BATCH, _REPLIES):
            some = requests[begin : begin + _REPLIES]
            pieces += [replying % (asked, _BODY) for _, asked in some]
            ids = b",".join([ack.partition(b" ")[2] for ack, _ in some[1:]])
            pieces.append(b"ACK\nid:%b\nmessage-ids:%b\n\n\0" % (some[0][0], ids))
        world.say(service, b"".join(pieces))
        yield caller.last_write


# Each yields after every batch what a receiver was last written.
KINDS: Final[tuple[Callable[[], Iterator[bytes]], ...]] = (
    queue,
    differing_heads,
    receipts,
    fan_out,
    last_values,
    transactions,
    calls,
)


def run(batches: Iterator[bytes], number: int) -> None:
    """Let this many batches pass."""
    for _ in islice(batches, number):
        pass


def _microseconds(batches: Iterator[bytes]) -> float:
    run(batches, 200)
    times = []
    for _ in range(7):
        start = time.process_time()
        run(batches, 200)
        times.append(time.process_time() - start)
    return median(times) / (200 * BATCH) * 1e6


def _grown_kilobytes(batches: Iterator[bytes], messages: int) -> int:
    run(batches, 2_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run(batches, messages // BATCH)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def main() -> None:
    """See the module."""
    for kind in KINDS:
        batches = kind()
        if len(sys.argv) > 1:
            print(f"{build_name()} {kind.__name__}: {_grown_kilobytes(batches, int(sys.argv[1]))} KB")
        else:
            print(f"{build_name()} {kind.__name__}: {_microseconds(batches):.3f} µs")


if __name__ == "__main__":
    main()
