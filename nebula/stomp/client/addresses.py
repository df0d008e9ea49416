"""Broker addresses: `stomp[s]://[LOGIN[:PASSCODE]@]HOST[:PORT][/VIRTUAL-HOST]`, or `ws[s]://…[/PATH]`.

`memory://[LOGIN@]NAME` is a broker in this process. The default broker is chosen in
`nebula.stomp.client.ambient`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from nebula.errors import SettingsError

BROKER_VARIABLE: Final = "NEBULA_BROKER"
DEFAULT_URL: Final = "stomp://127.0.0.1:61613"

# Customary, because STOMP itself names no port (B.3); the ports of WebSockets are those of RFC 6455, 3.
_PORTS: Final = {"stomp": 61613, "stomps": 61614, "ws": 80, "wss": 443, "memory": 0}
_ENCRYPTED = frozenset({"stomps", "wss"})
_WEBSOCKETS = frozenset({"ws", "wss"})
_MEMORY: Final = "memory"

# The path of WebSockets at Nebula's broker.
_WEBSOCKET_PATH = "/stomp"

_FORM = (
    "an address reads stomp[s]://[LOGIN:PASSCODE@]HOST[:PORT], or ws[s]:// likewise, for example"
    f" {DEFAULT_URL}"
)


@dataclass(frozen=True, slots=True)
class Address:
    """The address of one broker, with login and passcode.

    Attributes:
        host: a name or an IP address, IPv6 without brackets; in memory the broker's name.
        port: TCP port; 0 in memory.
        login: None where the address names none.
        passcode: never shown by `repr`.
        virtual_host: what CONNECT sends as `host`. RabbitMQ's default is "/" and it refuses
            unknown ones; our broker takes anything (D.17).
        is_tls: the connection is encrypted, and the broker's certificate is verified.
        path: of the WebSocket; None: STOMP over TCP.
        is_memory: the broker is in this process, and no network is used.
    """

    host: str
    port: int
    login: str | None = None
    passcode: str | None = field(default=None, repr=False)
    virtual_host: str = "/"
    is_tls: bool = False
    path: str | None = None
    is_memory: bool = False

    @property
    def place(self) -> str:
        """Host and port, for messages: without login and passcode."""
        return f"{_MEMORY}://{self.host}" if self.is_memory else f"{self.host}:{self.port}"


def parse_address(url: str) -> Address:
    """Read a broker's address.

    Without a port it is 61613, 61614 for `stomps`, 80 for `ws` and 443 for `wss`; the path of a WebSocket is
    `/stomp` where none is given.

    Raises:
        SettingsError: it is not an address. The text never shows a passcode.
    """
    parts, port = _split(url)
    _check_scheme(parts.scheme, url)
    if not parts.hostname:
        raise _unusable(url, "it names no host")
    if parts.query or parts.fragment:
        raise _unusable(url, "a query or a fragment has no meaning here")
    if parts.scheme == _MEMORY and port is not None:
        raise _unusable(url, "a broker in memory has a name and no port")
    is_websocket = parts.scheme in _WEBSOCKETS
    return Address(
        host=parts.hostname,
        port=_PORTS[parts.scheme] if port is None else port,
        login=None if parts.username is None else unquote(parts.username),
        passcode=None if parts.password is None else unquote(parts.password),
        virtual_host="/" if is_websocket else unquote(parts.path.removeprefix("/")) or "/",
        is_tls=parts.scheme in _ENCRYPTED,
        path=_path(parts.path) if is_websocket else None,
        is_memory=parts.scheme == _MEMORY,
    )


def _split(url: str) -> tuple[SplitResult, int | None]:
    if any(character.isspace() or not character.isprintable() for character in url):
        # `urlsplit` drops some of them silently, and what is left may name another host.
        raise _unusable(url, "it holds a blank or a control character")
    try:
        parts = urlsplit(url)
        port = parts.port  # reading it is what checks it
    except ValueError:
        # The library's own text would show the part that holds the passcode.
        raise _unusable(url, "its host or port cannot be read") from None
    if port == 0:
        raise _unusable(url, "port 0 cannot be connected to")
    return parts, port


def _check_scheme(scheme: str, url: str) -> None:
    if scheme not in _PORTS:
        raise _unusable(url, f"{scheme or 'nothing'!r} is not a scheme that we know")


def _path(path: str) -> str:
    # In HTTP no path and "/" are the same. Escapes stay as they are.
    return _WEBSOCKET_PATH if path in ("", "/") else quote(path, safe="/%:@!$&'()*+,;=")


def _unusable(url: str, reason: str) -> SettingsError:
    # Everything before the last @ may be a passcode, even if the text is not an address.
    shown = url.rpartition("@")[2]
    return SettingsError(f"broker address {shown!r}: {reason}; {_FORM}")
