"""Clients over TLS, on both loops: whom they trust, whom they do not, and what they show."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream, TaskStatus
from anyio.streams.tls import TLSAttribute, TLSListener, TLSStream

from nebula.broker.operations.certificates import Authority, Certificate, make_authority
from nebula.errors import ConnectFailed, ConnectionLost
from nebula.stomp.client import StompClient
from nebula.stomp.client.tls import TlsOptions
from tests.stomp.peer import DEADLINE

pytestmark = pytest.mark.anyio


@pytest.fixture(
    params=[
        pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
        pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
        pytest.param("trio", id="trio"),
    ]
)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CA", "CERT", "KEY", "PIN", "VERIFY_HOST"):
        monkeypatch.delenv(f"NEBULA_{name}", raising=False)


class Broker:
    """Accepts TLS, answers CONNECT, gives receipts and sends back what it is sent.

    Attributes:
        heard: all octets that came through.
        shown: the certificates that clients showed, one for each handshake that came to its end.
    """

    def __init__(self, folder: Path, certificate: Certificate, client_ca: Authority | None = None) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*certificate.write(folder, "broker"))
        if client_ca is not None:
            self._context.load_verify_locations(cadata=client_ca.certificate.pem.decode())
            self._context.verify_mode = ssl.CERT_REQUIRED
        self.port = 0
        self.heard = b""
        self.shown: list[bytes | None] = []

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Yields its address by IP."""
        plain = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.port = plain.extra(SocketAttribute.local_port)
        listener = TLSListener(plain, self._context, standard_compatible=False)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, self._serve)
            yield f"stomps://127.0.0.1:{self.port}"
            tasks.cancel_scope.cancel()

    async def _serve(self, stream: TLSStream) -> None:
        self.shown.append(stream.extra(TLSAttribute.peer_certificate_binary))
        held = b""
        try:
            async with stream:
                async for octets in stream:
                    self.heard += octets
                    held += octets
                    *frames, held = held.split(b"\0")
                    for frame in frames:
                        await stream.send(_answer(frame.lstrip(b"\n")))
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass


def _answer(frame: bytes) -> bytes:
    command, *lines = frame.partition(b"\n\n")[0].decode().split("\n")
    headers = dict(line.split(":", 1) for line in lines)
    if command == "CONNECT":
        return b"CONNECTED\nversion:1.2\n\n\0"
    answer = b""
    if command == "SEND":
        body = frame.partition(b"\n\n")[2]
        answer += b"MESSAGE\nsubscription:1\nmessage-id:1\ndestination:/queue/echo\n\n" + body + b"\0"
    if "receipt" in headers:
        answer += f"RECEIPT\nreceipt-id:{headers['receipt']}\n\n\0".encode()
    return answer


@pytest.fixture
def authority() -> Authority:
    return make_authority("site", days=1)


@pytest.fixture
def ca(authority: Authority, tmp_path: Path) -> Path:
    """The file that those have who trust the site."""
    return authority.certificate.write(tmp_path, "ca")[0]


@pytest.fixture
def server(authority: Authority) -> Certificate:
    return authority.issue_server(["127.0.0.1", "::1"], days=1)


async def talk(url: str, options: TlsOptions | None) -> str:
    """Connect, send something with a receipt, and leave. Returns the version."""
    with anyio.fail_after(DEADLINE):
        async with StompClient(url, tls=options) as client:
            await client.send("/queue/a", b"hello", receipt=True)
            return client.version


async def failure_of(url: str, options: TlsOptions | None) -> str:
    with pytest.raises(ConnectFailed) as caught:
        await talk(url, options)
    return str(caught.value)


# --- whom we trust ---


async def test_certificate_of_the_ca_for_this_host_is_trusted(
    tmp_path: Path, server: Certificate, ca: Path
) -> None:
    broker = Broker(tmp_path, server)
    async with broker.listening() as url:
        assert await talk(url, TlsOptions(ca=ca)) == "1.2"
    assert broker.shown == [None]
    assert b"SEND" in broker.heard


async def test_certificate_of_another_ca_is_not_trusted(
    tmp_path: Path, authority: Authority, ca: Path
) -> None:
    stranger = make_authority("site", days=1).issue_server(["127.0.0.1"], days=1)
    broker = Broker(tmp_path, stranger)
    async with broker.listening() as url:
        failure = await failure_of(url, TlsOptions(ca=ca))

    assert failure.startswith(f"127.0.0.1:{broker.port}: its certificate cannot be trusted: ")
    assert broker.heard == b""


async def test_certificate_of_no_public_ca_is_not_trusted_by_default(
    tmp_path: Path, server: Certificate
) -> None:
    broker = Broker(tmp_path, server)
    async with broker.listening() as url:
        assert "its certificate cannot be trusted: " in await failure_of(url, None)
    assert broker.heard == b""


async def test_certificate_for_another_host_is_not_trusted(
    tmp_path: Path, authority: Authority, ca: Path
) -> None:
    broker = Broker(tmp_path, authority.issue_server(["elsewhere.example"], days=1))
    async with broker.listening() as url:
        failure = await failure_of(url, TlsOptions(ca=ca))

    assert "IP address mismatch" in failure
    assert broker.heard == b""


async def test_host_is_not_looked_at_where_that_was_said(
    tmp_path: Path, authority: Authority, ca: Path
) -> None:
    broker = Broker(tmp_path, authority.issue_server(["elsewhere.example"], days=1))
    async with broker.listening() as url:
        assert await talk(url, TlsOptions(ca=ca, verify_host=False)) == "1.2"


async def test_chain_still_counts_where_the_host_does_not(tmp_path: Path, ca: Path) -> None:
    stranger = make_authority("other", days=1).issue_server(["127.0.0.1"], days=1)
    broker = Broker(tmp_path, stranger)
    async with broker.listening() as url:
        assert "cannot be trusted" in await failure_of(url, TlsOptions(ca=ca, verify_host=False))


