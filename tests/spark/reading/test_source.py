"""What a Python worker of Spark's does around the reading."""

from __future__ import annotations

import gc
import subprocess
import sys

from nebula.spark.reading.plan import Plan
from nebula.spark.reading.source import AvroReader, Task

_SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'


def test_what_a_worker_has_imported_is_not_looked_through_after_each_task() -> None:
    # In a process of its own: this one's objects are to be collected.
    ran = subprocess.run([sys.executable, "-m", __name__], capture_output=True, text=True, check=True)

    frozen, left = map(int, ran.stdout.split())
    assert frozen > 20 * left


def _read_nothing() -> None:
    reader = AvroReader(Plan("polars", (), {}, _SCHEMA, ["a"], slots=2))
    for _ in range(2):
        assert list(reader.read(Task([]))) == []


if __name__ == "__main__":
    _read_nothing()
    print(gc.get_freeze_count(), len(gc.get_objects()))
