"""TLS of a listener, by real handshakes on both loops; and certificates as they are made (B.3)."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from nebula.broker.operations.certificates import Authority, Certificate, make_authority
from nebula.broker.server.tls import ServerTls, TlsFiles
from nebula.errors import Refused, SettingsError
from tests.own_logs import own_logs

DEADLINE = 10.0

on_each_loop = pytest.mark.parametrize(
    "anyio_backend",
    [
        pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
        pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
    ],
)
on_a_loop = pytest.mark.parametrize("anyio_backend", ["asyncio"])


class Site:
    """The files of a broker, and of those who come to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.old = make_authority("old site", days=1)
        self.new = make_authority("new site", days=1)
        self.write_ca(self.old)
        self.write_server(self.old.issue_server(["127.0.0.1"], days=1))
        self.deny("# nobody yet")

    def write_ca(self, authority: Authority) -> None:
        authority.certificate.write(self.folder, "ca")

    def write_server(self, certificate: Certificate) -> Certificate:
        certificate.write(self.folder, "server")
        return certificate

    def deny(self, text: str) -> None:
        (self.folder / "deny.txt").write_text(text)

    def files(self, **changes: Any) -> TlsFiles:
        wanted: dict[str, Any] = {
            "certificate": self.folder / "server.pem",
            "key": self.folder / "server.key",
            "client_ca": self.folder / "ca.pem",
            "deny": self.folder / "deny.txt",
        }
        return TlsFiles(**(wanted | changes))

    def client(self, certificate: Certificate | None, name: str = "client") -> ssl.SSLContext:
        """What a client shows; it takes any server."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if certificate is not None:
            context.load_cert_chain(*certificate.write(self.folder, name))
        return context


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@asynccontextmanager
async def greeting_server(tls: ServerTls) -> AsyncIterator[int]:
    """Tells each peer its principal, and then each line back. Yields its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            ssl_object = writer.get_extra_info("ssl_object")
            writer.write(f"{tls.principal(ssl_object.getpeercert(binary_form=True))}\n".encode())
            while line := await reader.readline():
                writer.write(line)
        except Refused:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls.context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class Visitor:
    """A connection of a client's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @property
    def ssl_object(self) -> ssl.SSLObject:
        found: ssl.SSLObject = self.writer.get_extra_info("ssl_object")
        return found

    @property
    def sees(self) -> bytes | None:
        """The server's certificate."""
        return self.ssl_object.getpeercert(binary_form=True)

    async def echoes(self) -> bool:
        self.writer.write(b"still here\n")
        return await self.reader.readline() == b"still here\n"


