"""In how many pieces the asyncio link hands over what is written to it."""

from __future__ import annotations

import asyncio

import pytest

from nebula.stomp.client.network_links import AsyncioLink

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class CountingTransport(asyncio.Transport):
    """Takes everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))


def linked() -> tuple[AsyncioLink, CountingTransport]:
    link, transport = AsyncioLink(), CountingTransport()
    link.connection_made(transport)
    return link, transport


async def test_what_is_written_in_one_turn_goes_out_in_one_piece_at_its_end() -> None:
    link, transport = linked()

    for octet in (b"a", b"b", b"c"):
        link.write(octet)

    assert transport.pieces == []
    await asyncio.sleep(0)
    assert transport.pieces == [b"abc"]


async def test_frame_is_sent_at_once_after_a_turn_with_a_single_one() -> None:
    link, transport = linked()
    link.write(b"a")
    await asyncio.sleep(0)

    for octet in (b"b", b"c", b"d"):
        link.write(octet)
    assert transport.pieces == [b"a", b"b"]

    await asyncio.sleep(0)
    assert transport.pieces == [b"a", b"b", b"cd"]
    link.write(b"e")
    assert transport.pieces == [b"a", b"b", b"cd"]
    await asyncio.sleep(0)
    link.write(b"f")
    assert transport.pieces == [b"a", b"b", b"cd", b"e", b"f"]


async def test_much_that_is_written_in_one_turn_goes_out_in_several_pieces_in_order() -> None:
    link, transport = linked()

    for number in range(100):
        link.write(b"%d," % number)
    await asyncio.sleep(0)

    assert b"".join(transport.pieces) == b"".join(b"%d," % number for number in range(100))
    assert 2 < len(transport.pieces) < 20
