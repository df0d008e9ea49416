"""Retention of ended jobs: removes old ones with their results, and others when capacity is short."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import anyio.to_thread

from nebula.errors import NebulaError
from nebula.logs import get_logger
from nebula.rpc.jobs.model.limits import JobLimits
from nebula.rpc.jobs.model.record import JobRecord
from nebula.rpc.jobs.registry.capacity import Capacity, Wanted
from nebula.rpc.jobs.registry.registry import DoOnRegistry, JobRegistry, Kept

__all__ = ["forget_for_room", "forget_old_jobs"]

_log = get_logger(__name__)


async def forget_old_jobs(
    do: DoOnRegistry, tell: Callable[[Iterable[str]], None], folder: Path, limits: JobLimits, now: float
) -> None:
    """Forget the jobs that `limits` no longer keep: their last statuses, their records, their results.

    A crash on the way leaves jobs that the next call forgets, or files that no record refers to; never a job
    without its result, and never the status of a forgotten job.

    In a shared registry, a job whose result was made by a living instance is forgotten by that instance,
    which can reach the files. Any instance forgets the jobs of instances that are gone, and deletes their
    files if it can reach them.

    Args:
        do: on the registry.
        tell: deletes the last statuses of these jobs. Where it cannot, they are kept till the next time.
        folder: our instance's.
        limits: say how long and how many.
        now: seconds since the epoch.
    """
    found, alive = await do(
        lambda registry: (registry.old_jobs(now - limits.keep_for, limits.keep_jobs), registry.instances())
    )
    others = alive - {folder.name}
    made = {record.id: _made(record.id, _path(record), folder.parent.name) for record in found}
    ulids = {job: None for job, result in made.items() if result is None or result.instance not in others}
    if not await _forget(do, tell, list(ulids), made):
        return
    # Jobs are forgotten even if their notices were never delivered: a queue that refuses them must not keep
    # jobs for ever.
    if untold := [record.id for record in found if record.is_owed and record.id in ulids]:
        _log.warning("job ends given up", jobs=len(untold), first=untold[0])


async def forget_for_room(
    do: DoOnRegistry,
    tell: Callable[[Iterable[str]], None],
    folder: Path,
    capacity: Capacity,
    wanted: Wanted | None,
) -> bool:
    """Remove ended jobs to make room, as `forget_old_jobs` removes old ones.

    Args:
        do: on the registry.
        tell: deletes the last statuses of these jobs. Where it cannot, they are kept.
        folder: our instance's.
        capacity: chooses them.
        wanted: by a new job, or None.

    Returns:
        whether any did.
    """

    def choose(registry: JobRegistry) -> list[Kept]:
        others = registry.instances() - {folder.name}

        def is_ours(job: Kept) -> bool:
            result = _made(job.id, job.path, folder.parent.name)
            return result is None or result.instance not in others

        return capacity.choose(registry, wanted, is_ours)

    found = await do(choose)
    if not found:
        return False
    made = {job.id: _made(job.id, job.path, folder.parent.name) for job in found}
    is_done = await _forget(do, tell, list(made), made)
    if is_done:
        _log.warning("ended jobs removed", jobs=len(found), bytes=sum(job.bytes for job in found))
    return is_done


async def _forget(
    do: DoOnRegistry,
    tell: Callable[[Iterable[str]], None],
    ulids: Sequence[str],
    made: Mapping[str, _Made | None],
) -> bool:
    try:
        # The last values at the broker go first. If the process dies after this, the records are still there
        # and all is done again; in the other order a status without a job would stay at the broker.
        tell(ulids)
    except NebulaError:
        return False
    # The record goes before the files: a record without its files would promise a result that is gone, while
    # files without a record only take space.
    await do(lambda registry: registry.forget(ulids))
    paths = [result.path for job in ulids if (result := made[job]) is not None]
    if paths:
        await anyio.to_thread.run_sync(_remove, paths)
    return True


class _Made(NamedTuple):
    instance: str
    path: Path


def _path(record: JobRecord) -> str | None:
    return None if record.output is None else record.output.path


def _made(job: str, path: str | None, service: str) -> _Made | None:
    """The result in an instance's folder; None: the job has no result, or chose the place itself."""
    result = Path(path or "")
    # Only a path in an instance's own folder is deleted: `<service>/<instance>/results/<ulid>…`. A job may
    # return any path, such as `/`, and that is never removed.
    match result.parts:
        case (*_, home, instance, "results", name) if home == service and name.startswith(job):
            return _Made(instance, result)
    return None


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
