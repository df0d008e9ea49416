"""Hostile pages in Arrow, which do no harm."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest

from nebula.rpc.errors import UnexpectedReply
from nebula.rpc.jobs.results.fetching import batches_of


def _page(batch: Any, **options: Any) -> dict[str, Any]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as stream:
        stream.write_batch(batch)
    return {"data": base64.b64encode(sink.getvalue()).decode()}


def _of(column: Any) -> Any:
    return pa.record_batch([column], ["a"])


def _with_wild_offsets() -> Any:
    offsets = pa.py_buffer(b"".join(each.to_bytes(4, "little") for each in (0, 1 << 30, 1)))
    return pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"x")])


def _nulls(count: int) -> Any:
    return pa.Array.from_buffers(pa.null(), count, [None])


HOSTILE = {
    "offsets that point anywhere": (_with_wild_offsets(), {}),
    "a few bytes that become many": (pa.array([b"\0" * 10_000_000]), {"compression": "zstd"}),
    "rows without bytes": (_nulls(1 << 30), {}),
    "items without bytes": (
        pa.ListArray.from_arrays(pa.array([0, 1 << 30], pa.int32()), _nulls(1 << 30)),
        {},
    ),
    "fixed lists": (pa.FixedSizeListArray.from_arrays(_nulls(1 << 30), 1 << 30), {}),
    "dictionaries": (pa.array(["a", "a"]).dictionary_encode(), {}),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_page_that_would_do_harm_is_unexpected(what: str) -> None:
    column, options = HOSTILE[what]

    with pytest.raises(UnexpectedReply):
        batches_of(_page(_of(column), **options))


@pytest.mark.parametrize("cut", [0, 1, 8, 100, 200])
def test_page_that_is_cut_is_unexpected(cut: int) -> None:
    data = base64.b64decode(_page(_of(pa.array([1, 2])))["data"])[:cut]

    with pytest.raises(UnexpectedReply):
        batches_of({"data": base64.b64encode(data).decode()})


def test_empty_and_nested_pages_are_read() -> None:
    nested = pa.array(
        [[{"a": [("k", [None, "v"])]}], None],
        pa.list_(pa.struct([("a", pa.map_(pa.string(), pa.list_(pa.string())))])),
    )

    assert batches_of(_page(_of(nested))).column(0).to_pylist() == nested.to_pylist()
    assert batches_of(_page(_of(pa.array([], pa.null())))).num_rows == 0
