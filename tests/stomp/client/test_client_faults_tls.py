"""The client against a listener that speaks no TLS, or not to the end, over TCP and for a WebSocket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.streams.tls import TLSStream

from nebula.broker.operations.certificates import make_authority
from nebula.errors import ConnectFailed, ConnectionLost
from nebula.stomp.client import StompClient
from nebula.stomp.client.tls import TlsOptions
from tests.stomp.faulty import LOOPS, FaultyPeer, RawStream, Waiters, check_ended, mad_broker, quiet

pytestmark = pytest.mark.anyio

SCHEMES = pytest.mark.parametrize("scheme", ["stomps", "wss"])


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Their transports differ, so each gets its turn."""
    backend: tuple[str, dict[str, Any]] = request.param
    return backend


class Site:
    """A CA and a broker's certificate of it, and what a broker's side needs to shake hands.

    Attributes:
        options: a client's that trusts it.
    """

    def __init__(self, folder: Path) -> None:
        import ssl

        authority = make_authority("site", 1)
        self.options = TlsOptions(ca=authority.certificate.write(folder, "ca")[0])
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*authority.issue_server(["127.0.0.1"], 1).write(folder, "server"))

    async def shake_hands(self, peer: FaultyPeer) -> FaultyPeer:
        """The same connection, with TLS between it and the socket."""
        stream = await TLSStream.wrap(
            peer.beneath, server_side=True, ssl_context=self._context, standard_compatible=False
        )
        return FaultyPeer(stream, peer.beneath)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("site"))


# --- the handshake ---


@SCHEMES
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"ERROR\nmessage:what is this\n\n\0", id="stomp"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="http"),
        pytest.param(b"\0" * 100, id="nuls"),
        pytest.param(b"\x16\x03\x03\x00\x04\x02\x00\x00\x00", id="empty-server-hello"),
        pytest.param(b"\x16\x03\x03\xff\xff" + b"x" * 70_000, id="large-record"),
        pytest.param(b"\x15\x03\x03\x00\x02\x02\x28", id="alert"),
        pytest.param(b"\x15\x03\x03\x00\x02\x01\x00", id="close-notify"),
        pytest.param(b"\x17\x03\x03\x00\x05hello", id="data-before-the-handshake"),
    ],
)
async def test_answer_that_is_no_handshake_is_a_failed_connect(
    site: Site, scheme: str, answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.stream.receive()
        await peer.say(answer)
        await peer.wait_closed()

    with quiet(caplog):
        async with mad_broker(script, "raw") as address:
            with pytest.raises(ConnectFailed, match=r"127.0.0.1:[0-9]+: .*\w"):
                async with StompClient(f"{scheme}://{address}", tls=site.options):
                    raise AssertionError


@SCHEMES
@pytest.mark.parametrize("half", [b"", b"\x16", b"\x16\x03\x03\x00\x40\x02\x00"])
@pytest.mark.parametrize("then", ["silence", "close", "reset"])
async def test_half_a_handshake_is_a_failed_connect(
    site: Site, scheme: str, half: bytes, then: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.stream.receive()
        if half:
            await peer.say(half)
        if then == "silence":
            await peer.wait_closed()
        elif then == "reset":
            peer.beneath.reset()

    patience = 0.1 if then == "silence" else 10.0
    said = r"no session within 0\.1 s" if then == "silence" else r"127.0.0.1:[0-9]+: .*\w"
    with quiet(caplog):
        async with mad_broker(script, "raw", may_be_left=then == "silence") as address:
            with pytest.raises(ConnectFailed, match=said):
                async with StompClient(f"{scheme}://{address}", tls=site.options, connect_timeout=patience):
                    raise AssertionError


@SCHEMES
async def test_refused_certificate_is_a_failed_connect_and_nothing_in_the_log(
    site: Site, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        with pytest.raises((OSError, anyio.BrokenResourceError, anyio.EndOfStream)):
            await (await site.shake_hands(peer)).hear()

    with quiet(caplog):
        async with mad_broker(script, "raw") as address:
            with pytest.raises(ConnectFailed, match="its certificate cannot be trusted"):
                async with StompClient(f"{scheme}://{address}", tls=TlsOptions()):
                    raise AssertionError


@SCHEMES
async def test_silence_behind_the_handshake_is_a_failed_connect(
    site: Site, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await (await site.shake_hands(peer)).wait_closed()

    with quiet(caplog):
        async with mad_broker(script, "raw", may_be_left=True) as address:
            # Enough for the handshake, which may fail to come to its end all the same.
            with pytest.raises(ConnectFailed, match=r"no session within 0\.3 s"):
                async with StompClient(f"{scheme}://{address}", tls=site.options, connect_timeout=0.3):
                    raise AssertionError


# --- the session ---


@pytest.mark.parametrize("ending", ["garbage", "close", "reset", "half-a-record", "forged-record"])
async def test_end_of_an_encrypted_session_is_told_to_everyone_who_waits(
    site: Site, ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    octets = {
        "garbage": b"garbage, in the clear",
        "half-a-record": b"\x17\x03\x03\x01\x00x",
        "forged-record": b"\x17\x03\x03\x00\x20" + b"x" * 32,
    }

    async def script(peer: FaultyPeer) -> None:
        encrypted = await site.shake_hands(peer)
        await encrypted.accept()
        await encrypted.confirm()
        for _ in range(Waiters.FRAMES - 1):
            await encrypted.hear()
        if ending in octets:
            await peer.beneath.send(octets[ending])
        if ending in ("garbage", "forged-record"):
            await peer.wait_closed()
        elif ending == "reset":
            peer.beneath.reset()

    with quiet(caplog):
        async with (
            mad_broker(script, "raw") as address,
            StompClient(f"stomps://{address}", tls=site.options) as client,
        ):
            waiters = Waiters(client)
            await waiters.wait()
            check_ended(client)

    waiters.check(ConnectionLost, "the ")
    assert not str(waiters.lost[0]).endswith(": ")


@pytest.mark.parametrize("then", ["close", "reset"])
async def test_end_in_the_middle_of_an_encrypted_flood_is_a_loss(
    site: Site, then: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await (await site.shake_hands(peer)).accept()
        beneath: RawStream = peer.beneath
        await beneath.receive()
        if then == "reset":
            beneath.reset()

    async def send_on(client: StompClient) -> None:
        while True:
            await client.send("/queue/a", b"x" * 1_000_000)

    with quiet(caplog):
        async with (
            mad_broker(script, "raw") as address,
            StompClient(f"stomps://{address}", tls=site.options) as client,
        ):
            with pytest.raises(ConnectionLost):
                await send_on(client)
            check_ended(client)
