"""A process that runs one of the two builds, whichever runs in this one."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, Literal

# Where `make build/compiled/.built` leaves the compiled build. `tests` may be a link from there.
COMPILED_BUILD: Final = Path(__file__).resolve().parents[2] / "build" / "compiled"


class Twin:
    """Answers as `tests.compiled.conversations` does.

    Args:
        build: which of them runs.

    Attributes:
        build: the name of the one that does run.
    """

    def __init__(self, build: Literal["compiled", "interpreted"]) -> None:
        environment = {"NEBULA_COMPILED": "no"}
        folder = None
        if build == "compiled":
            folder = COMPILED_BUILD
            environment = {"NEBULA_COMPILED": "require", "PYTHONPATH": str(folder)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.compiled.conversations"],
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.build = self._answer()

    def ask(self, *question: Any) -> Any:
        """What it makes of the arguments of a function of `conversations`, named first.

        Raises:
            EOFError, BrokenPipeError: it has crashed.
        """
        assert self._process.stdin is not None
        pickle.dump(question, self._process.stdin)
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return pickle.load(self._process.stdout)
