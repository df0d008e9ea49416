"""What a connection leaves behind when it is gone."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from tests.faults.served import Served, serve, wait_until


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Without the cyclic collector, which a broker runs rarely, only what is in no cycle goes away."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    "last",
    [
        b"",
        b"SEND\ndestination:/queue/a\ncontent-length:1000000\n\nhalf a body",
        b"SUBSCRIBE\nid:s\ndestination:/queue/a\nack:client\n\n\0SEND\ndestination:/queue/a\n\nx\0",
        b"DISCONNECT\nreceipt:r\n\n\0",
        b"NONSENSE\n\n\0",
    ],
    ids=["nothing", "half a frame", "unsettled", "disconnect", "fault"],
)
def test_connection_that_is_gone_is_freed_at_once(no_collector: None, last: bytes) -> None:
    with serve() as broker:
        assert_freed(broker, last)


def assert_freed(broker: Served, last: bytes) -> None:
    alice = broker.connect()
    (connection,) = broker.ask(lambda: list(map(weakref.ref, broker.connections)))
    parser = weakref.ref(connection()._protocol._parser)
    alice.send(last)
    alice.close()

    wait_until(broker, lambda: connection() is None)
    assert parser() is None
