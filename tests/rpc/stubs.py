"""Generated stubs, imported."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType


def imported(path: Path) -> ModuleType:
    """A module, under its own name, as pydantic looks for it there."""
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    sys.modules[path.stem] = module
    exec(compile(path.read_text(), path, "exec"), module.__dict__)
    return module
