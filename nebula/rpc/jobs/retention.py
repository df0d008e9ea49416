"""Forgets jobs that ended long ago, and with them the results that were made for them."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Protocol, TypeVar

import anyio.to_thread

from nebula.rpc.jobs.registry import JobRegistry

__all__ = ["forget_old_jobs"]

_T = TypeVar("_T")


class _Do(Protocol):
    """Does work on the registry: `RegistryWriter.do`."""

    def __call__(self, do: Callable[[JobRegistry], _T], /) -> Awaitable[_T]: ...


async def forget_old_jobs(do: _Do, folder: Path, ended_before: float, keep: int) -> None:
    """Forget jobs as `JobRegistry.prune` does, then remove their results.

    A crash between the two leaves files that nobody knows of, and never a job without its result.

    Args:
        do: on the registry.
        folder: the instance's: only results in there are ours to remove.
        ended_before: seconds since the epoch.
        keep: how many ended jobs are kept at most.
    """
    forgotten = await do(lambda registry: registry.prune(ended_before, keep))
    paths = [record.output.path for record in forgotten if record.output is not None]
    ours = [path for path in map(Path, filter(None, paths)) if path.is_relative_to(folder)]
    if ours:
        await anyio.to_thread.run_sync(_remove, ours)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
