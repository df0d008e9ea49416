"""The client against a listener that speaks no WebSocket, or breaks it."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any, cast

import pytest
from anyio.abc import TaskGroup
from websockets.frames import Frame, Opcode
from websockets.utils import accept_key

from nebula.errors import ConnectFailed, ConnectionLost
from nebula.stomp.client import StompClient
from nebula.stomp.client.addresses import Address
from nebula.stomp.client.websocket_link import WebSocketLink
from nebula.stomp.frames import FrameLimits
from tests.stomp.client.deaf import DeafLink, Sink
from tests.stomp.faulty import (
    LOOPS,
    FaultyPeer,
    Waiters,
    WebSocketStream,
    check_ended,
    mad_broker,
    quiet,
)

pytestmark = pytest.mark.anyio

_PATIENCE = 0.1


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Their transports differ, so each gets its turn."""
    backend: tuple[str, dict[str, Any]] = request.param
    return backend


# --- the upgrade ---


async def hear_request(peer: FaultyPeer) -> str:
    """The whole request; returns what the right answer would bear as its key."""
    heard = b""
    while b"\r\n\r\n" not in heard:
        heard += await peer.stream.receive()
    key = re.search(rb"Sec-WebSocket-Key: (\S+)", heard, re.IGNORECASE)
    assert key
    # RFC 6455, 4.2.2: this text, and no other.
    digest = hashlib.sha1(key[1] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11", usedforsecurity=False)
    return base64.b64encode(digest.digest()).decode()


def upgrade(key: str, more: str = "") -> str:
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {key}\r\n{more}\r\n"
    )


REFUSALS = [
    pytest.param(upgrade("d3Jvbmc="), "Sec-WebSocket-Accept", id="wrong-key"),
    pytest.param(upgrade("KEY", "Sec-WebSocket-Protocol: mqtt\r\n"), "subprotocol", id="subprotocol"),
    pytest.param(upgrade("KEY", "Sec-WebSocket-Extensions: x-y\r\n"), "xtension", id="extension"),
    pytest.param("HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\nOops", "HTTP 500", id="500"),
    pytest.param(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>",
        "200",
        id="page",
    ),
    pytest.param("HTTP/1.1 301 Moved\r\nLocation: ws://x/\r\nContent-Length: 0\r\n\r\n", "301", id="moved"),
    pytest.param("HTTP/1.0 101 Switching Protocols\r\n\r\n", "no WebSocket: ", id="http-1.0"),
    pytest.param("<html>not even HTTP</html>\r\n\r\n", "valid HTTP response", id="no-http"),
    pytest.param("\0\1\2\3garbage\r\n", "valid HTTP response", id="garbage"),
    pytest.param("ERROR\nmessage:what is GET?\n\n^@\r\n", "valid HTTP response", id="stomp"),
    pytest.param("HTTP/1.1 101 OK\r\n" + "A: b\r\n" * 500 + "\r\n", "no WebSocket: ", id="many-headers"),
    pytest.param("HTTP/1.1 101 OK\r\nA: " + "b" * 100_000, "no WebSocket: ", id="long-header"),
    pytest.param("HTTP/1.1 101 " + "x" * 100_000, "no WebSocket: ", id="long-status"),
    pytest.param(
        "HTTP/1.1 500 Oops\r\nContent-Length: 99999999999\r\n\r\n", "no WebSocket: ", id="endless-body"
    ),
]


