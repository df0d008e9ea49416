"""What a venue's broker is given at start: certificates, logins, rights, and its settings.

Everything is made anew in a folder, and is worthless when that is gone.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from argon2 import PasswordHasher

from nebula.broker.operations.certificates import Authority, make_authority
from nebula.stomp.client import StompClient
from nebula.stomp.client.tls import TlsOptions
from services.venue.bodies import SCHEMAS_FOLDER
from services.venue.topics import SCHEMAS, Protocol, Topic, machine_topic, pattern_of

_CAPABILITIES: Final = Path(__file__).with_name("capabilities.toml")

_DAYS: Final = 1

# The name that a broker of MaXaM's answers to, and no other.
_VIRTUAL_HOST: Final = "MAXVAPI"


class Who(StrEnum):
    """Those who come with a certificate of their own."""

    SIMULATOR = "simulator"
    DASHBOARD = "dashboard"
    AUDITOR = "auditor"
    INTRUDER = "intruder"


class Login(StrEnum):
    """Those who come by login and passcode, from this machine alone."""

    SERVICE = "venue"
    GUEST = "guest"


_GRANTED: Final[Mapping[Who | Login, Sequence[str]]] = {
    Who.SIMULATOR: ["MAX-EGMMonitoring"],
    Who.DASHBOARD: ["Live-EGM"],
    Who.AUDITOR: ["Live-EGM"],
    Who.INTRUDER: ["Own-Status"],
    Login.SERVICE: ["Venue-Service", "Live-EGM", "MAX-Config"],
    Login.GUEST: ["Venue-Guest"],
}


@dataclass(frozen=True, slots=True)
class Site:
    """A venue's files.

    Attributes:
        folder: where they are.
        settings: of the broker.
        fingerprints: what the broker will call those who come with a certificate.
        passcodes: of those who come with a login.
    """

    folder: Path
    settings: Path
    fingerprints: Mapping[Who, str]
    passcodes: Mapping[Login, str]


@dataclass(frozen=True, slots=True)
class Doors:
    """The ways into a broker that runs.

    Attributes:
        site: its files.
        maxam: the address of those with a certificate.
        standard: the address of those with a login.
    """

    site: Site
    maxam: str
    standard: str

    @classmethod
    def of(cls, site: Site, urls: Sequence[str]) -> Doors:
        """Sort the addresses where the broker says that it listens."""
        secure = {url.startswith("stomps:"): url for url in urls}
        return cls(site, secure[True], secure[False])

    def connect(self, who: Who, *, client_id: str | None = None) -> StompClient:
        """A client that is yet to be entered, as one of those with a certificate."""
        folder = self.site.folder
        # A site controller is known by its certificate, not by a name that could be resolved (B.3).
        tls = TlsOptions(
            ca=folder / "ca.pem", cert=folder / f"{who}.pem", key=folder / f"{who}.key", verify_host=False
        )
        return StompClient(f"{self.maxam}/{_VIRTUAL_HOST}", tls=tls, client_id=client_id)

    def url_of(self, login: Login) -> str:
        """The address for one of those with a login, passcode and all."""
        scheme, _, place = self.standard.partition("//")
        return f"{scheme}//{login}:{self.site.passcodes[login]}@{place}"

    def own_status_of(self, who: Who) -> str:
        """The destination where a client with the capability Own-Status may publish."""
        return machine_topic(Protocol.X_STANDARD, self.site.fingerprints[who], Topic.STATUS)


def make_site(folder: Path) -> Site:
    """Write a venue's files into a folder."""
    authority = make_authority("a venue for a day", _DAYS)
    authority.certificate.write(folder, "ca")
    # The name of no machine: it does not matter which one the broker runs on.
    authority.issue_server(["site-controller"], _DAYS).write(folder, "server")
    fingerprints = {who: _issue(authority, who, folder) for who in Who}
    passcodes = {login: secrets.token_urlsafe() for login in Login}
    identities = [
        (fingerprints[who] if isinstance(who, Who) else who, names) for who, names in _GRANTED.items()
    ]
    _write_table(folder / "identities.toml", "identity", identities)
    hasher = PasswordHasher()
    users = [(login, hasher.hash(passcode)) for login, passcode in passcodes.items()]
    _write_table(folder / "users.toml", "users", users)
    # A copy, because the broker writes newly registered schemas to the same folder.
    shutil.copytree(SCHEMAS_FOLDER, folder / "schemas")
    settings = folder / "nebula.toml"
    settings.write_text(_settings(folder))
    return Site(folder, settings, fingerprints, passcodes)


def _settings(folder: Path) -> str:
    rights = [str(_CAPABILITIES), str(folder / "identities.toml")]
    parts = [
        f"data = {_toml(folder / 'data')}",
        f"schemas = {_toml(folder / 'schemas')}",
        f"rights = {_toml(rights)}",
        # For those with a certificate.
        "[[listener]]",
        "port = 0",
        'profile = "maxam"',
        f"tls_cert = {_toml(folder / 'server.pem')}",
        f"tls_key = {_toml(folder / 'server.key')}",
        f"client_ca = {_toml(folder / 'ca.pem')}",
        # For those with a login, on this machine.
        "[[listener]]",
        "port = 0",
        "[identity]",
        f"users = {_toml(folder / 'users.toml')}",
        "[last_value]",
        'key_patterns = ["EGM.<protocol>.**"]',
    ]
    for topic, schema in SCHEMAS.items():
        parts += ["[[destination]]", f"pattern = {_toml(pattern_of(topic))}", f"avro = {_toml(schema)}"]
    return "\n".join([*parts, ""])


def _issue(authority: Authority, who: Who, folder: Path) -> str:
    certificate = authority.issue_client(who, _DAYS)
    certificate.write(folder, who)
    return certificate.fingerprint


def _write_table(file: Path, table: str, rows: Sequence[tuple[str, str | Sequence[str]]]) -> None:
    lines = (f"{_toml(key)} = {_toml(value)}" for key, value in rows)
    file.write_text("\n".join([f"[{table}]", *lines, ""]))


def _toml(value: Path | str | Sequence[str]) -> str:
    # JSON's strings and lists of them are TOML's too.
    return json.dumps(str(value) if isinstance(value, Path) else value)
