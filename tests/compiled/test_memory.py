"""What has passed the compiled broker leaves nothing behind: native code counts its references by itself."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from tests.compiled.traffic import BATCH, KINDS, run

# More than what caches and lists take once, and less than a byte for each message.
_MOST_BYTES = 8_000
_BATCHES = 300


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_memory_does_not_grow_with_messages(kind: Callable[[], Iterator[bytes]]) -> None:
    batches = kind()
    run(batches, _BATCHES)
    gc.collect()
    tracemalloc.start()
    try:
        run(batches, 5)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        run(batches, _BATCHES)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert after - before < _MOST_BYTES


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_all_messages_of_a_batch_arrive(kind: Callable[[], Iterator[bytes]]) -> None:
    batches = kind()
    run(batches, 100)

    assert next(batches).count(b"MESSAGE\n") == BATCH