async def test_certificate_out_of_date_is_not_trusted(tmp_path: Path, authority: Authority, ca: Path) -> None:
    broker = Broker(tmp_path, authority.issue_server(["127.0.0.1"], days=-1))
    async with broker.listening() as url:
        assert "certificate has expired" in await failure_of(url, TlsOptions(ca=ca))


async def test_certificate_of_a_client_is_no_brokers(tmp_path: Path, authority: Authority, ca: Path) -> None:
    broker = Broker(tmp_path, authority.issue_client("till-1", days=1))
    async with broker.listening() as url:
        assert "cannot be trusted" in await failure_of(url, TlsOptions(ca=ca, verify_host=False))


@pytest.mark.parametrize("spell", [str, str.upper, lambda pin: f"{pin[:2]}:{pin[2:]}"])
async def test_pinned_certificate_is_trusted_whatever_its_ca_and_host(tmp_path: Path, spell: object) -> None:
    assert callable(spell)
    stranger = make_authority("other", days=1).issue_server(["elsewhere.example"], days=1)
    broker = Broker(tmp_path, stranger)
    async with broker.listening() as url:
        assert await talk(url, TlsOptions(pin=spell(stranger.fingerprint))) == "1.2"


async def test_another_certificate_than_the_pinned_one_gets_to_hear_nothing(
    tmp_path: Path, authority: Authority, server: Certificate, ca: Path
) -> None:
    pinned = authority.issue_server(["127.0.0.1"], days=1)
    broker = Broker(tmp_path, server)
    async with broker.listening() as url:
        # Not even a good chain makes up for it.
        failure = await failure_of(url, TlsOptions(pin=pinned.fingerprint, ca=ca))

    assert failure.endswith(f": its certificate is not the pinned one, but {server.fingerprint}")
    assert broker.heard == b""


# --- who we are ---


async def test_client_shows_its_certificate(
    tmp_path: Path, authority: Authority, server: Certificate, ca: Path
) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding

    till = authority.issue_client("till-1", days=1)
    cert, key = till.write(tmp_path, "till-1")
    broker = Broker(tmp_path, server, client_ca=authority)
    async with broker.listening() as url:
        assert await talk(url, TlsOptions(ca=ca, cert=cert, key=key)) == "1.2"
    assert broker.shown == [till.x509.public_bytes(Encoding.DER)]


async def test_key_may_be_in_the_certificates_file(
    tmp_path: Path, authority: Authority, server: Certificate, ca: Path
) -> None:
    till = authority.issue_client("till-1", days=1)
    both = tmp_path / "both.pem"
    both.write_bytes(till.pem + till.key_pem)
    broker = Broker(tmp_path, server, client_ca=authority)
    async with broker.listening() as url:
        assert await talk(url, TlsOptions(ca=ca, cert=both)) == "1.2"


async def test_client_without_a_certificate_fails_where_one_is_needed(
    tmp_path: Path, authority: Authority, server: Certificate, ca: Path
) -> None:
    broker = Broker(tmp_path, server, client_ca=authority)
    async with broker.listening() as url:
        await failure_of(url, TlsOptions(ca=ca))
    assert broker.heard == b""


# --- how it goes ---


async def test_much_goes_both_ways_at_once(tmp_path: Path, server: Certificate, ca: Path) -> None:
    broker = Broker(tmp_path, server)
    body = bytes(range(1, 256)) * 4096
    async with broker.listening() as url:
        with anyio.fail_after(DEADLINE):
            async with (
                StompClient(url, tls=TlsOptions(ca=ca)) as client,
                client.subscribe("/queue/echo") as echoes,
            ):
                for _ in range(4):
                    await client.send("/queue/echo", body, {"content-type": "a/b"})
                for _ in range(4):
                    assert (await anext(aiter(echoes))).body == body


async def test_who_listens_without_tls_is_told_of(tmp_path: Path, ca: Path) -> None:
    plain = await anyio.create_tcp_listener(local_host="127.0.0.1")

    async def refuse(stream: SocketStream) -> None:
        async with stream:
            await stream.send(b"ERROR\nmessage:what is this\n\n\0")
            with anyio.move_on_after(DEADLINE):
                async for _ in stream:
                    pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(plain.serve, refuse)
        port = plain.extra(SocketAttribute.local_port)
        assert "no TLS: wrong version number" in await failure_of(
            f"stomps://127.0.0.1:{port}", TlsOptions(ca=ca)
        )
        tasks.cancel_scope.cancel()


async def test_end_during_the_handshake_is_told_of(tmp_path: Path, ca: Path) -> None:
    plain = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(plain.serve, anyio.aclose_forcefully)
        port = plain.extra(SocketAttribute.local_port)
        await failure_of(f"stomps://127.0.0.1:{port}", TlsOptions(ca=ca))
        tasks.cancel_scope.cancel()


async def test_broker_that_goes_away_is_a_loss(tmp_path: Path, server: Certificate, ca: Path) -> None:
    broker = Broker(tmp_path, server)
    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as tasks:
            gone = anyio.Event()
            url = await tasks.start(listen_until, broker, gone)
            async with StompClient(url, tls=TlsOptions(ca=ca)) as client, client.subscribe("/a") as messages:
                gone.set()
                # Without a word of TLS's own: nothing was cut off, so nothing broke.
                with pytest.raises(ConnectionLost, match="the broker closed the connection"):
                    await anext(aiter(messages))


async def listen_until(broker: Broker, gone: anyio.Event, *, task_status: TaskStatus[str]) -> None:
    async with broker.listening() as url:
        task_status.started(url)
        await gone.wait()
