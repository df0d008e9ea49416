"""Listener to changes that other instances make in PostgreSQL: without a thread, on either event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import anyio
import psycopg

from nebula.extras.postgres_database import Database, one_line
from nebula.extras.postgres_tables import CHANNEL
from nebula.rpc.jobs.registry.errors import RegistryAway
from nebula.rpc.jobs.registry.shared import Notified

__all__ = ["PostgresListener"]


class PostgresListener:
    """A connection that listens. Making one blocks.

    Args:
        database: where.
        schema: of the service's jobs.
        own: the server's process for the service's own connection, whose changes are known.

    Raises:
        RegistryAway: there is no connection.
    """

    def __init__(self, database: Database, schema: str, own: Callable[[], int]) -> None:
        self._database, self._schema, self._own = database, schema, own
        self._db = database.connect(f"listener of {schema}")
        try:
            # A connection of its own, because the writer's connection receives notifications only between its
            # statements.
            self._db.execute(f"LISTEN {CHANNEL}".encode())
        except psycopg.Error as error:
            self._db.close()
            raise RegistryAway(f"{database.place}: {one_line(error)}") from None

    async def wait(self) -> Notified:
        """See `ChangeListener`.

        Raises:
            RegistryAway: the connection ended.
        """
        while not (heard := self._heard(self._own())):
            # Not psycopg's own `notifies`, which would block a thread for ever.
            await anyio.wait_readable(self._db.fileno())
        grown = frozenset(job for job in heard if job)
        return Notified(has_changes="" in heard, grown=grown)

    def _heard(self, own: int) -> set[str]:
        """The jobs whose logs have grown, and "" for those that have changed."""
        try:
            # Does not block: it reads what has arrived.
            self._db.pgconn.consume_input()
        except psycopg.Error as error:
            raise RegistryAway(f"{self._database.place}: {one_line(error)}") from None
        heard = set[str]()
        while (notice := self._db.pgconn.notifies()) is not None:
            # Any user of the database can send any text to a channel, in the encoding of our connection.
            schema, _, job = notice.extra.decode("utf-8", "replace").partition(" ")
            if schema == self._schema and notice.be_pid != own:
                heard.add(job)
        return heard

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()
