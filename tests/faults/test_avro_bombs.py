"""Hostile bodies against a broker process: they are refused, and the broker does not feel them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nebula.avro import Schema, encode, encode_envelope, make_envelope
from nebula.avro.varints import write_long
from tests.cli.programs import running
from tests.faults.served import Wire

_NEXT = {"name": "next", "type": ["null", "venue.Node_v1"]}
NODE = {"type": "record", "name": "venue.Node_v1", "fields": [_NEXT]}
NULLS = {
    "type": "record",
    "name": "venue.Nulls_v1",
    "fields": [{"name": "all", "type": {"type": "array", "items": "null"}}],
}
PRICE = {
    "type": "record",
    "name": "venue.Price_v1",
    "fields": [
        {"name": "cents", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}
    ],
}

SETTINGS = """
schemas = "schemas"
store = "memory"
[[listener]]
port = 0
"""

BINDING = """
[[destination]]
pattern = "X/{kind}.{name}"
avro = "{name}"
content = "{kind}"
"""

# Far below what any of the bombs takes of a decoder, far above what refusing it takes.
_MOST_SECONDS_OF_CPU = 5.0
_MOST_GROWTH_BYTES = 100 << 20

NESTED = b"\x02" * 6000 + b"\x00"
ENDLESS = write_long(1 << 30) + b"\x00"


class Bomb(NamedTuple):
    schema: dict[str, Any]
    datum: bytes


BOMBS = {
    "nested": Bomb(NODE, NESTED),
    "endless": Bomb(NULLS, ENDLESS),
    "endless in blocks": Bomb(NULLS, write_long(150_000) * 10_000 + b"\x00"),
    "endless and signed": Bomb(NULLS, write_long(-(1 << 63)) + b"\x00\x00"),
    "digits": Bomb(PRICE, write_long(4 << 20) + b"\x7f" * (4 << 20)),
    "truncated": Bomb(NODE, b"\x02" * 10),
    "trailing": Bomb(NODE, b"\x00\x00"),
}


class Broker(NamedTuple):
    wire: Wire
    pid: int

    def verdict(self, destination: str, body: bytes) -> str:
        """What the broker says of a body."""
        head = f"SEND\ndestination:{destination}\nreceipt:r\ncontent-length:{len(body)}\n\n"
        self.wire.send(head.encode() + body + b"\0")
        frame = self.wire.next()
        assert frame is not None
        assert frame[0] == "RECEIPT"
        return frame[1]["disposition"]

    def seconds_of_cpu(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        ticks: int = sum(int(field) for field in fields[11:13])
        return ticks / os.sysconf("SC_CLK_TCK")

    def memory_bytes(self) -> int:
        """The most that the process ever had."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    (tmp_path / "schemas").mkdir()
    config = SETTINGS
    for schema in (NODE, NULLS, PRICE):
        (tmp_path / "schemas" / f"{schema['name']}.avsc").write_text(json.dumps(schema))
        config += "".join(BINDING.format(kind=kind, name=schema["name"]) for kind in ("envelope", "bare"))
    (tmp_path / "nebula.toml").write_text(config)
    with running("broker", cwd=tmp_path) as (process, ready):
        wire = Wire(int(ready["url"].rpartition(":")[2]))
        wire.connect("1.2")
        yield Broker(wire, process.pid)
        wire.close()


@pytest.mark.parametrize("name", BOMBS)
def test_a_hostile_body_is_refused_and_the_broker_goes_on(broker: Broker, name: str) -> None:
    schema, datum = BOMBS[name]
    written = Schema(schema)
    enveloped = encode_envelope(make_envelope(fingerprint=written.fingerprint, body=datum))
    seconds, memory = broker.seconds_of_cpu(), broker.memory_bytes()

    for _ in range(3):
        assert broker.verdict(f"X/envelope.{written.name}", enveloped) == "rejected-invalid"
        assert broker.verdict(f"X/bare.{written.name}", datum) == "rejected-invalid"
    assert broker.verdict(f"X/envelope.{written.name}", good(schema)) == "accepted"
    assert broker.seconds_of_cpu() - seconds < _MOST_SECONDS_OF_CPU
    assert broker.memory_bytes() - memory < _MOST_GROWTH_BYTES


def test_a_refused_body_leaves_the_value_as_it_was(broker: Broker) -> None:
    destination = "X/envelope.venue.Node_v1"
    first = good(NODE)
    assert broker.verdict(destination, first) == "accepted"
    assert broker.verdict(destination, b"\xff") == "rejected-invalid"
    broker.wire.send(f"SUBSCRIBE\nid:s\ndestination:{destination}\neager:true\nack:auto\n\n\0".encode())

    frame = broker.wire.next()
    assert frame is not None
    assert frame[0] == "MESSAGE"
    assert frame[-1] == first.decode(errors="backslashreplace")


def good(schema: dict[str, Any]) -> bytes:
    """An enveloped value of one of the schemas."""
    value = {
        NODE["name"]: {"next": None},
        NULLS["name"]: {"all": [None]},
        PRICE["name"]: {"cents": Decimal("1.50")},
    }
    return encode(value[schema["name"]], Schema(schema))
