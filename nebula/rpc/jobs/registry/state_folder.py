"""Where one instance of a service keeps what must outlive its process: a folder, locked while it is used."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from nebula.environment import ServiceEnvironment
from nebula.errors import SettingsError
from nebula.private import make_private
from nebula.rpc.jobs.registry.projects import home_of

__all__ = ["StateFolder"]

_LOCK: Final = "lock"

# Whoever made a folder may lose it to another process before it has locked it; then it makes one more.
_TRIES: Final = 100


class StateFolder:
    """One instance's folder, `<root>/<service>/<instance>`, which nobody else uses until it is closed.

    In the user's own state folder a second project with a service of the same name has
    `<service>-<digest>` instead, see `home_of`.

    It is made for this user alone: parameters, results and logs of jobs are in it.

    An instance's name is its folder's: a service that is started again takes a folder that an earlier
    process left, and answers under the name that its callers remember.

    Attributes:
        path: the folder. It exists.
        instance: its name.
    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.instance = path.name
        self._lock: int | None = lock

    @classmethod
    def take(
        cls,
        service: str,
        new_name: Callable[[], str],
        root: Path | None = None,
        *,
        project: Path | None = None,
    ) -> StateFolder:
        """Lock the first folder of the service that no process uses, or a new one.

        Args:
            service: its name.
            new_name: names for new folders, each time another.
            root: instead of `NEBULA_STATE`.
            project: whose service it is; None, and where somebody has named the root: the name says it all.

        Raises:
            SettingsError: there cannot be such a folder, or it cannot be locked.
        """
        environment = ServiceEnvironment.read()
        is_named = root is not None or bool(environment.state)
        root = (environment.state_root if root is None else root).absolute()
        home = root / service
        try:
            if project is not None and not is_named:
                home = home_of(service, root, project)
            return cls._take(home, new_name)
        except OSError as error:
            raise SettingsError(
                f"{error.filename or home}: jobs cannot be kept there, {error.strerror or error}; "
                "name a folder that this user may write to, with NEBULA_STATE or Responder(state=…)"
            ) from error

    @classmethod
    def _take(cls, home: Path, new_name: Callable[[], str]) -> StateFolder:
        make_private(home)
        for path in _folders(home):
            if (lock := _try_lock(path)) is not None:
                return cls(path, lock)
        for _ in range(_TRIES):
            path = home / new_name()
            path.mkdir(mode=0o700, exist_ok=True)
            if (lock := _try_lock(path)) is not None:
                return cls(path, lock)
        raise OSError(f"no folder could be locked under {home}")

    @classmethod
    def lock(cls, path: Path) -> Self | None:
        """A folder that is there, unless somebody has it."""
        lock = _try_lock(path)
        return None if lock is None else cls(path, lock)

    def others(self) -> list[Path]:
        """The folders of the service's other instances, in use or not."""
        return [path for path in _folders(self.path.parent) if path != self.path]

    def close(self) -> None:
        """Let the next one take it. Idempotent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _folders(home: Path) -> Iterator[Path]:
    return (path for path in sorted(home.iterdir()) if path.is_dir())


def _try_lock(path: Path) -> int | None:
    # The lock belongs to the open file: it ends with the process, however that ends.
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock
