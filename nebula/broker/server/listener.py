"""A listener: an address, and the rules for connections that arrive there.

It is a value: `open_listeners` opens its socket.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nebula.broker.core.profiles import STANDARD, Profile
from nebula.broker.server.identity import Identity, Proof
from nebula.errors import SettingsError

if TYPE_CHECKING:
    from nebula.broker.server.authenticator import Authenticator
    from nebula.broker.server.tls import ServerTls


@dataclass(frozen=True, slots=True)
class Listener:
    """An address, and the rules that hold there.

    Attributes:
        host: name or address of an interface.
        port: 0: the system picks one.
        profile: the set of rules that it follows.
        tls: its certificate and the CAs of its clients; None: not encrypted.
        http: it speaks HTTP, and STOMP over WebSocket at /stomp.
        origins: web origins whose pages may connect, for an HTTP listener.
        calls: it serves `POST /call/SERVICE/VERB` too, for an HTTP listener.
        hosts: host names that such requests may use, in addition to its own and those of `origins`.
        console: it serves the console at /console/ too, for an HTTP listener; its own pages may connect.
        authenticator: authenticates peers without a client certificate; None: they are anonymous, which is
            allowed on loopback only.

    Raises:
        SettingsError: rules that contradict each other.
    """

    host: str = "127.0.0.1"
    port: int = 61613
    profile: Profile = STANDARD
    tls: ServerTls | None = None
    http: bool = False
    origins: tuple[str, ...] = ()
    authenticator: Authenticator | None = None
    calls: bool = False
    hosts: tuple[str, ...] = ()
    console: bool = False

    def __post_init__(self) -> None:
        # B.2: principals of the MaXaM profile are certificates.
        identifies = self.tls is not None and self.tls.needs_client_certificate
        if self.profile.needs_certificate and not identifies:
            raise SettingsError(
                f"listener {self.host}:{self.port}: profile {self.profile.name} needs TLS with client"
                " certificates: give it tls_cert, tls_key and client_ca"
            )
        # A listener that other machines can reach must not be open by accident, so the operator has to write
        # `anonymous = true`.
        if not identifies and self.authenticator is None and not is_loopback(self.host):
            raise SettingsError(
                f"listener {self.host}:{self.port}: clients have no way to authenticate; give it"
                " client_ca, or users or jwks under [identity], or anonymous = true"
            )

    @property
    def renewals(self) -> list[Callable[[], None]]:
        """Functions that read its files again."""
        return [each.reload for each in (self.tls, self.authenticator) if each is not None]

    def denies(self, identity: Identity) -> bool:
        """Whether its certificate is on the deny list now."""
        if self.tls is None or identity.proof is not Proof.CERTIFICATE:
            return False
        return self.tls.is_denied(identity.principal)

    def still_knows(self, identity: Identity) -> bool:
        """Whether its proof would still be accepted with the files as they are now."""
        if identity.proof not in (Proof.PASSCODE, Proof.TOKEN):
            # Certificates are judged at the handshake, by their date, and by the deny list (`denies`).
            return True
        return self.authenticator is not None and self.authenticator.still_knows(identity)

    @property
    def is_anonymous(self) -> bool:
        """Whether peers may connect without proving who they are."""
        if self.tls is not None and self.tls.needs_client_certificate:
            return False
        return self.authenticator is None or self.authenticator.may_be_anonymous

    @property
    def scheme(self) -> str:
        """The scheme of its URLs."""
        plain = "ws" if self.http else "stomp"
        return plain if self.tls is None else f"{plain}s"


def is_loopback(host: str) -> bool:
    """Whether an interface, by its name or address, can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    # Other host names may resolve to any address.
    except ValueError:
        return False


def host_name(url: str) -> str:
    """The host that a URL names, or an empty text."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
