"""PostgreSQL database: its URL, shown without its password, and connections to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from nebula.errors import SettingsError
from nebula.rpc.jobs.registry.errors import RegistryAway

if TYPE_CHECKING:
    import psycopg

__all__ = ["Database", "one_line"]

_SCHEMES: Final = ("postgresql://", "postgres://")

# A cut network is noticed within some ten seconds, and not after the two hours of TCP's own.
_DEFAULTS: Final[dict[str, Any]] = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


@dataclass(frozen=True, slots=True)
class Database:
    """A PostgreSQL database.

    Args:
        url: `postgresql://user:password@host:port/name`, or what else libpq takes for a URL; what it does not
            say, libpq takes from the environment and from `~/.pgpass`.
        origin: where it comes from, for errors.

    Raises:
        SettingsError: it is no such URL, or psycopg is not installed.
    """

    # Not in the repr, which ends up in logs and tracebacks: it may have a password.
    url: str = field(repr=False)
    origin: str = "Responder(jobs=…)"

    def __post_init__(self) -> None:
        # Never the text itself: there may be a password in it.
        if not self.url.startswith(_SCHEMES):
            raise SettingsError(f"{self.origin}: jobs are kept at a URL such as postgresql://user@host/name")
        try:
            from psycopg import ProgrammingError
        except ImportError as error:
            raise SettingsError(
                f"{self.origin}: PostgreSQL needs psycopg: pip install 'nebula-rpc[postgresql]'"
            ) from error
        try:
            is_plain = self._is_plain()
        except ProgrammingError:
            is_plain = False
        if not is_plain:
            raise SettingsError(
                f"{self.origin}: this is no URL of PostgreSQL, which looks like "
                "postgresql://user:password@host:5432/name; signs such as @ / % in a password must be "
                "percent-encoded"
            )

    @property
    def place(self) -> str:
        """Where it is, for people, and what says so."""
        parts = self._parts()
        host = parts.get("host") or "the local socket"
        # Of two hosts without one it is a comma.
        port = f":{ports}" if (ports := parts.get("port", "").strip(",")) else ""
        name = parts.get("dbname") or "of the user"
        return f"{self.origin}: PostgreSQL at {host}{port}, database {name}"

    def connect(self, name: str, seconds: float = 5.0) -> psycopg.Connection[Any]:
        """A connection that commits each statement by itself. Looking up a host's name has no time limit.

        Args:
            name: what the server's lists show.
            seconds: for each address, unless the URL says `connect_timeout`; libpq takes 2 for what is less.

        Raises:
            RegistryAway: it cannot be had now.
        """
        import psycopg

        # The URL overrides the defaults, and nothing overrides the name.
        wanted = {"connect_timeout": max(2, int(seconds)), **_DEFAULTS, **self._parts()}
        wanted["application_name"] = name
        try:
            return psycopg.connect(autocommit=True, **wanted)
        except psycopg.Error as error:
            # Every failure counts as temporary, because errors of libpq have no code that would tell a wrong
            # password from a server that starts.
            raise RegistryAway(f"{self.place}: {one_line(error)}") from None

    def _is_plain(self) -> bool:
        # What follows a / or @ in a password is host, port or database to libpq, which shows them.
        before, at, after = self.url.partition("://")[2].partition("@")
        ports = str(self._parts().get("port", "")).split(",")
        is_split_as_written = not (at and "/" in before) and "@" not in after
        return is_split_as_written and all(port.isdecimal() for port in ports if port)

    def _parts(self) -> dict[str, Any]:
        from psycopg.conninfo import conninfo_to_dict

        return {key: value for key, value in conninfo_to_dict(self.url).items() if value is not None}


def one_line(error: Exception) -> str:
    """What the server or libpq says, which names users and hosts, and never a password."""
    return " ".join(str(error).split()) or type(error).__name__
