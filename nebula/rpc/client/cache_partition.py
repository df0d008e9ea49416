"""Partition of a cache: the broker and the principal that a reply was for, as one text."""

# docs/decisions/0027: a reply is kept for one principal and one broker.
# Two callers may share a reply only if the service would have given both the same one. A service decides by
# the principal that the broker vouches for, so the partition is made of what the broker knows the client
# by: the address, the virtual host, the login, the subject of a token and the certificate.
#
# - Passcodes stay out. They prove an identity and are not part of it, and a store that others can read
#   should hold nothing that is derived from them.
# - The subject of a token is read without checking its signature. The partition keeps honest clients apart;
#   it is no lock: a program that can open the store can read all of it.
# - Loopback addresses and brokers in memory are made distinct by host name and process, because `127.0.0.1`
#   is another broker on each machine, while a store may be shared by all of them.

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import os
import socket
from collections.abc import Sequence

from nebula.errors import SettingsError
from nebula.stomp.client.addresses import Address
from nebula.stomp.client.ambient import broker_address
from nebula.stomp.client.tls import TlsOptions

__all__ = ["cache_partition_of"]


def cache_partition_of(urls: Sequence[str | None], tls: TlsOptions | None) -> str:
    """A text that is equal for clients that have the same addresses, and the same identity there.

    It tells brokers apart by their addresses, and an address of this machine from the same one on another.
    It says nothing of passcodes.

    Args:
        urls: as for `broker_address`, in whatever order.
        tls: with the client's certificate; None is what the environment says.

    Raises:
        SettingsError: an address, or the certificate, cannot be used.
    """
    addresses = [broker_address(url) for url in urls]
    certificate = _certificate(tls) if any(one.is_tls for one in addresses) else ""
    known = sorted([_place(one), one.virtual_host, *_identity(one), certificate] for one in addresses)
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:32]


def _place(address: Address) -> str:
    if address.is_memory:
        return f"{address.place} of {os.getpid()} on {socket.gethostname()}"
    return f"{address.place} on {socket.gethostname()}" if _is_here(address.host) else address.place


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _identity(address: Address) -> tuple[str, str]:
    """The login and the subject of a token, which is the identity at the broker, whatever the login."""
    try:
        claims = json.loads(base64.urlsafe_b64decode((address.passcode or "").split(".")[1] + "=="))
        return address.login or "", str(claims["sub"])
    # Not a token, but a passcode: that only proves the login.
    except (ValueError, LookupError, TypeError):
        return address.login or "", ""


def _certificate(tls: TlsOptions | None) -> str:
    options = TlsOptions.from_environment() if tls is None else tls
    if options.cert is None:
        return ""
    try:
        return hashlib.sha256(options.cert.read_bytes()).hexdigest()
    except OSError as error:
        raise SettingsError(f"TLS: {options.cert}: {error.strerror}") from error
