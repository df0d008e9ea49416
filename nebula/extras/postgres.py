"""Shared registries of jobs in PostgreSQL. Needs the extra `postgresql`."""

from __future__ import annotations

from dataclasses import dataclass

from nebula.extras.postgres_database import Database
from nebula.rpc.jobs.registry.shared import ChangeListener, SharedRegistry

__all__ = ["PostgresJobs"]


@dataclass(frozen=True, slots=True)
class PostgresJobs:
    """A PostgreSQL database that services keep their jobs in: see `SharedDatabase`.

    Args:
        database: where.
    """

    database: Database

    @classmethod
    def at(cls, url: str, origin: str) -> PostgresJobs:
        """The database of a URL.

        Args:
            url: see `Database`.
            origin: where it comes from, for errors.

        Raises:
            SettingsError: it is no URL of PostgreSQL, or psycopg is not installed.
        """
        return cls(Database(url, origin))

    def registry(self, service: str, instance: str, *, patience: float) -> SharedRegistry:
        """See `SharedDatabase`."""
        # Imported when it is used: `Database` says what is missing where psycopg is not installed.
        from nebula.extras.postgres_registry import PostgresJobRegistry

        return PostgresJobRegistry(self.database, service, instance, patience=patience)

    def listener(self, registry: SharedRegistry) -> ChangeListener:
        """See `SharedDatabase`."""
        from nebula.extras.postgres_listener import PostgresListener
        from nebula.extras.postgres_registry import PostgresJobRegistry

        assert isinstance(registry, PostgresJobRegistry)
        return PostgresListener(self.database, registry.schema, lambda: registry.backend)
