"""TLS of a listener: its certificate, the CAs of its clients, and their reload at run time.

Theory of the reload. Certificates expire every few weeks, and a broker has connections that last for months,
so files must change under a listener that stays open. Three facts make that hard:

- A server (asyncio's and uvloop's) keeps the `SSLContext` that it was created with. So the listener gets a
  stand-in (`_StandIn`), which hands each handshake to the context that was loaded last.
- A context can be given more CAs, but none can be removed. So a reload makes a new context from all files,
  and replaces the old one in one assignment. If any file cannot be used, nothing has changed.
- TLS lets a client resume an earlier session without showing its certificate again. The memory of sessions
  belongs to the context: after a reload no session that began under the old CA can be resumed. Within one
  context the expiry of the certificate is checked here again (`identify`).

A reload is for handshakes to come. Open connections are judged by `lifetimes`, which ends those whose
certificate is denied now.
"""

from __future__ import annotations

import hashlib
import re
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from nebula.broker.server.identity import Identity, Proof
from nebula.errors import Refused, SettingsError
from nebula.logs import get_logger

_log = get_logger("nebula.broker")

_FINGERPRINT: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of a listener's TLS.

    Attributes:
        certificate: PEM: the broker's certificate, then the intermediate ones, if any.
        key: PEM: its private key, without a passphrase.
        client_ca: PEM: the CAs of clients; None: clients are not asked for a certificate.
        deny: a text file with a fingerprint (SHA-256 of a client's certificate) on each line; `#` begins a
            comment. These clients are refused although a CA vouches for them.
        needs_client_certificate: False: a client without a certificate may authenticate in another way; one
            that shows a certificate must show a good one.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None
    deny: Path | None = None
    needs_client_certificate: bool = True


class ServerTls:
    """TLS for `create_server(ssl=tls.context)`.

    Handshakes follow the files as they were read last; connections that are open stay as they are.

    Raises:
        SettingsError: a file that cannot be used.

    Attributes:
        context: stays the same object over reloads, for asyncio's and uvloop's servers.
        needs_client_certificate: clients without a certificate are refused.
        certificate_ends_at: seconds since 1970, of the certificates in use; the first to expire counts.
        client_ca_ends_at: the same of the CAs of clients; None: clients need no certificate.
    """

    certificate_ends_at: float
    client_ca_ends_at: float | None

    def __init__(self, settings: TlsFiles) -> None:
        self._settings = settings
        self._denied: frozenset[str] = frozenset()
        self.context = _StandIn()
        self.needs_client_certificate = settings.client_ca is not None and settings.needs_client_certificate
        self.reload()

    def reload(self) -> None:
        """Read all files again, for handshakes from now on. Open connections stay; see `lifetimes`.

        Raises:
            SettingsError: a file cannot be used; everything stays as it was.
        """
        # Both are read before either counts: a reload changes everything or nothing.
        actual = _actual_context(self._settings)
        denied = _read_denied(self._settings.deny)
        ends = _first_end(self._settings.certificate)
        authority = self._settings.client_ca
        client_ca_ends = None if authority is None else _first_end(authority)
        self.context.actual = actual
        self._denied = denied
        self.certificate_ends_at, self.client_ca_ends_at = ends, client_ca_ends

    def principal(self, der: bytes | None) -> str | None:
        """The principal of a peer (B.2): the SHA-256 of its certificate in lower-case hex. None: it has shown
        no certificate.

        Args:
            der: as `ssl_object.getpeercert(binary_form=True)` gives it, after the handshake.

        Raises:
            Refused: it is on the deny list.
        """
        if not der:
            return None
        principal = hashlib.sha256(der).hexdigest()
        if self.is_denied(principal):
            raise Refused("denied", f"certificate {principal} is on the deny list")
        return principal

    def identify(self, peer: ssl.SSLObject, wall: float) -> Identity | None:
        """The identity in a peer's certificate; None: it has none.

        Args:
            peer: after the handshake.
            wall: seconds since 1970.

        Raises:
            Refused: its certificate is on the deny list or has expired. TLS 1.2 may resume an older session
                without checking the date.
        """
        principal = self.principal(peer.getpeercert(binary_form=True))
        if principal is None:
            return None
        # `getpeercert()` has fields only of a verified certificate, and here OpenSSL has verified it.
        expires_at = float(ssl.cert_time_to_seconds(str((peer.getpeercert() or {})["notAfter"])))
        if wall >= expires_at:
            raise Refused("expired", f"certificate {principal} has expired")
        return Identity(principal, Proof.CERTIFICATE, expires_at)

    def is_denied(self, principal: str) -> bool:
        """Whether it is on the deny list that was read last."""
        return principal in self._denied


class _StandIn(ssl.SSLContext):
    """Stands for the context that was loaded last, `actual`.

    asyncio and uvloop call nothing but `wrap_bio`, once for each connection.
    """

    actual: ssl.SSLContext

    def __new__(cls) -> Self:
        # Without a protocol `SSLContext` warns that its default is deprecated.
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        return self.actual.wrap_bio(*arguments, **options)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        return self.actual.wrap_socket(*arguments, **options)


def _actual_context(files: TlsFiles) -> ssl.SSLContext:
    _check_pair(files.certificate, files.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # 1.0 and 1.1 are deprecated (RFC 8996).
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Renegotiation exists in TLS 1.2 only, and lets a peer make the broker work without end.
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(files.certificate, files.key)
    except ssl.SSLError as error:
        # Rare, because the pair was checked: OpenSSL requires longer keys, or a chain in order.
        raise SettingsError(f"{files.certificate}: OpenSSL does not take it: {error.reason}") from None
    if files.client_ca is not None:
        for authority in _certificates(files.client_ca):
            _warn_of_dates(files.client_ca, authority)
        context.load_verify_locations(files.client_ca)
        # OPTIONAL admits peers without a certificate, but a certificate that is shown must be valid.
        context.verify_mode = ssl.CERT_REQUIRED if files.needs_client_certificate else ssl.CERT_OPTIONAL
        # A resumed session shows no certificate: the one of its first handshake counts, and its date is not
        # checked again. The first line is for TLS 1.3, the second for 1.2.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    return context


def _check_pair(certificate: Path, key: Path) -> None:
    """Say which of the two files is wrong, as OpenSSL does not; warn of one that peers will not take."""
    # The first one is the broker's own; the rest are intermediate CAs (RFC 8446, 4.4.2).
    own, *_ = _certificates(certificate)
    try:
        private = load_pem_private_key(_read(key), password=None)
    except TypeError:
        raise SettingsError(f"{key}: is encrypted; a key without a passphrase is needed") from None
    except ValueError:
        raise SettingsError(f"{key}: holds no private key in PEM form") from None
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if private.public_key().public_bytes(*form) != own.public_key().public_bytes(*form):
        raise SettingsError(f"{key}: is not the key of the certificate in {certificate}")
    _warn_of_dates(certificate, own)


def _certificates(file: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(_read(file))
    except ValueError:
        raise SettingsError(f"{file}: holds no certificate in PEM form") from None


def _first_end(file: Path) -> float:
    return min(each.not_valid_after_utc.timestamp() for each in _certificates(file))


def _warn_of_dates(file: Path, certificate: x509.Certificate) -> None:
    # Only a warning: the broker's clock may be wrong, and peers may pin the certificate.
    now = datetime.now(UTC)
    if now > certificate.not_valid_after_utc:
        _log.warning(
            "certificate has expired", file=str(file), on=certificate.not_valid_after_utc.isoformat()
        )
    elif now < certificate.not_valid_before_utc:
        _log.warning(
            "certificate is not valid yet", file=str(file), until=certificate.not_valid_before_utc.isoformat()
        )


def _read_denied(file: Path | None) -> frozenset[str]:
    if file is None:
        return frozenset()
    try:
        lines = _read(file).decode().splitlines()
    except UnicodeDecodeError:
        raise SettingsError(f"{file}: is not UTF-8 text") from None
    denied = set()
    for number, line in enumerate(lines, 1):
        # OpenSSL and browsers show a fingerprint with colons and in capitals.
        words = line.partition("#")[0].strip().replace(":", "").lower()
        if words and not _FINGERPRINT.fullmatch(words):
            raise SettingsError(
                f"{file}: line {number}: {line.strip()!r} is not a SHA-256 fingerprint of 64 hex digits"
            )
        denied.add(words)
    return frozenset(denied - {""})


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read: {error.strerror}") from None
