"""Other instances of a service on this machine, and the jobs in their state folders."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import anyio.to_thread

from nebula.logs import get_logger
from nebula.rpc.jobs.model.record import JobRecord
from nebula.rpc.jobs.registry.errors import RegistryFull
from nebula.rpc.jobs.registry.registry import JobRegistry
from nebula.rpc.jobs.registry.sqlite import peek
from nebula.rpc.jobs.registry.state_folder import StateFolder
from nebula.rpc.jobs.registry.takeover import Orphans, moved_elsewhere
from nebula.rpc.wire.brokers import instance_queue

__all__ = ["Elsewhere", "OtherInstances"]

_log = get_logger(__name__)

# Does this with our own registry.
Add = Callable[[Callable[[JobRegistry], list[JobRecord]]], Awaitable[None]]


class Elsewhere(NamedTuple):
    """A job of another instance, and the queue where that one is asked."""

    via: str
    record: JobRecord


# Instances do not talk to each other: they read each other's registries. A request that repeats an
# earlier one may reach any instance, so each looks into the folders of all others before it accepts a
# job.
class OtherInstances:
    """The other instances of a service, as far as they keep their state on this machine.

    Args:
        service: its name.
        state: our own folder.
        is_shared: all instances keep their jobs in one place. What is left in folders is from before.
    """

    def __init__(self, service: str, state: StateFolder, *, is_shared: bool) -> None:
        self._service, self._state, self._is_shared = service, state, is_shared
        # No process writes to our folder's registry any more: once it is empty, it stays empty.
        self._looks_at_ours = is_shared

    async def find(self, read: Callable[[JobRegistry], JobRecord | None]) -> Elsewhere | None:
        """The first that `read` finds in one of their registries."""
        # A glance at a small folder; only where there are others is it worth a thread.
        folders = [] if self._is_shared else self._state.others()
        if not folders:
            return None

        def look() -> Elsewhere | None:
            found = ((folder.name, peek(folder, read)) for folder in folders)
            return next((self._at(name, record) for name, record in found if record is not None), None)

        return await anyio.to_thread.run_sync(look)

    async def taken_over(self, records: Sequence[JobRecord]) -> set[str]:
        """Those of our open jobs, by ULID, that another instance took over before it died amid this."""
        folders = self._state.others() if records else []
        return await anyio.to_thread.run_sync(moved_elsewhere, records, folders) if folders else set()

    async def running(self) -> list[str]:
        """The names of those that have their folders now."""

        def look() -> list[str]:
            return [path.name for path in self._state.others() if _is_in_use(path)]

        return await anyio.to_thread.run_sync(look)

    async def take_over(self, verbs: Collection[str], add: Add) -> None:
        """Take over the open jobs of folders without an instance; if jobs are shared, of our own folder too.

        Args:
            verbs: those whose jobs we can run. If jobs are shared, those of all verbs are taken over.
            add: does this with our registry, and what follows for the jobs that it returns.
        """
        state, known = self._state, None if self._is_shared else verbs
        for path in [*([state.path] if self._looks_at_ours else ()), *state.others()]:
            try:
                orphans = await anyio.to_thread.run_sync(Orphans.of, path, state, known)
            except (OSError, sqlite3.Error) as error:
                _log.warning("jobs of a lost instance not read", folder=str(path), error=str(error))
                continue
            if orphans is not None:
                await _move(orphans, add)
                _log.warning("jobs of a lost instance taken over", instance=path.name, jobs=len(orphans.jobs))
            elif path == state.path:
                self._looks_at_ours = False

    def _at(self, instance: str, record: JobRecord) -> Elsewhere:
        return Elsewhere(instance_queue(self._service, instance), record)


def _is_in_use(path: Path) -> bool:
    # Removed meanwhile, or another user's: nothing is known of it.
    with suppress(OSError):
        if (lock := StateFolder.lock(path)) is None:
            return True
        # At once: an instance that starts now looks for a free folder.
        lock.close()
    return False


async def _move(orphans: Orphans, add: Add) -> None:
    try:
        await add(orphans.add_to)
        # If this fails they are in both folders, and the newer record counts.
        with suppress(OSError, sqlite3.Error, RegistryFull):
            await anyio.to_thread.run_sync(orphans.remove)
    finally:
        orphans.close()
