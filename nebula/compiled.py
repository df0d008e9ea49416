"""Choice between compiled and interpreted modules, by `NEBULA_COMPILED` when `nebula` is imported.

A compiled wheel holds each compiled module twice: as Python source, and as an extension module that was made
from it. Python imports the extension. See docs/decisions/0060.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from types import ModuleType

from nebula.environment import BuildEnvironment

# One of the compiled modules. Either all of them are compiled, or none is.
_SAMPLE = "nebula.stomp.codec"


def is_compiled() -> bool:
    """Whether the wire, the broker's core and the path of a call run compiled."""
    spec = find_spec(_SAMPLE)
    return spec is not None and spec.origin is not None and not spec.origin.endswith(tuple(SOURCE_SUFFIXES))


def build_name() -> str:
    """`compiled` or `interpreted`."""
    return "compiled" if is_compiled() else "interpreted"


def choose() -> None:
    """Do what `NEBULA_COMPILED` says.

    Raises:
        ImportError: it has another value than `no` and `require`, or requires what is not there.
    """
    wish = BuildEnvironment.read().compiled
    if wish == "no":
        sys.meta_path.insert(0, _SourceFinder)
    elif wish == "require":
        if not is_compiled():
            raise ImportError(
                "NEBULA_COMPILED=require, but the modules of this installation are not compiled: install a"
                " wheel that was compiled for this Python (make wheel), or run make compiled in a checkout"
            )
    elif wish:
        raise ImportError(f'NEBULA_COMPILED is "{wish}": it is "no", "require" or unset')


class _SourceFinder:
    """Finds the sources of Nebula's modules, where Python would import extension modules first."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The source of a module of Nebula; None: Python's own finders look for it."""
        if path is None or not name.startswith("nebula."):
            return None
        specs = (_sources_in(folder).find_spec(name, target) for folder in path)
        # A folder without `__init__.py` has a spec without a loader.
        return next((spec for spec in specs if spec is not None and spec.loader is not None), None)


@cache
def _sources_in(folder: str) -> FileFinder:
    # Python looks at a folder's time of change before it uses what it knows of it.
    return FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES))
