"""How many messages a second are recorded: of 200 bytes, from a queue that is full of them.

    python -m benchmarks.recorder --messages 500000

Each is in a file that was synced before it was ACKed. As text they are recorded with headers and time, in
envelopes as Avro under their schema.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal
from uuid import uuid4

from benchmarks.own import nebula_broker
from benchmarks.peers import Broker
from benchmarks.processes import Unavailable, cpu_seconds, running, wait_until
from benchmarks.row import Aim, Contestant, Row
from benchmarks.stream import Measurement, Stream
from benchmarks.wire import Link, message
from nebula.avro import Schema, encode

MESSAGES_PER_SECOND = 50_000
"""What we aim at."""

_BODY_BYTES = 200
_MOST = 300_000  # Nebula's queues take few more of these by default, and this one has no consumer meanwhile
_PER_BLOCK = 1000
# The part of a note that makes the body of an envelope 200 bytes.
_AVRO_NOTE = 144
_WORDS = (
    "door",
    "jam",
    "cash",
    "box",
    "reel",
    "tilt",
    "coin",
    "open",
    "shut",
    "link",
    "up",
    "down",
    "meter",
    "late",
)
_DEADLINE_SECONDS = 300.0
_LOOK_SECONDS = 0.02
_DURABLE = "nebula --store sqlite"  # it keeps what durable subscriptions wait for

_SCHEMA = Schema(
    {
        "type": "record",
        "name": "venue.Reading_v1",
        "fields": [
            {"name": "machine", "type": "string"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "turnover", "type": "long"},
            {"name": "note", "type": ["null", "string"]},
        ],
    }
)


def rows() -> tuple[Row, ...]:
    """What `make bench` shows of the recorder."""
    return (
        Row(
            "recorder",
            "The recorder",
            "Messages of 200 bytes from a full queue into synced files, each ACKed after that, while broker"
            " and recorder share the cores: as text, with headers; and as Avro in envelopes, checked."
            " *MB*: of the files.",
            "messages",
            [
                Contestant("Nebula, deflate", "nebula", partial(recorded, codec="deflate")),
                Contestant("Nebula, zstandard", "nebula", partial(recorded, codec="zstandard")),
                Contestant("Nebula, null", "nebula", partial(recorded, codec="null")),
                Contestant("Nebula, Avro in envelopes", "nebula", partial(recorded, kind="avro")),
            ],
            max_rounds=2,
            aims=[
                Aim(name, "rate", MESSAGES_PER_SECOND)
                for name in ("Nebula, deflate", "Nebula, Avro in envelopes")
            ],
        ),
        Row(
            "recorder-lags",
            "Topic, with a stalled recorder",
            "One connection sends to a topic with one subscriber, whose messages count. A recorder with a"
            " durable subscription was stopped before, so that the broker keeps all of it on disk; or it"
            " records what it can; or no recorder exists.",
            "messages",
            [
                Contestant("Nebula, it stands still", _DURABLE, partial(beside_recorder, stands="still")),
                Contestant("Nebula, it records", _DURABLE, partial(beside_recorder, stands="by")),
                Contestant("Nebula, none", _DURABLE, partial(beside_recorder, stands=None)),
            ],
            max_rounds=2,
        ),
    )


def recorded(broker: Broker, seconds: float, *, codec: str = "deflate", kind: str = "text") -> Measurement:
    """Fill a queue with three times the aim for this many seconds, and have it recorded."""
    return record(broker, min(int(3 * seconds * MESSAGES_PER_SECOND), _MOST), codec=codec, kind=kind)


def record(broker: Broker, count: int, *, codec: str, kind: str) -> Measurement:
    """The same for this many messages, in whole blocks; at least what a few seconds take.

    Raises:
        Unavailable: the recorder did not come to an end in time; says what it logged.
    """
    queue = f"/queue/bench-{uuid4().hex[:12]}"
    count = max(1, count // _PER_BLOCK) * _PER_BLOCK
    _fill(broker, queue, count, kind)
    with TemporaryDirectory(prefix="nebula-recorded-") as folder:
        schemas, into = Path(folder, "schemas"), Path(folder, "into")
        schemas.mkdir()
        (schemas / "reading.avsc").write_text(json.dumps(_SCHEMA.definition))
        options = [
            "--codec",
            codec,
            "--schemas",
            str(schemas),
            "--prefetch",
            "100000",
            "--log-level",
            "warning",
        ]
        words = [sys.executable, "-m", "nebula.cli", "record", queue, "--into", str(into), *options]
        url = f"stomp://127.0.0.1:{broker.port}"
        log, status = Path(folder, "log"), into / ".recorder/recorder/status.json"
        with running([*words, "--broker", url], log=log) as process:
            # Between the recorder's first report of any messages, and its last one.
            began, first = _told(status, 1, log)
            used, served = cpu_seconds(process.pid), cpu_seconds(broker.pid)
            ended, last = began, first
            while last < count:
                busy, cost = cpu_seconds(process.pid) - used, cpu_seconds(broker.pid) - served
                taken, done = ended - began, last - first
                ended, last = _told(status, last + 1, log)
        if not taken:
            raise Unavailable(f"{count} messages are recorded too soon: take more")
        size = sum(file.stat().st_size for file in into.glob("*/*/*/*.avro"))
    return Measurement(done / taken, busy=busy / taken, cost=cost / done, size_bytes=size)


def beside_recorder(broker: Broker, seconds: float, *, stands: Literal["still", "by"] | None) -> Measurement:
    """Send to a topic with one subscriber, perhaps next to a recorder of it, which may be stopped.

    Raises:
        Unavailable: the recorder has not, after it went on, all that came meanwhile.
    """
    topic = f"/topic/bench-{uuid4().hex[:12]}"
    with Stream(broker, topic) as stream:
        stream.add_consumer(Link(broker))
        if stands is None:
            return stream.measure(seconds)
        with _durable_recorder(broker, topic) as (process, status, log):
            if stands == "still":
                process.send_signal(signal.SIGSTOP)
            try:
                measured = stream.measure(seconds)
            finally:
                process.send_signal(signal.SIGCONT)
            _told(status, stream.sent, log)
            return measured


@contextmanager
def _durable_recorder(broker: Broker, topic: str) -> Iterator[tuple[subprocess.Popen[bytes], Path, Path]]:
    """A recorder whose subscription is there: its process, its status and its log."""
    with TemporaryDirectory(prefix="nebula-recorded-") as folder:
        log, into = Path(folder, "log"), Path(folder, "into")
        options = ["--durable", "bench", "--log-level", "warning"]
        words = [sys.executable, "-m", "nebula.cli", "record", topic, "--into", str(into), *options]
        with running([*words, "--broker", f"stomp://127.0.0.1:{broker.port}"], log=log) as process:
            wait_until(lambda: '"recording"' in log.read_text(), process, log=log)
            yield process, into / ".recorder/recorder/status.json", log


def _fill(broker: Broker, queue: str, count: int, kind: str) -> None:
    link, bodies = Link(broker), _bodies(kind)
    for block in range(0, count, _PER_BLOCK):
        frames = [message(queue, body=body) for body in islice(bodies, _PER_BLOCK - 1)]
        # Its receipt says that the broker has all of them.
        frames.append(message(queue, f"receipt:{block}\n", body=next(bodies)))
        link.exchange(b"".join(frames), b"RECEIPT\n")
    link.disconnect()


def _bodies(kind: str) -> Iterator[bytes]:
    """Readings of some machines with a note in words, so that they can be compressed as such data can."""
    chance = random.Random(1)
    while True:
        row: dict[str, Any] = {
            "machine": f"EGM{chance.randrange(500):06}",
            "at": 1_795_000_000_000 + chance.randrange(86_400_000),
            "turnover": chance.randrange(100_000),
        }
        words = " ".join(chance.choices(_WORDS, k=40))
        if kind == "avro":
            yield encode(
                {**row, "note": words[:_AVRO_NOTE]}, _SCHEMA, topic=row["machine"], timestamp_ms=row["at"]
            )
        else:
            bare = json.dumps({**row, "note": ""})
            yield json.dumps({**row, "note": words[: _BODY_BYTES - len(bare)]}).encode()


def _told(status: Path, least: int, log: Path) -> tuple[float, int]:
    """Wait until the recorder says that this many are recorded: when, and how many."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while time.monotonic() < deadline:
        told = json.loads(status.read_bytes()) if status.exists() else {"total": 0}
        if told["total"] >= least:
            return told["told"], told["total"]
        time.sleep(_LOOK_SECONDS)
    raise Unavailable(f"fewer than {least} messages were recorded: {log.read_text()[-600:]}")


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description="How many messages a second are recorded.")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--codec", nargs="+", default=["deflate", "zstandard", "null"])
    parser.add_argument("--kind", nargs="+", default=["text", "avro"], choices=["text", "avro"])
    given = parser.parse_args()
    with nebula_broker() as broker:
        for kind in given.kind:
            for codec in given.codec:
                found = record(broker, given.messages, codec=codec, kind=kind)
                rate, busy, size = f"{found.rate:,.0f}", found.busy or 0, (found.size_bytes or 0) / 1e6
                served = f"broker {1e6 * (found.cost or 0):.1f} µs a message"
                print(f"{kind} {codec}: {rate}/s, recorder {busy:.2f} of a core, {served}, {size:.1f} MB")


if __name__ == "__main__":
    main()
