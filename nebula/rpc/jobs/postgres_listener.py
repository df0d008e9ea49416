"""Hears from PostgreSQL that other instances have changed jobs: without a thread, on either event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import anyio
import psycopg

from nebula.rpc.jobs.postgres import Database, RegistryAway, one_line
from nebula.rpc.jobs.postgres_registry import CHANNEL

__all__ = ["PostgresListener"]


class PostgresListener:
    """A connection that listens. Making one blocks.

    Args:
        database: where.
        schema: of the service's jobs.

    Raises:
        RegistryAway: there is no connection.
    """

    def __init__(self, database: Database, schema: str) -> None:
        self._database, self._schema = database, schema.encode()
        self._db = database.connect(f"listener of {schema}")
        try:
            self._db.execute(f"LISTEN {CHANNEL}".encode())
        except psycopg.Error as error:
            self._db.close()
            raise RegistryAway(f"{database.place}: {one_line(error)}") from None

    async def wait(self, own: Callable[[], int]) -> None:
        """Return once another connection has changed the service's jobs, or has since the last time.

        Args:
            own: the server's process for our own connection, whose changes are known.

        Raises:
            RegistryAway: the connection ended.
        """
        while not self._has_heard(own()):
            await anyio.wait_readable(self._db.fileno())

    def _has_heard(self, own: int) -> bool:
        try:
            self._db.pgconn.consume_input()
        except psycopg.Error as error:
            raise RegistryAway(f"{self._database.place}: {one_line(error)}") from None
        heard = False
        while (notice := self._db.pgconn.notifies()) is not None:
            heard |= notice.extra == self._schema and notice.be_pid != own
        return heard

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()
