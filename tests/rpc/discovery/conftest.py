"""A broker without last values: Nebula's, behind a relay that renames it and one of its topics."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute

from tests.rpc.conftest import RunningBroker

# Of the same length, so that no content-length is wrong.
_TO_BROKER: Final = ((b"/topic/nebula.services", b"/topic/plains.services"),)
_TO_CLIENT: Final = (
    (b"/topic/plains.services", b"/topic/nebula.services"),
    (b"server:nebula/", b"server:plains/"),
)


@pytest.fixture
async def plain_url(mortal_broker: RunningBroker) -> AsyncGenerator[str]:
    """The address of a broker that knows no last values, as far as its clients can tell."""
    port = urlsplit(mortal_broker.url).port
    assert port is not None
    async with anyio.create_task_group() as tasks:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        tasks.start_soon(listener.serve, partial(_relay, port))
        yield f"stomp://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        tasks.cancel_scope.cancel()


async def _relay(port: int, near: ByteStream) -> None:
    async with near, await anyio.connect_tcp("127.0.0.1", port) as far, anyio.create_task_group() as tasks:
        tasks.start_soon(_pump, near, far, _TO_BROKER)
        await _pump(far, near, _TO_CLIENT)
        tasks.cancel_scope.cancel()


async def _pump(source: ByteStream, sink: ByteStream, words: Sequence[tuple[bytes, bytes]]) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for octets in source:
            for said, heard in words:
                octets = octets.replace(said, heard)
            await sink.send(octets)
    await sink.aclose()
