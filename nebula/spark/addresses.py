"""Addresses of Spark as they are declared: masters, and Connect servers (`sc://host:15002/;token=…`).

An address may have a token or a password, so no error here repeats more than its beginning.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote, urlsplit

DEFAULT_PORT: Final = 15002

_HOST: Final = r"([\w.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}"

# As Spark reads them; a Kubernetes API may have a path.
_MASTER: Final = re.compile(
    r"local|local\[([1-9]\d*|\*)(\s*,\s*\d+)?\]|local-cluster\[\s*[1-9]\d*\s*,\s*[1-9]\d*\s*,\s*[1-9]\d*\s*\]"
    rf"|spark://{_HOST}(,{_HOST})*|yarn|k8s://(https?://)?[^\s;?#@/]+(/[^\s;?#@]*)?"
)

_PLACES: Final = "local[*], local[4], spark://host:7077, yarn or k8s://https://host:6443"


def check_master(master: str, source: str) -> None:
    """Check that Spark knows such a master, which it would say itself some ten seconds later.

    Args:
        master: the address.
        source: who says so, for the error.

    Raises:
        ValueError: it does not.
    """
    if not _MASTER.fullmatch(master):
        more = "; a Connect server is sc://host:15002" if source == "NEBULA_SPARK" else ""
        raise ValueError(f"{source} is {_shown(master)}, which is no master of Spark's: give {_PLACES}{more}")


@dataclass(frozen=True, slots=True)
class Remote:
    """Address of a Connect server, with the client's parameters. As text it has no token."""

    host: str
    port: int
    parameters: dict[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"sc://{host}:{self.port}"

    @property
    def user_id(self) -> str | None:
        """The user whose sessions are opened, where it is declared."""
        return self.parameters.get("user_id")

    def url(self, **more: str) -> str:
        """As the client of Spark takes it, with these parameters in addition."""
        # `safe=''`: by default `quote` leaves slashes, which are syntax of the address.
        told = {**self.parameters, **more}
        return f"{self}/;" + ";".join(f"{name}={quote(value, safe='')}" for name, value in told.items())


def parse_remote(url: str, source: str = "remote") -> Remote:
    """Check the address and take it apart.

    Args:
        url: the address.
        source: who says so, for the error.

    Raises:
        ValueError: what is wrong with it, in a sentence without its token, wherever that stands.
    """
    scheme, _, rest = url.partition("://")
    if scheme != "sc":
        raise ValueError(f"{source} is {_shown(url)}: give a Connect server as sc://host:{DEFAULT_PORT}")
    address, _, parameters = rest.partition(";")
    host, port = _host_and_port(address.removesuffix("/"), source)
    remote = Remote(host, port, _parameters(parameters, source))
    if "session_id" in remote.parameters:
        raise ValueError(f"{source} has a session_id: each job gets a session of its own, leave it out")
    _check_token(remote)
    return remote


def _host_and_port(address: str, source: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port or DEFAULT_PORT
    except ValueError:
        host = None
    # `netloc` must be the whole address: otherwise a path or a query would be dropped silently.
    if not host or parts.netloc != address or "@" in address:
        raise ValueError(
            f"{source} is no address of a Connect server: give sc://host:{DEFAULT_PORT}, with "
            "/;token=… behind it where it wants one"
        ) from None
    return host, port


def _parameters(text: str, source: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(";") if part]
    if not all(equals and value for _, equals, value in pairs):
        raise ValueError(f"the parameters of {source} are name=value, with a semicolon between them")
    return {name: unquote(value) for name, _, value in pairs}


def _check_token(remote: Remote) -> None:
    # The client speaks TLS as soon as there is a token, unless the host is called `localhost`, and
    # retries for minutes when the server does not.
    if "token" not in remote.parameters or remote.parameters.get("use_ssl") == "true":
        return
    try:
        is_loopback = ipaddress.ip_address(remote.host).is_loopback
    except ValueError:
        # A host name is not resolved here; the client decides by the text `localhost` alone.
        return
    if is_loopback:
        raise ValueError(
            f"with token= Spark's client speaks TLS to {remote.host}: write sc://localhost:{remote.port}, "
            "which it speaks to in clear, or add use_ssl=true if the server has a certificate"
        )


def _shown(address: str) -> str:
    """As much of a mistaken address as cannot be a password, a token or the name of a user."""
    # Up to the first character that may precede a secret.
    begin = re.match(r"[^:/;?=@#]*[:/]*", address)
    assert begin is not None  # it matches nothing, too
    return repr(begin[0] + ("…" if begin.end() < len(address) else ""))
