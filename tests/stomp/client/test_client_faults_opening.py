"""The client against a broker that is none, or none any more, before there is a session."""

from __future__ import annotations

import re
from typing import Any

import anyio
import pytest

from nebula.errors import ConnectFailed, ConnectionLost, NebulaError, ServerError
from nebula.stomp.client import StompClient
from nebula.stomp.frames import FrameLimits
from tests.stomp.faulty import LOOPS, SCHEMES, FaultyPeer, mad_broker, quiet
from tests.stomp.peer import DEADLINE

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("scheme", SCHEMES)]

# More than a broker that answers at once needs; a broker that never does costs each test as much.
_PATIENCE = 0.1


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Their transports differ, so each gets its turn."""
    backend: tuple[str, dict[str, Any]] = request.param
    return backend


NO_ANSWERS = [
    pytest.param(b"\xff\xfe\x00garbage", "NUL", id="garbage"),
    pytest.param(b"\x16\x03\x01\x02\x00\x01\x00", "NUL", id="tls-hello"),
    pytest.param(b"220 mail.example ESMTP\r\n", "unknown command", id="mail"),
    pytest.param(b"HTTP/1.1 200 OK\r\n\r\n<html>", "unknown command", id="http"),
    pytest.param(b"A" * 100_000, "exceeds", id="no-line-end"),
    pytest.param(b"\0\0\0\0", "NUL", id="nuls"),
    pytest.param(b"connected\nversion:1.2\n\n\0", "unknown command", id="lower-case"),
    pytest.param(b"MESSAGE\nsubscription:1\nmessage-id:1\ndestination:/a\n\n\0", "not legal", id="message"),
    pytest.param(b"RECEIPT\nreceipt-id:1\n\n\0", "not legal", id="receipt"),
    pytest.param(b"CONNECT\n\n\0", "unknown command", id="client-frame"),
    pytest.param(b"CONNECTED\nversion:1.3\n\n\0", "'1.3', which we did not offer", id="version"),
    pytest.param(b"CONNECTED\nversion:\n\n\0", "which we did not offer", id="no-version"),
    pytest.param(b"CONNECTED\nversion\n\n\0", "without a colon", id="no-colon"),
    pytest.param(b"CONNECTED\n:1.2\n\n\0", "without a name", id="no-name"),
    pytest.param(b"CONNECTED\nversion:1.2\nsession:\xff\n\n\0", "not UTF-8", id="not-utf-8"),
    pytest.param(b"CONNECTED\nversion:1.2\nx:\0\n\n\0", "NUL", id="nul-in-head"),
    pytest.param(b"CONNECTED\nversion:1.2\nheart-beat:soon\n\n\0", "heart-beat", id="heart-beat"),
    pytest.param(b"CONNECTED\nversion:1.2\nheart-beat:-1,0\n\n\0", "heart-beat", id="negative-beat"),
    pytest.param(b"CONNECTED\nversion:1.2\n\nbody\0", "must not have a body", id="body"),
    pytest.param(b"CONNECTED\nversion:1.2\ncontent-length:-1\n\n\0", "not a number", id="negative-length"),
    pytest.param(
        b"CONNECTED\nversion:1.2\ncontent-length:" + b"9" * 30 + b"\n\n\0", "exceeds", id="absurd-length"
    ),
    pytest.param(b"CONNECTED\n" + b"a:b\n" * 300 + b"\n\0", "headers", id="many-headers"),
    pytest.param(b"CONNECTED\nx:" + b"y" * 70_000 + b"\n\n\0", "exceeds", id="long-header"),
    pytest.param(b"CONNECTED\n" + b"a:" + b"y" * 1000 + b"\n" + b"x" * 70_000, "exceeds", id="large"),
    pytest.param(b"CONNECTED\nversion:1.2\ncontent-length:5\n\nabcdeX", "not NUL", id="no-nul"),
]


@pytest.mark.parametrize(("answer", "said"), NO_ANSWERS)
async def test_answer_that_is_no_connected_is_a_failed_connect(
    scheme: str, answer: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.hear()
        await peer.say(answer)
        await peer.wait_closed()

    with quiet(caplog):
        async with mad_broker(script, scheme) as url:
            with pytest.raises(ConnectFailed, match=said) as caught:
                async with StompClient(url):
                    raise AssertionError

    assert "127.0.0.1" in str(caught.value)


@pytest.mark.parametrize("ending", ["error", "error-without-a-word", "binary-error"])
async def test_error_instead_of_connected_is_told_in_the_brokers_words(
    scheme: str, ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    frames = {
        "error": (b"ERROR\nmessage:no\ncontent-length:4\n\nwhy?\0", "no: why?"),
        "error-without-a-word": (b"ERROR\n\n\0", "ERROR"),
        "binary-error": (b"ERROR\nmessage:no\n\n\xff\xfe\0", "no"),
    }
    octets, said = frames[ending]

    async def script(peer: FaultyPeer) -> None:
        await peer.hear()
        await peer.say(octets)
        await peer.wait_closed()

    with quiet(caplog):
        async with mad_broker(script, scheme) as url:
            with pytest.raises(ConnectFailed, match=said.replace("?", r"\?")) as caught:
                async with StompClient(url):
                    raise AssertionError

    assert isinstance(caught.value.__cause__, ServerError)


@pytest.mark.parametrize(
    "half",
    [b"", b"\n", b"CONN", b"CONNECTED\nversion:1.2", b"CONNECTED\nversion:1.2\n\n", b"ERROR\n\nbecause"],
)
@pytest.mark.parametrize("then", ["silence", "close", "reset"])
async def test_half_an_answer_is_a_failed_connect(
    scheme: str, half: bytes, then: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.hear()
        if half:
            await peer.say(half)
        if then == "silence":
            await peer.wait_closed()
        elif then == "reset":
            peer.beneath.reset()

    patience = _PATIENCE if then == "silence" else 10.0
    said = {
        "silence": r"no session within 0\.1 s",
        "close": "the broker closed the connection",
        "reset": r"(the broker closed the connection|the connection broke: .*\w)",
    }[then]
    with quiet(caplog):
        async with mad_broker(script, scheme, may_be_left=then == "silence") as url:
            with pytest.raises(ConnectFailed, match=f"127.0.0.1:[0-9]+: {said}"):
                async with StompClient(url, connect_timeout=patience):
                    raise AssertionError


async def test_octet_by_octet_connected_is_waited_for_no_longer_than_said(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.hear()
        # It would go on for ever.
        try:
            while True:
                await peer.drip("\n")
                await anyio.sleep(0.005)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass

    with quiet(caplog):
        async with mad_broker(script, scheme, may_be_left=True) as url:
            with pytest.raises(ConnectFailed, match="no session within"):
                async with StompClient(url, connect_timeout=_PATIENCE):
                    raise AssertionError


async def test_octet_by_octet_connected_that_ends_is_a_session(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.hear()
        await peer.drip("\r\n\nCONNECTED\r\nversion:1.2\nsession:\u00e9\r\n\r\n^@\n")
        await peer.confirm()
        await peer.part()

    with quiet(caplog):
        async with mad_broker(script, scheme) as url, StompClient(url) as client:
            await client.send("/queue/a", receipt=True)

    assert client.session == "\u00e9"


async def test_heart_beats_of_years_are_no_fault(scheme: str, caplog: pytest.LogCaptureFixture) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.accept("1.2", f"heart-beat:{9 * 10**18},{9 * 10**18}\n")
        await peer.confirm()
        await peer.part()

    with quiet(caplog):
        async with mad_broker(script, scheme) as url, StompClient(url, heart_beat=(1.0, 1.0)) as client:
            await client.send("/queue/a", receipt=True)


@pytest.mark.parametrize(
    ("behind", "said"),
    [
        pytest.param(b"CONNECTED\nversion:1.2\n\n\0", "CONNECTED is not legal", id="connected-twice"),
        pytest.param(b"\0", "NUL", id="nul"),
        pytest.param(b"ERROR\nmessage:no\n\n\0", "ended the connection: no", id="error"),
    ],
)
async def test_fault_right_behind_connected_is_a_loss_that_the_first_call_tells(
    scheme: str, behind: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.hear()
        await peer.say(b"CONNECTED\nversion:1.2\n\n\0" + behind)
        await peer.wait_closed()

    lost: list[NebulaError] = []
    with quiet(caplog):
        async with mad_broker(script, scheme) as url:
            client = StompClient(url)
            client.on_lost = lost.append
            async with client:
                with pytest.raises(ConnectionLost, match=said):
                    await client.send("/queue/a", receipt=True)

    assert len(lost) == 1


async def test_limits_of_a_frame_hold_before_the_session(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.hear()
        await peer.say(b"CONNECTED\n" + b"name:value\n" * 9)
        await peer.wait_closed()

    with quiet(caplog):
        async with mad_broker(script, scheme) as url:
            with pytest.raises(ConnectFailed, match="the opening frame exceeds 50 bytes"):
                async with StompClient(url, limits=FrameLimits(max_opening_frame_bytes=50)):
                    raise AssertionError


@pytest.mark.parametrize("host", ["a" * 64, "a..b", "\u00e9" * 70, "xn--\u00e9"])
async def test_name_that_no_host_can_have_is_a_failed_connect(scheme: str, host: str) -> None:
    with anyio.fail_after(DEADLINE), pytest.raises(ConnectFailed, match=rf"{re.escape(host)}:1: .*\w"):
        async with StompClient(f"{scheme}://{host}:1"):
            raise AssertionError
