"""Run something in child processes that die at each of their steps, one after the other.

`python -m tests.dying MODULE:FUNCTION FOLDER` calls the function with FOLDER/0, FOLDER/1, … in a child each.
The child N is killed (SIGKILL) before its Nth call that changes the disk; where that is a write, after half
of it. It prints how many died before one got through.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

_WRITES = ("pwrite", "write")
_CHANGING = (*_WRITES, "open", "fdatasync", "fsync", "ftruncate", "replace", "rename", "unlink", "mkdir")


def deaths(target: str, folder: Path) -> int:
    """How many children died before one got through. They are a program's: threads do not survive a fork."""
    words = [sys.executable, "-m", __name__, target, str(folder)]
    return int(subprocess.run(words, check=True, capture_output=True, text=True, timeout=50).stdout)


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
    return has_died(start(lambda: work(folder), step, calls_of_os(*_CHANGING)))


def calls_of_os(*names: str) -> list[tuple[Any, str]]:
    """Calls of the system, for `start`."""
    return [(os, name) for name in names]


def start(work: Callable[[], None], step: int | None = None, calls: Iterable[tuple[Any, str]] = ()) -> int:
    """Do the work in a child of this process, which dies before its call of this number; the child's pid.

    Args:
        work: whatever it raises is a failure.
        step: from 0 on, or None where it is not to die.
        calls: those that count, by whose they are and their name.
    """
    child = os.fork()
    if child == 0:
        try:
            if step is not None:
                _arm(step, calls)
            work()
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    return child


def has_died(child: int) -> bool:
    """Wait for the end of a child that was started so: whether it was killed."""
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the work failed"
    return os.WIFSIGNALED(status)


def _arm(step: int, calls: Iterable[tuple[Any, str]]) -> None:
    left = step

    def dying(call: Callable[..., Any], *, is_write: bool) -> Callable[..., Any]:
        def counted(*args: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                if is_write:
                    call(args[0], args[1][: len(args[1]) // 2], *args[2:])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **named)

        return counted

    for owner, name in calls:
        setattr(owner, name, dying(getattr(owner, name), is_write=owner is os and name in _WRITES))


if __name__ == "__main__":
    main(*sys.argv[1:])
