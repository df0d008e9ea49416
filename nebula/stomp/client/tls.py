"""TLS options of a client: trusted CAs, pinned certificate, and its own certificate."""

# Three ways to know the broker, from the usual one to the strictest: a CA that the machine trusts and the
# host of the address; a private CA, with the host or without (`verify_host=False`, for sites without
# DNS, B.3); one certificate, by its fingerprint (`pin`). With a pin OpenSSL checks nothing, because a
# self-signed certificate would fail its check, and `check_peer` compares the fingerprint before anything is
# written.
#
# A combination that checks nothing is refused: with the machine's CAs and no host any certificate would do.

from __future__ import annotations

import hashlib
import hmac
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from nebula.environment import ClientEnvironment
from nebula.errors import SettingsError

_FINGERPRINT: Final = re.compile(r"[0-9a-f]{64}")
_YES_AND_NO: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """The certificates that a client trusts, and its own one. For addresses that begin with `stomps` or
    `wss`.

    By default the broker's certificate must come from a CA that this machine trusts, and name the host of the
    address.

    Attributes:
        ca: a PEM file: the CAs to trust, instead of the machine's.
        cert: a PEM file: our certificate, for brokers that ask for one.
        key: its private key; None: it is in the same file.
        pin: SHA-256 of the broker's certificate (DER) in hex, with or without colons: only this certificate
            is trusted. Its CA, host and dates do not count.
        verify_host: False: any certificate of `ca` is trusted, for whatever host. For sites whose brokers
            have no name in the DNS (B.3).

    Raises:
        SettingsError: a combination that would not check anything, or a pin that is not a fingerprint.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    pin: str | None = None
    verify_host: bool = True

    def __post_init__(self) -> None:
        if self.key is not None and self.cert is None:
            raise SettingsError("TLS: a key without its certificate: give cert (NEBULA_CERT) too")
        if not self.verify_host and self.ca is None and self.pin is None:
            # Public CAs issue certificates to everyone, each for a host of their own.
            raise SettingsError(
                "TLS: without a check of the host, any public certificate would be trusted: name your own CA"
                " by ca (NEBULA_CA), or the certificate by pin (NEBULA_PIN)"
            )
        if self.pin is not None and not _FINGERPRINT.fullmatch(_plain(self.pin)):
            raise SettingsError(f"TLS: pin {self.pin!r} is not a SHA-256 fingerprint of 64 hex digits")

    @classmethod
    def from_environment(cls) -> Self:
        """Read `NEBULA_CA`, `NEBULA_CERT`, `NEBULA_KEY`, `NEBULA_PIN` and `NEBULA_VERIFY_HOST`.

        Raises:
            SettingsError: as when made directly; or the last one is not true or false.
        """
        given = ClientEnvironment.read()
        verify_host = given.verify_host
        if verify_host.lower() not in _YES_AND_NO:
            raise SettingsError(f"NEBULA_VERIFY_HOST: {verify_host!r} is neither true nor false")
        return cls(
            ca=_file(given.ca),
            cert=_file(given.cert),
            key=_file(given.key),
            pin=given.pin or None,
            verify_host=_YES_AND_NO[verify_host.lower()],
        )


class ClientTls:
    """TLS options with their files loaded, for any number of connections.

    Raises:
        SettingsError: a file cannot be used.

    Attributes:
        context: for the handshake; with a pin it checks nothing, and `check_peer` does.
    """

    def __init__(self, options: TlsOptions) -> None:
        self._pin = None if options.pin is None else _plain(options.pin)
        # TLS 1.2 or newer is Python's default too; this makes it explicit.
        self.context = ssl.create_default_context() if options.ca is None else _context_for(options.ca)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._pin is not None or not options.verify_host:
            self.context.check_hostname = False
        if self._pin is not None:
            self.context.verify_mode = ssl.CERT_NONE
        if options.cert is not None:
            _load_own(self.context, options.cert, options.key)

    def check_peer(self, certificate: bytes | None) -> None:
        """Check that the broker's certificate (DER) is the pinned one, if there is a pin.

        Call it after the handshake and before anything is written.

        Raises:
            SSLError: it is another one.
        """
        if self._pin is None:
            return
        found = hashlib.sha256(certificate or b"").hexdigest()
        if not hmac.compare_digest(found, self._pin):
            raise ssl.SSLCertVerificationError(1, f"its certificate is not the pinned one, but {found}")


def explain(error: Exception) -> str:
    """Why a connection failed, as text; of OpenSSL's messages only the readable part."""
    match error:
        case ssl.SSLCertVerificationError(verify_message=str(message)):
            return f"its certificate cannot be trusted: {message}"
        case ssl.SSLError(reason=str(reason)):
            # The name of an alert is all that the peer sends.
            return f"no TLS: {reason.replace('_', ' ').lower()}"
        case _:
            return str(error)


def _context_for(ca: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except ssl.SSLError:
        raise SettingsError(f"TLS: ca {ca}: holds no certificate in PEM form") from None
    except OSError as error:
        raise SettingsError(f"TLS: ca {ca}: cannot be read: {error.strerror}") from None


def _load_own(context: ssl.SSLContext, cert: Path, key: Path | None) -> None:
    for file in (cert, key or cert):
        try:
            file.open("rb").close()
        except OSError as error:
            raise SettingsError(f"TLS: {file}: cannot be read: {error.strerror}") from None
    try:
        # With an empty passphrase OpenSSL fails instead of asking at the terminal.
        context.load_cert_chain(cert, key, password="")
    except ssl.SSLError as error:
        reason = (error.reason or "not in PEM form, or encrypted").replace("_", " ").lower()
        raise SettingsError(
            f"TLS: cert {cert} with key {key or cert}: {reason}; a PEM certificate is needed, and its own"
            " key without a passphrase"
        ) from None


def _file(named: str) -> Path | None:
    return Path(named) if named else None


def _plain(fingerprint: str) -> str:
    return fingerprint.replace(":", "").lower()
