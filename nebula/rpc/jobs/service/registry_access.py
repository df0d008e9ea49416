"""Opening and closing of a job registry: a file in the instance's folder, or a shared database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from nebula.private import free_bytes_at
from nebula.rpc.jobs.registry.registry import JobRegistry
from nebula.rpc.jobs.registry.shared import SharedDatabase, SharedRegistry
from nebula.rpc.jobs.registry.sqlite import REGISTRY_FILE, SqliteJobRegistry
from nebula.threads import call_in_daemon

__all__ = ["RegistryAccess"]


class RegistryAccess:
    """Opens the registry of one instance, and closes it without waiting for ever.

    A file is opened in a worker thread. A database may accept the connection and then stay silent, and a
    service that is stopping must not wait for it: so it is opened and closed in daemon threads.

    Args:
        folder: of the instance.
        connect: opens the registry's file.
        free_bytes: returns the free space on the disk of a folder.
        database: keeps the jobs instead of the folder, and lets other instances share them.
        service: the service's name.
        instance: our name.
        lease: seconds for which the shared jobs are ours without a sign of life.
    """

    def __init__(
        self,
        folder: Path,
        *,
        connect: Callable[..., sqlite3.Connection] = sqlite3.connect,
        free_bytes: Callable[[Path], int] = free_bytes_at,
        database: SharedDatabase | None,
        service: str,
        instance: str,
        lease: float,
    ) -> None:
        self.database = database
        self._open_file = partial(
            SqliteJobRegistry, folder / REGISTRY_FILE, connect=connect, free_bytes=free_bytes
        )
        self._service, self._instance = service, instance
        # A transaction that hangs ends before the instance gives up its lease, after two thirds of it: see
        # `nebula.rpc.jobs.service.shared_queue`.
        self._patience = lease / 3

    async def open_file(self) -> JobRegistry:
        """Open the instance's own file."""
        # A pooled thread is enough: a local file does not hang, unlike a database server.
        return await anyio.to_thread.run_sync(self._open_file)

    async def open_shared(self, database: SharedDatabase) -> SharedRegistry:
        """Open the shared one. One that is opened too late has no user, and is closed."""
        return await call_in_daemon(
            partial(database.registry, self._service, self._instance, patience=self._patience)
        )

    async def close(self, registry: JobRegistry) -> None:
        """Close it; a database that does not reply in time is left, and the connection cut."""
        # A file has no time limit: the last decisions must reach the disk.
        patience = None if self.database is None else self._patience
        with anyio.move_on_after(patience, shield=True) as in_time:
            await call_in_daemon(registry.close)
        if in_time.cancelled_caught:
            # The others get what waits when the lease is over.
            registry.abort()
