"""Processes of the `nebula` command, ended by their own pid whatever happens.

`nebula` and `running` fork a process that has imported Nebula (`tests.cli.fork_server`); `nebula_process` and
`running_process` start Python. Use the latter where the start itself is tested: imports, signals while it
starts, what `/proc` says of the process. `test_starts.py` compares the two.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Thread
from typing import IO, Any, Protocol

NEBULA = [sys.executable, "-m", "nebula.cli"]
DEADLINE = 20.0
_PIPE_BYTES = 1024 * 1024

_STATE = tempfile.TemporaryDirectory(prefix="nebula-tests-")
_NUMBERS = count()


class Program(Protocol):
    """A process that a test started: `subprocess.Popen`, or the same of one that was forked."""

    pid: int
    returncode: int | Any
    stdout: IO[str] | None
    stderr: IO[str] | None

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def communicate(self, input: None = None, timeout: float | None = None) -> tuple[str, str]: ...  # noqa: A002
    def send_signal(self, sig: int) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class _Forked:
    """The interface of `subprocess.Popen` for a process that the fork server started."""

    def __init__(self, words: tuple[str, ...], env: Mapping[str, str], cwd: Path | None) -> None:
        ends, told = os.pipe()
        out, child_out = os.pipe()
        err, child_err = os.pipe()
        with suppress(AttributeError, OSError):  # elsewhere than on Linux, or more than a user may have
            for pipe in (out, err):
                _widen(pipe)
        request = {"words": words, "env": dict(env), "cwd": None if cwd is None else str(cwd)}
        nothing = os.open(os.devnull, os.O_RDONLY)
        theirs = [nothing, child_out, child_err, told]
        socket.send_fds(_fork_server(), [json.dumps(request).encode()], theirs)
        for file in theirs:
            os.close(file)
        self.stdout: IO[str] | None = os.fdopen(out)
        self.stderr: IO[str] | None = os.fdopen(err)
        self._ends = os.fdopen(ends)
        self.pid = int(self._ends.readline())
        self.returncode: int | Any = None
        self.words = words

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._ends], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.words, timeout or 0.0)
            # Killed together with its keeper, by whoever killed all.
            self.returncode = int(self._ends.readline() or -signal.SIGKILL)
            self._ends.close()
        return self.returncode

    def communicate(self, input: None = None, timeout: float | None = None) -> tuple[str, str]:  # noqa: A002
        until = None if timeout is None else time.monotonic() + timeout
        # One thread for each, as a program that waits for room in one pipe says nothing on the other.
        readers = [_Reader(stream) for stream in (self.stdout, self.stderr)]
        for reader in readers:
            reader.join(_left(until))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.words, timeout or 0.0)
        self.wait(_left(until))
        out, err = (reader.text for reader in readers)
        return out, err

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            # Between its end and the keeper's word the pid is free, but none gets the same so soon.
            with suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Reader(Thread):
    """Reads a stream to its end and closes it."""

    def __init__(self, stream: IO[str] | None) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self.text = ""
        self.start()

    def run(self) -> None:
        if self._stream is not None and not self._stream.closed:
            self.text = self._stream.read()
            self._stream.close()


def _left(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - time.monotonic())


def _widen(pipe: int) -> None:
    # Many tests share one broker, and no one reads its log: a full pipe would stop it.
    import fcntl

    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


@functools.cache
def _fork_server() -> socket.socket:
    """The socket of this process's fork server, started when it is first needed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.fork_server", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    theirs.close()

    def end() -> None:
        ours.close()
        server.wait(DEADLINE)

    atexit.register(end)
    return ours


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without Nebula's own variables, so that no machine's settings leak in.

    Each program has a state folder of its own unless told: two brokers cannot share one.
    """
    plain = {name: value for name, value in os.environ.items() if not name.startswith("NEBULA_")}
    own = {
        "NEBULA_STATE": f"{_STATE.name}/{next(_NUMBERS)}",
        "NEBULA_CONTEXTS": f"{_STATE.name}/contexts.toml",  # there is none
        "NEBULA_CACHE": os.environ.get("NEBULA_CACHE", f"{_STATE.name}/cache"),  # that of all tests
    }
    return plain | own | dict(extra or {})


def _python_is_ours(env: Mapping[str, str]) -> bool:
    """Whether Python's own variables are ours: it reads them when it starts, so a fork ignores others."""
    names = {name for name in (*env, *os.environ) if name.startswith("PYTHON")}
    return all(env.get(name) == os.environ.get(name) for name in names)


def _start(words: tuple[str, ...], env: Mapping[str, str], cwd: Path | None, *, is_forked: bool) -> Program:
    if is_forked and sys.platform == "linux" and _python_is_ours(env):
        return _Forked(words, env, cwd)
    return subprocess.Popen(
        [*NEBULA, *words],
        env=dict(env),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
        pipesize=_PIPE_BYTES,
    )


def nebula(
    *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, is_forked: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end, off a terminal."""
    program = _start(words, environment(env), cwd, is_forked=is_forked)
    try:
        out, err = program.communicate(timeout=DEADLINE)
    finally:
        program.kill()
    return subprocess.CompletedProcess([*NEBULA, *words], program.wait(), out, err)


def nebula_process(
    *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one command in a Python that is started for it."""
    return nebula(*words, env=env, cwd=cwd, is_forked=False)


@contextmanager
def running(
    *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, is_forked: bool = True
) -> Iterator[tuple[Program, dict[str, Any]]]:
    """Start a command that stays; yields it with its first line, which it writes when it is ready."""
    program = _start(words, environment(env), cwd, is_forked=is_forked)
    try:
        assert program.stdout is not None
        assert program.stderr is not None
        line = program.stdout.readline()
        assert line, program.stderr.read()
        yield program, json.loads(line)
    finally:
        program.kill()
        program.communicate()


@contextmanager
def running_process(
    *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[tuple[Program, dict[str, Any]]]:
    """Start a command that stays in a Python that is started for it."""
    with running(*words, env=env, cwd=cwd, is_forked=False) as started:
        yield started


@contextmanager
def broker_process(folder: Path, port: str = "0") -> Iterator[tuple[Program, str]]:
    """A broker with its data in a folder, and its address."""
    with running("broker", "--port", port, "--data", str(folder)) as (process, line):
        yield process, line["url"]
