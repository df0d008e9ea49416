"""What one peer costs the others: a reader that stands still, and a flood that never ends.

`python -m benchmarks.contention BROKER-AS-JSON SECONDS` is the flood: a publisher and a consumer at full
speed in a process of their own. It says "ready" when it begins, and its rate when it is over.
"""

from __future__ import annotations

import json
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from benchmarks.echo import request_one
from benchmarks.peers import Broker
from benchmarks.processes import Unavailable, running, tail, wait_until
from benchmarks.stream import Measurement, Stream
from benchmarks.wire import Link

_GOOD_SUBSCRIBERS = 9
# A reader that was ended as too slow comes back: at full speed it lasts less than this long ...
_STALLED_SECONDS = 0.5
# ... and then stays away for a moment, as clients do that have been ended.
_AWAY_SECONDS = 1.0
# The requester's start, its warm-up and its end: the flood goes on meanwhile.
_FLOOD_MORE_SECONDS = 1.0


def nine_subscribers(broker: Broker, seconds: float, *, stalled: bool) -> Measurement:
    """Send to a topic with nine subscribers, and perhaps a tenth that reads nothing; counts the nine's."""
    topic = f"/topic/bench-{uuid4().hex[:12]}"
    with Stream(broker, topic) as stream:
        for _ in range(_GOOD_SUBSCRIBERS):
            stream.add_consumer(Link(broker))
        if not stalled:
            return stream.measure(seconds)
        with stalled_reader(broker, topic):
            return stream.measure(seconds)


@contextmanager
def stalled_reader(broker: Broker, topic: str) -> Iterator[None]:
    """A client that subscribes, reads nothing, and comes back a second after it was ended.

    Raises:
        ConnectionError: at the end, if there was nothing that it could have read.
    """
    is_over = threading.Event()
    was_fed: list[bool] = []

    def stand_still() -> None:
        while not is_over.is_set():
            link = Link(broker)
            link.subscribe(topic)
            is_over.wait(_STALLED_SECONDS)
            was_fed.append(bool(select.select([link], [], [], _STALLED_SECONDS)[0]))
            link.close()
            is_over.wait(_AWAY_SECONDS)

    thread = threading.Thread(target=stand_still)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    if not any(was_fed):
        raise ConnectionError("the reader that stands still was sent nothing")


def request_during_flood(broker: Broker, seconds: float, *, headers: str = "") -> Measurement:
    """Raw request and reply, one at a time, while a publisher and a consumer run at full speed.

    Args:
        headers: whole lines of each SEND of the flood.
    """
    with TemporaryDirectory(prefix="nebula-") as folder:
        log = Path(folder, "flood.log")
        with _flood(broker, seconds + _FLOOD_MORE_SECONDS, headers, log):
            measured = request_one(broker, seconds)
        return replace(measured, others=float(log.read_text().split()[-1]))


@contextmanager
def _flood(broker: Broker, seconds: float, headers: str, log: Path) -> Iterator[None]:
    """Run the flood until it is over, which must not be before the block ends."""
    program = [
        sys.executable,
        "-m",
        "benchmarks.contention",
        json.dumps(asdict(broker)),
        str(seconds),
        headers,
    ]
    with running(program, log=log) as process:
        wait_until(lambda: "ready" in log.read_text(), process, log=log)
        yield
        if process.poll() is not None:
            raise Unavailable(f"the flood was over too soon: {tail(log)}")
        process.wait()


def _be_the_flood(broker: Broker, seconds: float, headers: str) -> None:
    queue = f"/queue/bench-{uuid4().hex[:12]}"
    with Stream(broker, queue, receipt_every=1 if headers else 0, headers=headers) as stream:
        stream.add_consumer(Link(broker))
        print("ready", flush=True)
        print(stream.measure(seconds).rate)


if __name__ == "__main__":
    _be_the_flood(Broker(**json.loads(sys.argv[1])), float(sys.argv[2]), sys.argv[3])
