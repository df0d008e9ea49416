"""What it costs to know messages that come again: ids in a ledger next to the files, or in the files.

    python -m benchmarks.ids --messages 200000

CPU time of one process. In the ledger an id is written once, and forgotten when its ACK is confirmed. In the
files it stays with its datum for good, and each reader has to drop doubles.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fastavro

from nebula.avro import Schema
from nebula.record.container import ContainerWriter
from nebula.record.ledger import Ledger

_GROUP = 10_000

_FIELDS: list[dict[str, Any]] = [
    {"name": "machine", "type": "string"},
    {"name": "at", "type": "long"},
    {"name": "turnover", "type": "long"},
]
_PLAIN = Schema({"type": "record", "name": "Reading", "fields": _FIELDS})
_NAMED = Schema({"type": "record", "name": "Reading", "fields": [{"name": "id", "type": "string"}, *_FIELDS]})


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description="What it costs to know messages that come again.")
    parser.add_argument("--messages", type=int, default=200_000)
    count = parser.parse_args().messages
    rows: list[dict[str, Any]] = [
        {
            "id": f"3f9a01bc-{n}",
            "machine": f"EGM{n % 500:06}",
            "at": 1_795_000_000_000 + n,
            "turnover": n * 7 % 9999,
        }
        for n in range(count)
    ]
    ids = [row["id"] for row in rows]
    plain, named = ([schema.encode(_cut(row, schema)) for row in rows] for schema in (_PLAIN, _NAMED))
    with TemporaryDirectory(prefix="nebula-ids-") as folder:
        files = {name: Path(folder, f"{name}.avro") for name in ("plain", "named")}
        ledger = Ledger(Path(folder, "ledger"))
        _show("write data", count, lambda: _write(files["plain"], _PLAIN, plain))
        _show("write data with ids", count, lambda: _write(files["named"], _NAMED, named))
        _show("write ids into the ledger, known and forgotten", count, lambda: _note(ledger, ids))
        _show("read data", count, lambda: _read(files["plain"]))
        _show("read data, dropping doubles", count, lambda: _read_once(files["named"]))
        for name, path in files.items():
            print(f"{name}: {path.stat().st_size / count:.1f} bytes a message")
        print(f"ledger: {ledger.size_bytes / count:.1f} bytes a message, until it is written anew")


def _cut(row: dict[str, Any], schema: Schema) -> dict[str, Any]:
    return {field["name"]: row[field["name"]] for field in schema.parsed["fields"]}


def _write(path: Path, schema: Schema, data: list[bytes]) -> None:
    with ContainerWriter(path, json.dumps(schema.definition), block_bytes=1 << 30) as writer:
        for start in range(0, len(data), _GROUP):
            writer.extend(data[start : start + _GROUP])
            writer.sync()


def _note(ledger: Ledger, ids: list[str]) -> None:
    for start in range(0, len(ids), _GROUP):
        group = ids[start : start + _GROUP]
        assert not any(each in ledger for each in group)
        ledger.confirm(ledger.commit(group, {}))


def _records(path: Path) -> Iterable[Any]:
    with path.open("rb") as file:
        yield from fastavro.reader(file)


def _read(path: Path) -> int:
    return sum(1 for _ in _records(path))


def _read_once(path: Path) -> int:
    seen = set()
    for record in _records(path):
        seen.add(record["id"])
    return len(seen)


def _show(what: str, count: int, work: Callable[[], object]) -> None:
    began = time.process_time()
    work()
    print(f"{what}: {(time.process_time() - began) / count * 1e6:.2f} µs a message")


if __name__ == "__main__":
    main()