async def come(port: int, context: ssl.SSLContext) -> tuple[Visitor, str]:
    """Connect; returns the connection and what the server said first."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    visitor = Visitor(reader, writer)
    return visitor, (await reader.readline()).decode().strip()


async def is_refused(port: int, context: ssl.SSLContext) -> bool:
    """Under TLS 1.3 a client learns it by its first read only."""
    try:
        visitor, greeting = await come(port, context)
    except (ssl.SSLError, ConnectionError):
        return True
    visitor.writer.close()
    return greeting == ""


@pytest.mark.anyio
@on_each_loop
async def test_principal_is_the_fingerprint_of_the_clients_certificate(site: Site) -> None:
    alice = site.old.issue_client("alice", days=1)
    async with asyncio.timeout(DEADLINE), greeting_server(ServerTls(site.files())) as port:
        visitor, greeting = await come(port, site.client(alice))
        visitor.writer.close()

    assert greeting == alice.fingerprint


@pytest.mark.anyio
@on_each_loop
async def test_strangers_are_refused_where_a_certificate_is_needed(site: Site) -> None:
    expired = site.old.issue_client("late", days=-1)
    a_server = site.old.issue_server(["127.0.0.1"], days=1)
    async with asyncio.timeout(DEADLINE), greeting_server(ServerTls(site.files())) as port:
        assert await is_refused(port, site.client(None))
        assert await is_refused(port, site.client(site.new.issue_client("stranger", days=1)))
        assert await is_refused(port, site.client(expired))
        assert await is_refused(port, site.client(a_server))
        assert not await is_refused(port, site.client(site.old.issue_client("alice", days=1)))


@pytest.mark.anyio
@on_a_loop
async def test_client_may_do_without_a_certificate_where_none_is_needed_but_not_show_a_bad_one(
    site: Site,
) -> None:
    tls = ServerTls(site.files(needs_client_certificate=False))
    alice = site.old.issue_client("alice", days=1)
    async with asyncio.timeout(DEADLINE), greeting_server(tls) as port:
        without, nobody = await come(port, site.client(None))
        with_one, somebody = await come(port, site.client(alice))
        for visitor in (without, with_one):
            visitor.writer.close()

        assert await is_refused(port, site.client(site.new.issue_client("stranger", days=1)))
    assert nobody == "None"
    assert somebody == alice.fingerprint


@pytest.mark.anyio
@on_a_loop
async def test_nobody_is_asked_for_a_certificate_without_a_ca(site: Site) -> None:
    tls = ServerTls(site.files(client_ca=None))
    async with asyncio.timeout(DEADLINE), greeting_server(tls) as port:
        visitor, greeting = await come(port, site.client(site.new.issue_client("anybody", days=1)))
        visitor.writer.close()

    assert greeting == "None"
    assert not tls.needs_client_certificate


@pytest.mark.anyio
@on_a_loop
@pytest.mark.parametrize(
    ("version", "is_spoken"), [(ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True)]
)
async def test_tls_1_2_is_the_oldest(site: Site, version: ssl.TLSVersion, *, is_spoken: bool) -> None:
    client = site.client(site.old.issue_client("alice", days=1))
    client.set_ciphers("ALL:@SECLEVEL=0")
    with contextlib.nullcontext() if is_spoken else pytest.warns(DeprecationWarning, match="TLSv1_1"):
        client.minimum_version = version
        client.maximum_version = version
    async with asyncio.timeout(DEADLINE), greeting_server(ServerTls(site.files())) as port:
        assert await is_refused(port, client) is not is_spoken


# --- reload ---


@pytest.mark.anyio
@on_each_loop
async def test_reload_changes_certificate_and_ca_and_keeps_connections(site: Site) -> None:
    alice = site.client(site.old.issue_client("alice", days=1), "alice")
    carol = site.client(site.new.issue_client("carol", days=1), "carol")
    tls = ServerTls(site.files())
    given = tls.context
    async with asyncio.timeout(DEADLINE), greeting_server(tls) as port:
        early, _ = await come(port, alice)
        assert await is_refused(port, carol)

        site.write_ca(site.new)
        served = site.write_server(site.new.issue_server(["127.0.0.1"], days=1))
        tls.reload()

        late, _ = await come(port, carol)
        assert late.sees == served.x509.public_bytes(Encoding.DER)
        assert await is_refused(port, alice)
        assert await early.echoes()
        assert tls.context is given
        for visitor in (early, late):
            visitor.writer.close()


@pytest.mark.anyio
@on_a_loop
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_session_that_began_under_the_old_ca_is_not_resumed(
    site: Site, version: ssl.TLSVersion
) -> None:
    client = site.client(site.old.issue_client("alice", days=1))
    client.minimum_version = client.maximum_version = version
    tls = ServerTls(site.files())
    async with asyncio.timeout(DEADLINE), greeting_server(tls) as port:
        visitor, _ = await come(port, client)
        session = visitor.ssl_object.session
        visitor.writer.close()
        assert session is not None

        site.write_ca(site.new)
        tls.reload()

        with pytest.raises((ssl.SSLError, ConnectionError)):
            await resumes(port, client, session)


@pytest.mark.anyio
@on_each_loop
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("is_needed", [True, False], ids=["needed", "optional"])
async def test_no_ticket_is_given_where_certificates_are_asked_for(
    site: Site, version: ssl.TLSVersion, *, is_needed: bool
) -> None:
    client = site.client(site.old.issue_client("alice", days=1))
    client.minimum_version = client.maximum_version = version
    tls = ServerTls(site.files(needs_client_certificate=is_needed))
    async with asyncio.timeout(DEADLINE), greeting_server(tls) as port:
        visitor, _ = await come(port, client)
        session = visitor.ssl_object.session
        visitor.writer.close()

        assert session is None or not session.has_ticket
        if version is ssl.TLSVersion.TLSv1_3:
            assert session is None or not await resumes(port, client, session)


@pytest.mark.anyio
@on_a_loop
async def test_session_is_resumed_where_nobody_is_asked_for_a_certificate(site: Site) -> None:
    client = site.client(None)
    async with asyncio.timeout(DEADLINE), greeting_server(ServerTls(site.files(client_ca=None))) as port:
        visitor, _ = await come(port, client)
        session = visitor.ssl_object.session
        visitor.writer.close()

        assert session is not None
        assert await resumes(port, client, session)


@pytest.mark.anyio
@on_a_loop
async def test_certificate_that_has_expired_does_not_come_in_by_a_session_of_tls_1_2(site: Site) -> None:
    """OpenSSL keeps sessions of TLS 1.2 by their ids, and verifies no certificate when it resumes one."""
    alice = site.old.issue_client("alice", days=1)
    client = site.client(alice)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    tls = ServerTls(site.files())
    seen: list[bool] = []
    wall = [0.0]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer: ssl.SSLObject = writer.get_extra_info("ssl_object")
        seen.append(bool(peer.session_reused))
        try:
            identity = tls.identify(peer, wall[0])
            assert identity is not None
            writer.write(f"{identity.principal} {identity.expires_at:.0f}\n".encode())
        except Refused as error:
            writer.write(f"{error.code}\n".encode())
        writer.close()

    def say_again(port: int, session: ssl.SSLSession) -> str:
        import socket

        with (
            socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as plain,
            client.wrap_socket(plain, session=session) as connection,
        ):
            return connection.recv(1000).decode().strip()

    ends = int(alice.x509.not_valid_after_utc.timestamp())
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls.context)
    async with asyncio.timeout(DEADLINE):
        port = server.sockets[0].getsockname()[1]
        visitor, first = await come(port, client)
        session = visitor.ssl_object.session
        visitor.writer.close()
        assert session is not None
        wall[0] = ends - 1
        in_time = await asyncio.to_thread(say_again, port, session)
        wall[0] = ends
        too_late = await asyncio.to_thread(say_again, port, session)
    server.close()

    assert seen == [False, True, True]
    assert first == in_time == f"{alice.fingerprint} {ends}"
    assert too_late == "expired"


async def resumes(port: int, context: ssl.SSLContext, session: ssl.SSLSession) -> bool:
    """Greet the server in the same TLS session; asyncio has no argument for it."""
    return await asyncio.to_thread(_resumes, port, context, session)


def _resumes(port: int, context: ssl.SSLContext, session: ssl.SSLSession) -> bool:
    import socket

    with (
        socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as plain,
        context.wrap_socket(plain, session=session) as connection,
    ):
        if not connection.recv(1):
            raise ConnectionResetError
        return bool(connection.session_reused)


@pytest.mark.anyio
@on_a_loop
async def test_deny_list_is_taken_up_by_reload(site: Site) -> None:
    alice, bob = (site.old.issue_client(name, days=1) for name in ("alice", "bob"))
    tls = ServerTls(site.files())
    async with asyncio.timeout(DEADLINE), greeting_server(tls) as port:
        assert not await is_refused(port, site.client(alice))
        assert not tls.is_denied(alice.fingerprint)

        site.deny(f"# who left\n\n{alice.fingerprint}  # alice\n")
        tls.reload()

        assert await is_refused(port, site.client(alice))
        assert not await is_refused(port, site.client(bob))
    assert tls.is_denied(alice.fingerprint)
    with pytest.raises(Refused, match=f"denied: certificate {alice.fingerprint} is on the deny list"):
        tls.principal(alice.x509.public_bytes(Encoding.DER))


def test_fingerprint_is_denied_however_it_is_spelled(site: Site) -> None:
    spelled = ":".join(["0A"] * 32)
    site.deny(spelled)

    assert ServerTls(site.files()).is_denied("0a" * 32)


@pytest.mark.anyio
@on_a_loop
async def test_reload_of_a_broken_file_changes_nothing(site: Site) -> None:
    tls = ServerTls(site.files())
    alice = site.old.issue_client("alice", days=1)
    site.write_ca(site.new)
    site.deny("nonsense")
    async with asyncio.timeout(DEADLINE), greeting_server(tls) as port:
        with pytest.raises(SettingsError):
            tls.reload()

        assert not await is_refused(port, site.client(alice))


# --- mistakes ---


@pytest.mark.parametrize("name", ["certificate", "key", "client_ca", "deny"])
def test_missing_file_is_named(site: Site, name: str) -> None:
    with pytest.raises(SettingsError, match=r"gone\.pem: cannot be read: No such file"):
        ServerTls(site.files(**{name: site.folder / "gone.pem"}))


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("certificate", "holds no certificate in PEM form"),
        ("key", "holds no private key in PEM form"),
        ("client_ca", "holds no certificate in PEM form"),
        ("deny", "line 1: 'nonsense' is not a SHA-256 fingerprint of 64 hex digits"),
    ],
)
def test_file_that_holds_something_else_is_named(site: Site, name: str, complaint: str) -> None:
    file = site.folder / "other.pem"
    file.write_text("nonsense\n")

    with pytest.raises(SettingsError) as caught:
        ServerTls(site.files(**{name: file}))

    assert str(caught.value) == f"{file}: {complaint}"


def test_deny_list_that_is_no_text_is_named(site: Site) -> None:
    (site.folder / "deny.txt").write_bytes(b"\xff\n")

    with pytest.raises(SettingsError, match=r"deny\.txt: is not UTF-8 text"):
        ServerTls(site.files())


def test_key_of_another_certificate_is_named(site: Site) -> None:
    _, key = site.old.issue_server(["elsewhere"], days=1).write(site.folder, "other")

    with pytest.raises(
        SettingsError, match=r"other\.key: is not the key of the certificate in .*server\.pem"
    ):
        ServerTls(site.files(key=key))


def test_key_with_a_passphrase_is_named_and_none_is_asked_for(site: Site) -> None:
    key = site.folder / "server.key"
    private = make_authority("x", days=1).certificate.key
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")))

    with pytest.raises(SettingsError, match=r"server\.key: is encrypted; a key without a passphrase"):
        ServerTls(site.files())


@pytest.mark.parametrize(
    ("days", "event"), [(-1, "certificate has expired"), (1, None)], ids=["expired", "in time"]
)
def test_certificate_out_of_date_is_logged_and_used(site: Site, days: float, event: str | None) -> None:
    site.write_server(site.old.issue_server(["127.0.0.1"], days))

    with own_logs() as logged:
        ServerTls(site.files())

    expected = [] if event is None else [(event, str(site.folder / "server.pem"))]
    assert [(entry["event"], entry["file"]) for entry in logged] == expected


# --- making certificates ---


def extension(certificate: Certificate, kind: type[Any]) -> Any:
    return certificate.x509.extensions.get_extension_for_class(kind).value


def test_authority_vouches_for_certificates_and_for_no_other_authority() -> None:
    authority = make_authority("site", days=10)
    constraints = extension(authority.certificate, x509.BasicConstraints)
    usage = extension(authority.certificate, x509.KeyUsage)

    assert (constraints.ca, constraints.path_length) == (True, 0)
    assert (usage.key_cert_sign, usage.digital_signature) == (True, False)
    authority.certificate.x509.verify_directly_issued_by(authority.certificate.x509)


def test_server_bears_its_hosts_and_serves_only() -> None:
    authority = make_authority("site", days=10)
    server = authority.issue_server(["broker.example", "192.0.2.1", "2001:db8::1"], days=5)
    names = extension(server, x509.SubjectAlternativeName)

    assert server.subject == "broker.example"
    assert names.get_values_for_type(x509.DNSName) == ["broker.example"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.1", "2001:db8::1"]
    assert list(extension(server, x509.ExtendedKeyUsage)) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert not extension(server, x509.BasicConstraints).ca
    server.x509.verify_directly_issued_by(authority.certificate.x509)


def test_client_is_a_client_only_for_as_long_as_asked() -> None:
    client = make_authority("site", days=10).issue_client("till-1", days=5)
    lasts = client.x509.not_valid_after_utc - client.x509.not_valid_before_utc

    assert client.subject == "till-1"
    assert list(extension(client, x509.ExtendedKeyUsage)) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert lasts.total_seconds() == 5 * 86400 + 300


def test_server_of_no_host_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="names one host or more"):
        make_authority("site", days=1).issue_server([], days=1)


def test_host_longer_than_a_subject_may_be_is_in_the_names() -> None:
    host = f"{'a' * 60}.{'b' * 60}.example"
    server = make_authority("site", days=1).issue_server([host], days=1)

    assert extension(server, x509.SubjectAlternativeName).get_values_for_type(x509.DNSName) == [host]


def test_key_file_is_its_owners_alone_and_the_rest_is_for_all(tmp_path: Path) -> None:
    certificate, key = make_authority("site", days=1).certificate.write(tmp_path, "ca")

    assert oct(key.stat().st_mode)[-3:] == "600"
    assert oct(certificate.stat().st_mode)[-3:] == "644"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["ca.key", "ca.pem"]


def test_authority_is_the_same_when_loaded_from_its_files(tmp_path: Path) -> None:
    made = make_authority("site", days=1)

    loaded = Authority.load(*made.certificate.write(tmp_path, "ca"))

    assert loaded.certificate.fingerprint == made.certificate.fingerprint
    loaded.issue_client("till-1", days=1).x509.verify_directly_issued_by(made.certificate.x509)


def test_files_that_are_no_authoritys_are_named(tmp_path: Path) -> None:
    authority = make_authority("site", days=1)
    ca, ca_key = authority.certificate.write(tmp_path, "ca")
    client, client_key = authority.issue_client("till-1", days=1).write(tmp_path, "till-1")
    rsa_key = tmp_path / "rsa.key"
    rsa_key.write_bytes(
        rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
    )

    with pytest.raises(SettingsError, match=r"till-1\.pem: is no CA's; `nebula cert ca` makes one"):
        Authority.load(client, client_key)
    for wrong in (client_key, rsa_key):
        with pytest.raises(SettingsError, match=rf"{wrong.name}: is not the key \(EC\) of .*ca\.pem"):
            Authority.load(ca, wrong)
    with pytest.raises(SettingsError, match="no certificate and plain key in PEM form"):
        Authority.load(ca_key, ca)
    with pytest.raises(SettingsError, match=r"gone\.pem: cannot be read: No such file"):
        Authority.load(tmp_path / "gone.pem", ca_key)


def test_key_is_shown_by_no_repr() -> None:
    assert "key" not in repr(make_authority("site", days=1))
