"""Certificates: a CA for a site, and its brokers and clients.

    authority = make_authority("example site", days=3650)
    authority.certificate.write(folder, "ca")
    authority.issue_server(["broker.example", "192.0.2.1"], days=365).write(folder, "server")
    authority.issue_client("till-1", days=365).write(folder, "till-1")

A client's principal at the broker is its certificate's `fingerprint`.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from nebula.errors import SettingsError

# Peers' clocks differ; a certificate that is used the minute it was made has to be valid for them.
_BACKDATED: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate with its private key.

    Attributes:
        x509: the certificate as the library has it.
        key: never shown by `repr`.
    """

    x509: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def subject(self) -> str:
        """Whose it is: the common name."""
        return str(self.x509.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the DER in lower-case hex: the principal of a client, the `pin` of a broker."""
        return hashlib.sha256(self.x509.public_bytes(Encoding.DER)).hexdigest()

    @property
    def pem(self) -> bytes:
        """The certificate as files have it."""
        return self.x509.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The private key, not encrypted."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def write(self, folder: Path, stem: str) -> tuple[Path, Path]:
        """Write `STEM.pem`, and `STEM.key` for this user only. Each file is written completely or not at all.

        Raises:
            OSError: as writing does.
        """
        certificate, key = folder / f"{stem}.pem", folder / f"{stem}.key"
        _write(key, self.key_pem, 0o600)
        _write(certificate, self.pem, 0o644)
        return certificate, key


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA that vouches for brokers and clients. Its key can make further certificates.

    Attributes:
        certificate: its own, which those who trust it need.
    """

    certificate: Certificate

    @classmethod
    def load(cls, certificate: Path, key: Path) -> Authority:
        """Take up the CA of two files.

        Raises:
            SettingsError: one of them is not a CA's certificate or its key.
        """
        try:
            own = x509.load_pem_x509_certificate(certificate.read_bytes())
            private = load_pem_private_key(key.read_bytes(), password=None)
        except OSError as error:
            raise SettingsError(f"{error.filename}: cannot be read: {error.strerror}") from None
        except (TypeError, ValueError):
            raise SettingsError(
                f"{certificate} and {key}: no certificate and plain key in PEM form"
            ) from None
        # Only EC, which is what `make_authority` makes.
        if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != own.public_key():
            raise SettingsError(f"{key}: is not the key (EC) of {certificate}")
        if not _is_authority(own):
            raise SettingsError(f"{certificate}: is no CA's; `nebula cert ca` makes one")
        return cls(Certificate(own, private))

    def issue_server(self, hosts: Sequence[str], days: float) -> Certificate:
        """Vouch for a broker at these names and IP addresses; the first is its subject.

        Raises:
            ValueError: none is given.
        """
        # RFC 9525: peers check the subjectAltName, and ignore the common name.
        if not hosts:
            raise ValueError("a server's certificate names one host or more")
        names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
        # A common name has 64 characters at most; what peers look at are the names above.
        return self._issue(hosts[0][:64], days, ExtendedKeyUsageOID.SERVER_AUTH, names)

    def issue_client(self, name: str, days: float) -> Certificate:
        """Vouch for a client. The name is for people: the fingerprint is what says who it is."""
        return self._issue(name, days, ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _issue(
        self,
        name: str,
        days: float,
        usage: x509.ObjectIdentifier,
        alternatives: x509.SubjectAlternativeName | None,
    ) -> Certificate:
        own = self.certificate
        # TLS 1.3 requires every peer to support P-256 (RFC 8446, 9.1).
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(name, own.x509.subject, key, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(is_authority=False), critical=True)
            # Otherwise clients could authenticate with a server's certificate, and servers with a client's.
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(own.key.public_key()), critical=False
            )
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        return Certificate(builder.sign(own.key, hashes.SHA256()), key)


def ends_of_pem(data: bytes) -> list[float]:
    """When the certificates of a PEM file end, in seconds since 1970.

    Raises:
        ValueError: it holds no certificate.
    """
    return [each.not_valid_after_utc.timestamp() for each in x509.load_pem_x509_certificates(data)]


def end_of_der(data: bytes) -> float:
    """When a certificate ends, in seconds since 1970.

    Args:
        data: DER, as `getpeercert(binary_form=True)` returns it.
    """
    return x509.load_der_x509_certificate(data).not_valid_after_utc.timestamp()


def make_authority(name: str, days: float) -> Authority:
    """Make a CA that vouches for itself, and for no other CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    builder = (
        _builder(name, subject, key, days)
        # `path_length` 0: it signs end certificates, and no other CA.
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_authority=True), critical=True)
    )
    return Authority(Certificate(builder.sign(key, hashes.SHA256()), key))


def _builder(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: float
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(issuer)
        .public_key(public)
        # Random, not counted: nothing has to be kept between two runs, and serial numbers cannot be guessed
        # (RFC 5280, 4.1.2.2 allows 20 bytes).
        .serial_number(x509.random_serial_number())
        # A short life, as tests want it, must not end before it begins.
        .not_valid_before(min(now, now + timedelta(days=days)) - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    # RFC 5280, 4.2.1.3. With EC keys TLS needs signatures alone.
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        # RFC 5280, 4.2.1.9: a CA's certificate has this extension.
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _write(file: Path, data: bytes, mode: int) -> None:
    # In the same folder, so that a rename is enough. Only its owner may read a temporary file.
    handle, part = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            os.fchmod(handle, mode)
        Path(part).replace(file)
    except BaseException:
        Path(part).unlink()
        raise
