"""State folders per project, for services of the same name in several projects."""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from nebula.logs import get_logger
from nebula.private import make_private

__all__ = ["home_of", "project_of"]

_log = get_logger(__name__)

# Files that mark the top folder of a project.
_MARKS: Final = ("pyproject.toml", "setup.py")

# File in the folder of a service that names its project.
_CLAIM: Final = "project"

_DIGEST_CHARACTERS: Final = 8


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
        _log.warning("state of a project that is gone", service=service, folder=str(home), project=str(owner))
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
