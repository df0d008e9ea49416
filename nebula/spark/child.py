"""The engine host as its service sees it: a child process, spoken to in lines, that never outlives us."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import anyio
from anyio.abc import Process

from nebula.spark.lines import Bye, Hello, Line, LineError, LineReader, LineWriter, Stop
from nebula.spark.processes import MARKER, kill_engine
from nebula.stomp.addresses import BROKER_VARIABLE
from nebula.stomp.client.ambient import ambient_broker

# The file for what the host and its JVM say outside of the protocol.
ERRORS = "engine.err"

HOST_COMMAND = (sys.executable, "-m", "nebula.spark.host")

# How long a process may take to vanish after SIGKILL; more means that the kernel holds it.
_KILL_SECONDS = 5.0


class Child:
    """One engine host process, from its start to the end of its last descendant.

    Attributes:
        incarnation: the name of this start; all its processes bear it in their environment.
        pid: of the host.
        has_said_bye: whether it ended on purpose; without that, whatever it ran is lost.
    """

    def __init__(self, process: Process, incarnation: str) -> None:
        self._process = process
        self._reader, self._writer = LineReader(), LineWriter()
        self._has_opened = False
        self.incarnation = incarnation
        self.pid = process.pid
        self.has_said_bye = False

    @classmethod
    async def start(cls, command: Sequence[str], folder: Path) -> Child:
        """Start a host whose own output goes to a new file `engine.err` in `folder`.

        Raises:
            OSError: it cannot be started.
        """
        incarnation = uuid4().hex
        # Read and appended to: the host cuts it where it grows large.
        async with await anyio.open_file(folder / ERRORS, "a+b") as errors:
            await errors.truncate(0)
            process = await anyio.open_process(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors.wrapped,
                env=environment_of(incarnation),
                # Ctrl-C in a terminal is for the service; it decides what becomes of its engine.
                start_new_session=True,
            )
        return cls(process, incarnation)

    async def read(self) -> list[Line]:
        """The lines that came; none at all at the end of the conversation.

        Raises:
            LineError: the host does not speak our language.
        """
        assert self._process.stdout is not None  # it was opened with a pipe
        received: list[Line] = []
        while not received:
            if self._reader.failure is not None:
                raise self._reader.failure
            try:
                data = await self._process.stdout.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return []
            received = self._reader.feed(data)
        if not self._has_opened and not isinstance(received[0], Hello):
            raise LineError("its first line is not `hello`")
        self._has_opened = True
        self.has_said_bye |= isinstance(received[-1], Bye)
        return received

    async def send(self, line: Line) -> None:
        """Write one line. Whether the host still reads shows in `read`, not here."""
        assert self._process.stdin is not None  # it was opened with a pipe
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            await self._process.stdin.send(self._writer.encode(line))

    async def wait(self) -> None:
        """Wait until the host's process has ended; what it said last may still have to be read."""
        await self._process.wait()

    async def close(self, grace: float) -> int | None:
        """Ask it to stop, wait at most `grace` seconds, then kill. Afterwards no descendant lives.

        Returns:
            The exit status, negative for a signal; None if the kernel does not let it go.
        """
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(grace):
                await self.send(Stop())
                async with anyio.create_task_group() as group:
                    # A host that cannot write does not read its Stop either.
                    group.start_soon(self._drain)
                    await self._process.wait()
                    group.cancel_scope.cancel()
            # The host first: while it lives it may start more.
            with suppress(ProcessLookupError):
                self._process.kill()
            with anyio.move_on_after(_KILL_SECONDS):
                await self._process.wait()
            await anyio.to_thread.run_sync(kill_engine, self.incarnation, self.pid)
            with anyio.move_on_after(_KILL_SECONDS):
                await self._process.aclose()
        return self._process.returncode

    async def _drain(self) -> None:
        with suppress(LineError):
            while await self.read():
                pass


def environment_of(incarnation: str) -> dict[str, str]:
    """What a process of ours gets as its environment, with the mark by which it is found."""
    # The host and Python's workers import the same modules as the service, wherever it found them. Its
    # own sys.path reaches neither: workers get theirs from the environment alone.
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
    return {**os.environ, **_broker(), MARKER: incarnation, "PYTHONPATH": path}


def _broker() -> dict[str, str]:
    """What `Client()` means here; a broker in memory is out of reach there, and so is any other one."""
    broker = ambient_broker()
    return {} if broker is None else {BROKER_VARIABLE: broker.url}