@pytest.mark.parametrize(("answer", "said"), REFUSALS)
async def test_answer_that_is_no_upgrade_is_a_failed_connect(
    answer: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        key = await hear_request(peer)
        await peer.say(answer.replace("KEY", key))
        await peer.wait_closed()

    with quiet(caplog):
        async with mad_broker(script, "raw") as address:
            with pytest.raises(ConnectFailed, match=said) as caught:
                async with StompClient(f"ws://{address}"):
                    raise AssertionError

    assert "no WebSocket: " in str(caught.value)


@pytest.mark.parametrize("half", ["", "HTTP/1.1", upgrade("KEY")[:-2], "HTTP/1.1 500 Oops\r\n\r\n<html>"])
@pytest.mark.parametrize("then", ["silence", "close", "reset"])
async def test_half_an_upgrade_is_a_failed_connect(
    half: str, then: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        key = await hear_request(peer)
        if half:
            await peer.say(half.replace("KEY", key))
        if then == "silence":
            await peer.wait_closed()
        elif then == "reset":
            peer.beneath.reset()

    patience = _PATIENCE if then == "silence" else 10.0
    said = r"no session within 0\.1 s" if then == "silence" else r"(no WebSocket|the connection broke): .*\w"
    with quiet(caplog):
        async with mad_broker(script, "raw", may_be_left=then == "silence") as address:
            with pytest.raises(ConnectFailed, match=said):
                async with StompClient(f"ws://{address}", connect_timeout=patience):
                    raise AssertionError


async def test_upgrade_and_session_octet_by_octet_are_a_session(caplog: pytest.LogCaptureFixture) -> None:
    connected = b"CONNECTED\nversion:1.2\n\n\0"

    async def script(peer: FaultyPeer) -> None:
        key = await hear_request(peer)
        await peer.drip(upgrade(key))
        await peer.drip(b"\x82" + bytes([len(connected)]) + connected)
        await peer.stream.receive()

    with quiet(caplog):
        async with (
            mad_broker(script, "raw") as address,
            StompClient(f"ws://{address}", disconnect_timeout=0.05) as client,
        ):
            assert client.version == "1.2"


async def test_session_in_one_piece_with_the_upgrade_is_a_session(caplog: pytest.LogCaptureFixture) -> None:
    connected = b"CONNECTED\nversion:1.2\n\n\0"

    async def script(peer: FaultyPeer) -> None:
        key = await hear_request(peer)
        await peer.say(upgrade(key).encode() + b"\x82" + bytes([len(connected)]) + connected)
        await peer.wait_closed()

    with quiet(caplog):
        async with (
            mad_broker(script, "raw") as address,
            StompClient(f"ws://{address}", disconnect_timeout=0.05) as client,
        ):
            assert client.version == "1.2"


# --- frames ---

FAULTS = [
    pytest.param(b"\x83\x01x", "invalid opcode", id="opcode"),
    pytest.param(b"\x82\x81mask\x00", "incorrect masking", id="masked"),
    pytest.param(b"\xc2\x01x", "reserved bits", id="reserved-bits"),
    pytest.param(b"\x82\x7f\x00\x00\x00\x00\x3b\x9a\xca\x00", "exceeds limit", id="too-large"),
    pytest.param(b"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff", "the broker broke the WebSocket", id="absurd"),
    pytest.param(b"\x80\x01x", "unexpected continuation", id="continuation-of-nothing"),
    pytest.param(b"\x02\x01\n\x82\x01\n", "expected a continuation", id="message-within-message"),
    pytest.param(b"\x09\x01x", "fragmented control frame", id="fragmented-ping"),
    pytest.param(b"\x89\x7e\x00\x80" + b"x" * 128, "control frame too long", id="long-ping"),
    pytest.param(b"\x88\x01x", "close frame too short", id="short-close"),
    pytest.param(b"\x88\x02\x00\x01", "invalid status code", id="close-code"),
    pytest.param(b"\x88\x04\x03\xe8\xff\xff", "the broker broke the WebSocket", id="close-not-utf-8"),
    pytest.param(b"\x88\x06\x03\xf3oops", "closed with 1011", id="complaint"),
    pytest.param(b"\x88\x02\x03\xe8", "the broker closed the connection", id="close"),
    pytest.param(b"\x88\x00", "the broker closed the connection", id="close-without-a-code"),
    pytest.param(b"\x02\x7e\x03\xe8" + b"x" * 1000, "broke the", id="fragments-of-garbage"),
]


@pytest.mark.parametrize(("octets", "said"), FAULTS)
async def test_broken_websocket_is_told_to_everyone_who_waits(
    octets: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.accept()
        await peer.confirm()
        for _ in range(Waiters.FRAMES - 1):
            await peer.hear()
        await peer.beneath.send(octets)
        await peer.wait_closed()

    limits = FrameLimits(max_headers=20, max_header_line_bytes=200, max_body_bytes=1000)
    with quiet(caplog):
        async with mad_broker(script, "ws") as url, StompClient(url, limits=limits) as client:
            waiters = Waiters(client)
            await waiters.wait()
            check_ended(client)

    waiters.check(ConnectionLost, said)


async def test_fragments_texts_and_pings_carry_a_session(caplog: pytest.LogCaptureFixture) -> None:
    async def script(peer: FaultyPeer) -> None:
        assert isinstance(peer.stream, WebSocketStream)
        websocket = peer.stream.websocket
        await peer.hear()
        websocket.send_text(b"CONNEC", fin=False)
        websocket.send_ping(b"are you there")
        websocket.send_continuation(b"", fin=False)
        websocket.send_continuation(b"TED\nversion:1.2\n", fin=True)
        websocket.send_binary(b"")
        # STOMP's head ends in one message, and the frame in another.
        websocket.send_text(b"\n\0\n", fin=True)
        websocket.send_pong(b"nobody asked")
        await peer.stream.flush()
        await peer.confirm()
        await peer.part()

    with quiet(caplog):
        async with mad_broker(script, "ws") as url, StompClient(url) as client:
            await client.send("/queue/a", receipt=True)


async def test_pings_beyond_number_hurt_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.accept()
        for _ in range(20):
            await peer.beneath.send(b"\x89\x01x" * 1000)
        await peer.confirm()
        await peer.part()

    with quiet(caplog):
        async with mad_broker(script, "ws") as url, StompClient(url) as client:
            await client.send("/queue/a", receipt=True)


def test_last_of_many_pings_alone_is_answered() -> None:
    beneath, sink = DeafLink(), Sink()
    link = WebSocketLink(beneath, Address("broker", 80, path="/stomp"))
    link.start(sink, cast("TaskGroup", None))
    key = beneath.written.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0].decode()
    link.data_received(upgrade(accept_key(key)).encode())
    beneath.written = b""

    link.data_received(b"\x89\x01x" * 1000 + b"\x82\x01\n" + b"\x89\x01y\x88\x00")

    # Two octets of head, four of mask, and the ping's own one; behind it the answer to the Close.
    assert len(beneath.written) == 7 + 6
    assert beneath.written[:1] == b"\x8a"
    assert beneath.written[7:8] == b"\x88"
    assert beneath.written[6] ^ beneath.written[2] == ord("y")
    assert sink.data == b"\n"


async def test_close_in_the_middle_of_a_frame_is_a_loss(caplog: pytest.LogCaptureFixture) -> None:
    async def script(peer: FaultyPeer) -> None:
        assert isinstance(peer.stream, WebSocketStream)
        await peer.accept()
        await peer.hear()
        await peer.say("RECEIPT\nreceipt-id:")
        peer.stream.websocket.send_close(1001)
        await peer.stream.flush()
        await peer.wait_closed()

    with quiet(caplog):
        async with mad_broker(script, "ws") as url, StompClient(url) as client:
            with pytest.raises(ConnectionLost, match="the broker closed the connection"):
                await client.send("/queue/a", receipt=True)


def test_answers_of_the_tests_are_frames_of_a_websocket() -> None:
    """Spelt by hand above, as the library would not write most of them."""
    close = Frame(Opcode.CLOSE, b"\x03\xf3oops")

    assert close.serialize(mask=False) == b"\x88\x06\x03\xf3oops"
