"""Storage of a responder's jobs: a folder of its own, or a database that its instances share.

The one place where `nebula.rpc` names something of `nebula.extras`. `Responder(jobs=…)` and `NEBULA_JOBS` are
URLs, and a responder runs by itself: no layer above it could turn them into a `SharedDatabase`. All else here
knows the interface only.
"""

from __future__ import annotations

from pathlib import Path

from nebula.environment import ServiceEnvironment
from nebula.rpc.jobs.registry.shared import SharedDatabase
from nebula.stomp.client.ambient import ambient_broker

__all__ = ["JobStorage", "database_at", "database_of_environment"]


def database_at(url: str, origin: str = "Responder(jobs=…)") -> SharedDatabase:
    """The database of a URL.

    Args:
        url: `postgresql://user:password@host:port/name`.
        origin: where the URL comes from, for errors.

    Raises:
        SettingsError: it is no such URL, or the extra that it needs is not installed.
    """
    # Imported here because psycopg is an extra, which other services need not install.
    from nebula.extras.postgres import PostgresJobs

    return PostgresJobs.at(url, origin)


def database_of_environment() -> SharedDatabase | None:
    """The database of `NEBULA_JOBS`, or None: jobs are kept in the folder of their instance.

    Raises:
        SettingsError: as `database_at`.
    """
    named = ServiceEnvironment.read().jobs
    return database_at(named, "NEBULA_JOBS") if named else None


class JobStorage:
    """Where a responder keeps its jobs.

    Args:
        root: for state folders, see `StateFolder`; None: the usual one.
        url: of the database; None: that of `NEBULA_JOBS`, if there is one.

    Raises:
        SettingsError: as `database_at`.
    """

    def __init__(self, root: Path | None, url: str | None) -> None:
        self._root = root
        # At once: a wrong URL in the code is an error where it is written.
        self._database = None if url is None else database_at(url)

    def chosen(self) -> tuple[Path | None, SharedDatabase | None]:
        """Root and database: those of the responder, else of the block it runs in, else the usual ones.

        Raises:
            SettingsError: `NEBULA_JOBS` names no database.
        """
        block = ambient_broker()
        # In a block of `TestClient` or `embedded` the environment does not count: a test must not write to
        # the database that the developer's shell names.
        if block is None:
            return self._root, self._database or database_of_environment()
        return self._root or block.state.folder(), self._database
