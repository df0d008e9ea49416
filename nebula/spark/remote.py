"""The address of a Spark Connect server, as it is declared: `sc://host:15002/;token=…`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit

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


def parse_remote(url: str) -> Remote:
    """Check the address and take it apart.

    Raises:
        ValueError: what is wrong with it, in a sentence without its token.
    """
    scheme, _, rest = url.partition("://")
    if scheme != "sc":
        raise ValueError(f"remote begins with {scheme}: give a Connect server as sc://host:{DEFAULT_PORT}")
    address, _, parameters = rest.partition(";")
    try:
        parts = urlsplit(f"//{address.removesuffix('/')}")
        host, port = parts.hostname, parts.port or DEFAULT_PORT
    except ValueError as error:
        raise ValueError(f"remote sc://{address} is no address: {error}") from error
    if not host or parts.path or parts.query:
        raise ValueError(f"remote sc://{address} is no address: give sc://host:{DEFAULT_PORT}")
    remote = Remote(host, port, _parameters(parameters))
    if "session_id" in remote.parameters:
        raise ValueError("remote has a session_id: each job gets a session of its own, leave it out")
    _check_token(remote)
    return remote


def _parameters(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(";") if part]
    if not all(equals and value for _, equals, value in pairs):
        raise ValueError("the parameters of remote are name=value, with a semicolon between them")
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
