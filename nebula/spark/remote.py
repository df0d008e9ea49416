"""The address of a Spark Connect server, as it is declared: `sc://host:15002/;token=…`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit

from nebula.spark.masters import shown

DEFAULT_PORT = 15002


@dataclass(frozen=True, slots=True)
class Remote:
    """Where the server is, and what the client is told beside it. As text it has no token."""

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
        raise ValueError(f"{source} is {shown(url)}: give a Connect server as sc://host:{DEFAULT_PORT}")
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
        return
    if is_loopback:
        raise ValueError(
            f"with token= Spark's client speaks TLS to {remote.host}: write sc://localhost:{remote.port}, "
            "which it speaks to in clear, or add use_ssl=true if the server has a certificate"
        )
