"""Rows of the table of jobs: conversion from and to records, the same in every database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from typing import Any, Final

from nebula.rpc.contract.job_runner import JobOutput
from nebula.rpc.jobs.model.record import JobRecord, JobStep
from nebula.rpc.jobs.model.states import JobState
from nebula.rpc.jobs.model.status import error_from_json, tasks_from_json

__all__ = [
    "COLUMNS", "JOB_BYTES", "STEP_BYTES", "byte_count", "column_types", "record_of", "row_of", "size_of",
]  # fmt: skip

JOB_BYTES: Final = 400
"""About how many bytes a row takes besides its texts, including its index entries."""

STEP_BYTES: Final = 256
"""Bytes are rounded up to a multiple of this, so that small changes of a row need not be counted."""

# One column for each field of a record, so that a new field is one line in one place.
COLUMNS: Final = tuple(one.name for one in fields(JobRecord))
_JSON_COLUMNS: Final = frozenset({"parameters", "step", "tasks", "output", "error", "steps", "counters"})

# By the first word of a field's annotation; what is neither is text, JSON too.
_SQL_TYPES: Final = {"float": "double precision", "int": "bigint", "bool": "boolean"}


def column_types() -> dict[str, str]:
    """The columns with types of standard SQL, for databases that want them."""
    return {one.name: _SQL_TYPES.get(str(one.type).partition(" ")[0], "text") for one in fields(JobRecord)}


def row_of(record: JobRecord) -> tuple[Any, ...]:
    """The values of a record's columns."""
    return tuple(
        _json(getattr(record, name)) if name in _JSON_COLUMNS else getattr(record, name) for name in COLUMNS
    )


def size_of(row: Sequence[Any]) -> int:
    """About how many bytes a row takes."""
    exact = JOB_BYTES + sum(byte_count(value) for value in row if isinstance(value, str))
    # Floor division of the negative rounds up.
    return -(-exact // STEP_BYTES) * STEP_BYTES


def byte_count(text: str) -> int:
    """How many bytes a text takes."""
    # JSON is ASCII, and long texts are JSON: nothing long is encoded just to be counted.
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def record_of(row: Sequence[Any]) -> JobRecord:
    """The record whose columns have these values."""
    values = dict(zip(COLUMNS, row, strict=True))
    for name in _JSON_COLUMNS:
        if values[name] is not None:
            values[name] = json.loads(values[name])
    values["state"] = JobState(values["state"])
    # JSON has no tuples and no classes: what `row_of` wrote as lists and objects gets its types back, so that
    # `save` can compare a read record with a new one by `==`.
    record = JobRecord(**values)
    return replace(
        record,
        step=record.step and (record.step[0], record.step[1], record.step[2]),
        tasks=values["tasks"] and tasks_from_json(values["tasks"]),
        output=values["output"] and JobOutput(**values["output"]),
        error=values["error"] and error_from_json(values["error"]),
        ends_as=values["ends_as"] and JobState(values["ends_as"]),
        steps=tuple(JobStep(*step) for step in values["steps"] or ()),
        counters=values["counters"] or {},
        is_owed=bool(values["is_owed"]),
    )


def _json(value: Any) -> str | None:
    if value is None:
        return None
    plain = asdict(value) if hasattr(value, "__dataclass_fields__") else value
    return json.dumps(plain, separators=(",", ":"))
