"""A process with Nebula imported, which forks the programs of the tests.

Most of what a short command costs is its start: Python imports Nebula, typer and pydantic, 0.4 to 0.8
seconds of CPU each time. A fork of a process that has imported them starts in some milliseconds. What the
program then does is the same: it is a process of its own, with its own arguments, environment, folder,
pipes and exit status.

A request is one message on a socket: JSON with arguments, environment and folder, and four open files: stdin,
stdout, stderr, and a pipe on which the server tells the program's pid and then its exit status.

The server has no threads when it forks: locks that another thread holds would stay locked in the child.
That is why the tests' own process, which has threads, does not fork by itself.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
from typing import Any, NamedTuple

_MOST_BYTES = 1024 * 1024
_FILES = 4

# What commands import when they run, besides what `nebula.cli` imports itself.
_PRELOADED = (
    "nebula.cli",
    "nebula.cli.asking",
    "nebula.cli.columns",
    "nebula.cli.programs",
    "nebula.cli.watching",
    "nebula.broker.assembly",
    "nebula.host.apps",
    "nebula.host.broker_verbs",
    "nebula.host.http_calls",
    "nebula.host.operator_verbs",
    "nebula.rpc.client.client",
    "nebula.rpc.service.responder",
    "anyio._backends._asyncio",
    "cryptography.x509",
    "uvloop",
)


class Request(NamedTuple):
    """How a program is started; `files` are stdin, stdout, stderr and the pipe that tells its end."""

    words: list[str]
    env: dict[str, str]
    cwd: str | None
    files: list[int]


def _receive(requests: socket.socket) -> Request | None:
    """The next request; None if the tests have ended."""
    message, files, _, _ = socket.recv_fds(requests, _MOST_BYTES, _FILES)
    return Request(**json.loads(message), files=files) if message else None


def _keep(pid: int, told: int) -> None:
    """Tell the pid of a program, and its status once it has ended; then leave."""
    os.write(told, f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    os.write(told, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _fork(request: Request) -> bool:
    """Fork a program, and a keeper that waits for it. True in the program."""
    if os.fork():
        for file in request.files:
            os.close(file)
        return False
    # The keeper is a process of its own: the server goes on with the next request.
    program = os.fork()
    *_, told = request.files
    if program:
        for file in request.files[:-1]:
            os.close(file)
        _keep(program, told)
    os.close(told)
    return True


def _become(request: Request) -> None:
    """Take on what Python gives a program that it starts with `-m nebula.cli`."""
    for number, file in enumerate(request.files[:-1]):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request.env)
    if request.cwd is not None:
        os.chdir(request.cwd)
    sys.path[0] = os.getcwd()  # noqa: PTH109  # as Python spells it
    sys.argv = ["nebula", *request.words]
    importlib.invalidate_caches()
    # Importing this module does it, before the rest is imported.
    if request.words[:1] == ["broker"]:
        from nebula.cli.hangups import note_hangups

        note_hangups()


def _serve(requests: socket.socket) -> Request | None:
    """Fork a program for each request. A program returns its request, the server None at its end."""
    while (request := _receive(requests)) is not None:
        if _fork(request):
            requests.close()
            return request
        # Keepers that have ended; their times count as ours, see `tests.durations`.
        while _reaped():
            pass
    return None


def _reaped() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def _preload() -> None:
    for module in _PRELOADED:
        importlib.import_module(module)
    from typer.main import get_command

    from nebula import cli

    # Typer makes commands of functions' signatures at each start.
    cli.app = get_command(cli.app)  # type: ignore[assignment]
    gc.collect()
    gc.freeze()


def main() -> None:
    """Serve requests on the socket whose number is the only argument."""
    requests: Any = socket.socket(fileno=int(sys.argv[1]))
    # Ctrl-C on the terminal is for the tests: the server ends when they have ended.
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    _preload()
    if (request := _serve(requests)) is None:
        return
    signal.signal(signal.SIGINT, interrupt)
    _become(request)
    runpy.run_module("nebula.cli", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
