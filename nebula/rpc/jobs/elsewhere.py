"""Jobs that other instances of the service hold, found in their folders under the same root."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

import anyio.to_thread
import structlog

from nebula.rpc.brokers import instance_queue
from nebula.rpc.jobs.adopting import Orphans, moved_elsewhere
from nebula.rpc.jobs.record import JobRecord
from nebula.rpc.jobs.registry import JobRegistry
from nebula.rpc.jobs.sqlite_registry import peek
from nebula.rpc.jobs.state_folder import StateFolder

__all__ = ["Elsewhere", "OtherInstances"]

_log = structlog.get_logger()

# Does this with our own registry.
Add = Callable[[Callable[[JobRegistry], list[JobRecord]]], Awaitable[None]]


class Elsewhere(NamedTuple):
    """A job of another instance, and the queue where that one is asked."""

    via: str
    record: JobRecord


class OtherInstances:
    """The other instances of a service, as far as they keep their state on this machine.

    Args:
        service: its name.
        state: our own folder; None where all instances keep their jobs in one place.
    """

    def __init__(self, service: str, state: StateFolder | None) -> None:
        self._service, self._state = service, state

    async def find(self, read: Callable[[JobRegistry], JobRecord | None]) -> Elsewhere | None:
        """The first that `read` finds in one of their registries."""
        # A glance at a small folder; only where there are others is it worth a thread.
        folders = [] if self._state is None else self._state.others()
        if not folders:
            return None

        def look() -> Elsewhere | None:
            found = ((folder.name, peek(folder, read)) for folder in folders)
            return next((self._at(name, record) for name, record in found if record is not None), None)

        return await anyio.to_thread.run_sync(look)

    async def have_adopted(self, records: Sequence[JobRecord]) -> set[str]:
        """Those of our open jobs, by ULID, that another instance took over before it died amid this."""
        folders = [] if self._state is None or not records else self._state.others()
        return await anyio.to_thread.run_sync(moved_elsewhere, records, folders) if folders else set()

    async def adopt(
        self,
        verbs: Collection[str],
        add: Add,
    ) -> None:
        """Take over the open jobs of folders that nobody has.

        Args:
            verbs: those whose jobs we can run.
            add: does this with our registry, and what follows for the jobs that it returns.
        """
        state = self._state
        for path in [] if state is None else state.others():
            assert state is not None
            try:
                orphans = await anyio.to_thread.run_sync(Orphans.of, path, state, verbs)
            except (OSError, sqlite3.Error) as error:
                _log.warning("jobs of a lost instance not read", folder=str(path), error=str(error))
                continue
            if orphans is not None:
                await _move(orphans, add)
                _log.warning("jobs of a lost instance taken over", instance=path.name, jobs=len(orphans.jobs))

    def _at(self, instance: str, record: JobRecord) -> Elsewhere:
        return Elsewhere(instance_queue(self._service, instance), record)


async def _move(orphans: Orphans, add: Add) -> None:
    try:
        await add(orphans.add_to)
        # If this fails they are in both folders, and the newer record counts.
        with suppress(OSError, sqlite3.Error):
            await anyio.to_thread.run_sync(orphans.remove)
    finally:
        orphans.close()
