"""The fuzzer itself, in a process of its own: `python -m tests.fuzz.instrumented TARGET [options]`."""

from __future__ import annotations

import importlib
import logging
import sys
from typing import Any

# Not there on all machines, and without types.
atheris: Any = importlib.import_module("atheris")

with atheris.instrument_imports(include=["nebula", "h11", "websockets"], enable_loader_override=False):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Fuzz until libFuzzer's options say stop, or something is found. Does not return."""
    _, name, *options = sys.argv
    logging.getLogger("nebula").setLevel(logging.CRITICAL)
    # libFuzzer calls itself by the first of its arguments where it merges, a line for a shell.
    itself = f"{sys.executable} -m tests.fuzz.instrumented {name}"
    atheris.Setup([itself, *options], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
