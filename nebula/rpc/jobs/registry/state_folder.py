"""State folders: one per instance of a service, locked while a process uses it.

Services of the same name in several projects have folders of their own, see `home_of`.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from nebula.environment import ServiceEnvironment
from nebula.errors import SettingsError
from nebula.file_locks import LOCK_EX, LOCK_NB, flock
from nebula.logs import get_logger
from nebula.private import make_private

__all__ = ["StateFolder", "home_of", "project_of"]

_log = get_logger(__name__)

_LOCK: Final = "lock"

# Another process may lock a new folder before the process that created it does; then that creates one more.
_TRIES: Final = 100

# docs/decisions/0049: each project has its own folder, because two projects may have services of one name.
# Files that mark the top folder of a project.
_MARKS: Final = ("pyproject.toml", "setup.py")

# File in the folder of a service that names its project.
_CLAIM: Final = "project"

_DIGEST_CHARACTERS: Final = 8


class StateFolder:
    """One instance's folder, `<root>/<service>/<instance>`, which no other process uses until it is closed.

    In the user's own state folder a second project with a service of the same name has
    `<service>-<digest>` instead, see `home_of`.

    It is made for this user alone: parameters, results and logs of jobs are in it.

    An instance's name is its folder's: a service that is started again takes a folder that an earlier
    process left, and replies under the name that its callers remember.

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
            root: instead of the one that the environment names.
            project: whose service it is. With None, or a root that was set, the service's name alone counts.

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
        # First the folders that exist, in a fixed order: a service that is started again finds its jobs, and
        # new folders are made only for more instances than before.
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
        """Lock an existing folder; returns None if another process has it."""
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
        # The file stays when the lock is released: to remove it would let two processes hold locks on two
        # files of the same name.
        flock(lock, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def project_of(function: Callable[..., Any]) -> Path:
    """The folder of the project that a function belongs to, however the program was started.

    This is the nearest folder above its module with a `pyproject.toml` or `setup.py`, otherwise the folder
    from which the module or its package is imported. For code without a file (a shell, `python -c`) it is the
    working directory.
    """
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        return Path.cwd()
    path = Path(file).resolve()
    for folder in path.parents:
        if any((folder / mark).is_file() for mark in _MARKS):
            return folder
    spec = getattr(module, "__spec__", None)
    # For `python -m package.module` the spec has the name; a script has no spec.
    name = module.__name__ if spec is None else spec.name
    return path.parents[name.count(".") + (path.stem == "__init__")]


def home_of(service: str, root: Path, project: Path) -> Path:
    """The folder for a project's instances of a service: `<root>/<service>`, if this project owns it.

    The first project to start owns that folder for good, even if an earlier version of Nebula created it.
    Other projects get a folder next to it, whose name ends in a digest of the project's path.

    Args:
        service: name of the service.
        root: folder for all state.
        project: the result of `project_of`.

    Raises:
        OSError: the folder cannot be created.
    """
    home = root / service
    owner = _owner_of(home, project)
    if owner == project:
        return home
    if not owner.exists():
        # Not taken over: only the user knows whether the project was moved or is another one.
        _log.warning("state of a lost project found", service=service, folder=str(home), project=str(owner))
    digest = hashlib.sha256(os.fsencode(project)).hexdigest()[:_DIGEST_CHARACTERS]
    home = root / f"{service}-{digest}"
    _owner_of(home, project)
    return home


def _owner_of(home: Path, project: Path) -> Path:
    """The project that owns this folder; claims it for this one if it is free."""
    make_private(home)
    claim = home / _CLAIM
    if not claim.exists():
        # The link makes a complete file appear at once, and fails if there is one.
        draft = home / f"{_CLAIM}.{secrets.token_hex(4)}"
        try:
            draft.write_bytes(os.fsencode(project))
            _name(draft, claim)
        finally:
            draft.unlink(missing_ok=True)
    return Path(os.fsdecode(claim.read_bytes()))


def _name(draft: Path, claim: Path) -> None:
    try:
        os.link(draft, claim)
    except FileExistsError:
        pass  # another process was first
    except OSError:
        # No hard links on this file system: two projects that start at the same moment share the folder.
        draft.replace(claim)
