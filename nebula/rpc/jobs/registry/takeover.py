"""Takeover of jobs from the state folders of instances that died.

An instance locks its folder for as long as it lives, so a folder that can be locked has no living instance.
Its open jobs are taken over, and ended ones whose notice is still owed. The steps, under the lock of that
folder:

1. Read the jobs there, without those that a third folder already has with a higher `seq`.
2. Add each to our registry with `seq` + 1, and commit.
3. Remove them there, and commit.

A crash between 2 and 3 leaves a job in both folders. The record with the higher `seq` counts: each instance
that opens a folder compares its open jobs with all other folders first (`moved_elsewhere`), so no job runs
twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from nebula.rpc.jobs.model.record import MAX_LOG_LINES, JobRecord, LogLine
from nebula.rpc.jobs.registry.errors import RegistryFull
from nebula.rpc.jobs.registry.registry import JobRegistry
from nebula.rpc.jobs.registry.sqlite import REGISTRY_FILE, SqliteJobRegistry, peek
from nebula.rpc.jobs.registry.state_folder import StateFolder

__all__ = ["Orphans", "moved_elsewhere"]

# Per takeover; the next one takes the others.
_MOST_OWED: Final = 100


# Why there is no transaction over both folders: SQLite has one for attached databases, but not in WAL
# mode, which the registry needs. The order *add, then remove* can only leave a job in two folders, never
# in none, and `seq` says which of the two counts.
#
# Why the lock and not a time: a lock of the operating system ends with its process, however it dies, and
# never too early. A heart-beat in a file would be wrong on a machine that was suspended.
@dataclass(frozen=True, slots=True)
class Orphans:
    """The jobs to go on with of a folder that no other has; it is locked until `close`. Its methods block.

    Attributes:
        jobs: with their logs.
    """

    jobs: Sequence[tuple[JobRecord, Sequence[LogLine]]]
    _folder: StateFolder | None
    _registry: JobRegistry

    @classmethod
    def of(cls, path: Path, ours: StateFolder, verbs: Collection[str] | None) -> Self | None:
        """The jobs to take over from a folder; None: an instance has locked it, or it has no such jobs.

        Args:
            path: of the folder; ours too, where it is not our registry any more.
            ours: whose others may have taken over something of it before.
            verbs: whose jobs we can run; None: all jobs, to be ended where we cannot.
        """
        file = path / REGISTRY_FILE
        if not file.exists():
            return None
        folder = None if path == ours.path else StateFolder.lock(path)
        if folder is None and path != ours.path:
            return None
        try:
            registry = SqliteJobRegistry(file)
        except (sqlite3.Error, RegistryFull):
            # Made by a newer version, or damaged: left for a program that understands it. Or the disk is
            # full.
            _close(folder)
            return None
        try:
            found = cls._left(path, registry, ours, verbs)
        except BaseException:
            _close(folder, registry)
            raise
        if not found:
            _close(folder, registry)
            return None
        return cls(found, folder, registry)

    @staticmethod
    def _left(
        path: Path, registry: JobRegistry, ours: StateFolder, verbs: Collection[str] | None
    ) -> list[tuple[JobRecord, list[LogLine]]]:
        # Of the ended jobs, those whose notice is still owed.
        found = [*registry.open_jobs(), *registry.owed_jobs(_MOST_OWED)]
        moved = moved_elsewhere(found, [one for one in ours.others() if one != path])
        registry.forget(moved)
        known = [one for one in found if one.has_ended or verbs is None or one.verb in verbs]
        left = [one for one in known if one.id not in moved]
        return [(one, registry.lines(one.id, MAX_LOG_LINES)) for one in left]

    def add_to(self, registry: JobRegistry) -> list[JobRecord]:
        """Add them to our registry, in a transaction: the open ones that are new there, as they are now.

        They have no holder any more: instances with folders may each have run one with the same key.
        """
        registry.lock()
        added = []
        for record, lines in self.jobs:
            # A takeover that was interrupted between its two commits: the job is ours since then.
            if registry.find(record.id) is not None:
                continue
            known = registry.find_same(record)
            # The same request has made another job here meanwhile: both are run, and only one keeps the key.
            dedupe = None if known is not None else record.dedupe
            ours = replace(record, seq=record.seq + 1, dedupe=dedupe, holder=None)
            registry.insert(ours)
            registry.add_lines(ours.id, lines)
            if not ours.has_ended:
                added.append(ours)
        return added

    def remove(self) -> None:
        """Remove them where they were: they have been added."""
        with self._registry.transaction():
            self._registry.forget([record.id for record, _ in self.jobs])

    def close(self) -> None:
        """Let go of the folder."""
        _close(self._folder, self._registry)


def moved_elsewhere(records: Iterable[JobRecord], folders: Iterable[Path]) -> set[str]:
    """The jobs, by ULID, that another instance has taken over: a folder has newer records of them. Blocks."""
    left, moved = list(records), set[str]()
    for folder in folders if left else ():
        moved |= set(peek(folder, _newer_than(left)) or ())
    return moved


def _newer_than(records: Iterable[JobRecord]) -> Callable[[JobRegistry], list[str]]:
    def look(registry: JobRegistry) -> list[str]:
        found = ((record, registry.find(record.id)) for record in records)
        return [record.id for record, other in found if other is not None and other.seq > record.seq]

    return look


def _close(folder: StateFolder | None, registry: JobRegistry | None = None) -> None:
    with suppress(sqlite3.Error):
        if registry is not None:
            registry.close()
    if folder is not None:
        folder.close()
