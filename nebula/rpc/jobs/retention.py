"""Forgets jobs that ended long ago, and with them the results that were made for them."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Protocol, TypeVar

import anyio.to_thread

from nebula.errors import NebulaError
from nebula.rpc.jobs.limits import JobLimits
from nebula.rpc.jobs.record import JobRecord
from nebula.rpc.jobs.registry import JobRegistry

__all__ = ["forget_old_jobs"]

_T = TypeVar("_T")


class _Do(Protocol):
    """Does work on the registry: `RegistryWriter.do`."""

    def __call__(self, do: Callable[[JobRegistry], _T], /) -> Awaitable[_T]: ...


async def forget_old_jobs(
    do: _Do, tell: Callable[[Iterable[str]], None], folder: Path, limits: JobLimits, now: float
) -> None:
    """Forget the jobs that `limits` no longer keep: what is told of them, they themselves, their results.

    A crash on the way leaves jobs that the next time forgets, or files that nobody knows of; never a job
    without its result, and never the status of a job that is forgotten.

    Args:
        do: on the registry.
        tell: deletes the last statuses of these jobs. Where it cannot, they are kept till the next time.
        folder: the instance's: only results in there are ours to remove.
        limits: say how long and how many.
        now: seconds since the epoch.
    """
    found = await do(lambda registry: registry.old_jobs(now - limits.keep_for, limits.keep_jobs))
    # Where the registry is shared: whoever has the result forgets the job.
    old = [record for record in found if not _is_of_another(record, folder)]
    ulids = [record.id for record in old]
    try:
        tell(ulids)
    except NebulaError:
        return
    await do(lambda registry: registry.forget(ulids))
    paths = [record.output.path for record in old if record.output is not None]
    ours = [path for path in map(Path, filter(None, paths)) if path.is_relative_to(folder)]
    if ours:
        await anyio.to_thread.run_sync(_remove, ours)


def _is_of_another(record: JobRecord, folder: Path) -> bool:
    path = None if record.output is None else record.output.path
    if path is None or Path(path).is_relative_to(folder):
        return False
    return Path(path).is_relative_to(folder.parent)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
