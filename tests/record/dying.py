"""Run something in child processes that die at each of its calls of the system, one after the other.

`python -m tests.record.dying MODULE:FUNCTION FOLDER` calls the function with FOLDER/0, FOLDER/1, … in a child
each. The child N is killed (SIGKILL) before its Nth call that changes the disk; where that is a write, after
half of it. It prints how many died before one got through.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_CHANGING = (
    "open",
    "pwrite",
    "fdatasync",
    "fsync",
    "ftruncate",
    "replace",
    "rename",
    "unlink",
    "mkdir",
    "write",
)


def main(target: str, folder: str) -> None:
    """Let one child after the other die, until one does not."""
    module, _, function = target.partition(":")
    work: Callable[[Path], None] = getattr(importlib.import_module(module), function)
    step = 0
    while _dies(work, Path(folder) / str(step), step):
        step += 1
    print(step)


def _dies(work: Callable[[Path], None], folder: Path, step: int) -> bool:
    folder.mkdir(parents=True)
    child = os.fork()
    if child == 0:
        try:
            _arm(step)
            work(folder)
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0, "the work failed"
        return False
    return True


def _arm(step: int) -> None:
    left = step

    def dying(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                if name in ("pwrite", "write"):
                    call(args[0], args[1][: len(args[1]) // 2], *args[2:])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **named)

        return counted

    for name in _CHANGING:
        setattr(os, name, dying(name, getattr(os, name)))


if __name__ == "__main__":
    main(*sys.argv[1:])
