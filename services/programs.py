"""What demos share: `nebula` programs in processes of their own, which end with the demo."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

import anyio

_T = TypeVar("_T")

_ENDS = (signal.SIGTERM, signal.SIGHUP)

# A service that was asked to end takes its engine with it, and that takes a moment.
_STOP_SECONDS = 20.0


class DemoFailed(Exception):
    """A program of a demo did not do its part; `str()` says which, and what it said last."""


def end_in_order() -> None:
    """Have SIGTERM and a closed terminal unwind this program as Ctrl-C does.

    The default would end it on the spot and leave what it has started running: a broker takes the
    terminal's signal for a word to read its files again.
    """
    for number in _ENDS:
        signal.signal(number, _leave)


def _leave(number: int, frame: object) -> NoReturn:  # noqa: ARG001  # a signal handler's form
    # What a shell shows of a program that a signal has ended.
    raise SystemExit(128 + number)


def run_async(function: Callable[..., Awaitable[_T]], *arguments: object) -> _T:
    """`anyio.run`, which the signals of `end_in_order` cancel before they exit.

    An exception that a signal raises in a task would come out of its task group wrapped, and with a trace.
    """
    told: list[int] = []

    async def run() -> _T | None:
        with anyio.CancelScope() as scope:

            def leave(number: int) -> None:
                told.append(number)
                scope.cancel()

            for number in _ENDS:
                asyncio.get_running_loop().add_signal_handler(number, leave, number)
            return await function(*arguments)
        return None

    try:
        result = anyio.run(run)
    finally:
        end_in_order()  # the loop has put the defaults back
    if told:
        _leave(told[0], None)
    return cast("_T", result)


@contextlib.contextmanager
def program(
    name: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, *, lines: int = 1
) -> Iterator[list[dict[str, Any]]]:
    """Run a `nebula` command; the value is the first lines that it says, which mean that it is ready.

    Its log goes to `<name>.log` in the folder.

    Raises:
        DemoFailed: it ended before it was ready, or did not end when it was told to.
    """
    log = folder / f"{name}.log"
    command = [sys.executable, "-m", "nebula.cli", *arguments]
    with (
        log.open("w") as errors,
        subprocess.Popen(  # noqa: S603  # our own command
            command, env=dict(environment), stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            said = [process.stdout.readline() for _ in range(lines)]
            if not said[-1]:
                raise DemoFailed(f"the {name} ended before it was ready:\n{tail(log)}")
            yield [json.loads(line) for line in said]
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise DemoFailed(f"the {name} did not end when it was told to:\n{tail(log)}") from None


def tail(log: Path, lines: int = 12) -> str:
    """The end of a log."""
    return "\n".join(log.read_text().splitlines()[-lines:])
