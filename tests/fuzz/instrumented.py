"""The fuzzer itself, in its own process: `python -m tests.fuzz.instrumented TARGET [compiled] [options]`.

With `compiled`, the compiled build gets each input too, in another process, and its outcome must be the same.
"""

from __future__ import annotations

import importlib
import logging
import sys
from typing import Any

from tests.compiled.twin import Twin

# Not there on all machines, and without types.
atheris: Any = importlib.import_module("atheris")

with atheris.instrument_imports(include=["nebula", "h11", "websockets"], enable_loader_override=False):
    from tests.fuzz.targets import COMPILED, TARGETS, Target


def main() -> None:
    """Fuzz until libFuzzer's options say stop, or something is found. Does not return."""
    _, name, *options = sys.argv
    logging.getLogger("nebula").setLevel(logging.CRITICAL)
    # libFuzzer calls itself by the first of its arguments where it merges, a line for a shell.
    itself = f"{sys.executable} -m tests.fuzz.instrumented {name}"
    target = TARGETS[name]
    if options[:1] == ["compiled"]:
        del options[0]
        if name in COMPILED:
            target = _beside(Twin("compiled"), name)
    atheris.Setup([itself, *options], target)
    atheris.Fuzz()


def _beside(twin: Twin, name: str) -> Target:
    """A target that also asks the other build."""

    def compare(data: bytes) -> None:
        found = TARGETS[name](data)
        # If the other process crashes, this raises, which is a finding.
        other = twin.ask("outcome", name, data)
        assert other == found, f"the builds differ: compiled {other!r}, interpreted {found!r}"

    return compare


if __name__ == "__main__":
    main()
