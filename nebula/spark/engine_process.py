"""Engine host process: its start, the conversation with it in lines, and its end with all descendants.

One `EngineProcess` is one start. Three tasks watch it while it runs: what it says (`_listen`), the exit of
its process (`_await_exit`) and the clock (`_watch`). The first one that finds a reason ends the
conversation; `close` then ends the process. A process never outlives the service: `close` is shielded from
cancellation, and the host ends by itself when its standard input does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import anyio
from anyio.abc import Process

from nebula.rpc.contract.job_runner import JobTask
from nebula.spark import lines
from nebula.spark.crash_report import CrashReport, read_crash
from nebula.spark.mailbox import Mailbox
from nebula.spark.processes import MARKER, kill_engine
from nebula.spark.settings import EngineSettings
from nebula.stomp.client.addresses import BROKER_VARIABLE
from nebula.stomp.client.ambient import ambient_broker

# The file for what the host and its JVM say outside of the protocol.
ERRORS = "engine.err"

HOST_COMMAND = (sys.executable, "-m", "nebula.spark.host")

# How often the host's signs of life are checked.
TICK_SECONDS = 0.5

# For the last lines of a host that has exited to be read.
_LAST_LINES_SECONDS = 0.2

# How long a process may take to vanish after SIGKILL; more means that the kernel holds it.
_KILL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class End:
    """Why a process has to go.

    Attributes:
        reason: for people, and for the jobs that are lost with it.
        is_hung: it does not react, and is not asked to stop first.
        is_idle: no other one is needed before the next job.
        is_sudden: it has ended by itself, and has not said why.
        is_failure: unwanted: it has ended by itself, or does not do what it should.
    """

    reason: str
    is_hung: bool = False
    is_idle: bool = False
    is_sudden: bool = False
    is_failure: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """What is known of a process that is gone.

    Attributes:
        reason: as in `End`; of a sudden one, how it died as well.
        status: of its exit, negative for a signal; None if the kernel does not let it go.
        is_failure: as in `End`.
        trace: of the error that it died by, where it has printed one.
    """

    reason: str
    status: int | None
    is_failure: bool = False
    trace: str | None = None

    def facts(self) -> dict[str, Any]:
        """For the log."""
        return {"reason": self.reason, "status": self.status} | ({"trace": self.trace} if self.trace else {})


# Three watchers, because each of them misses something. The end of its output misses a host whose
# descendants hold the pipe open; the exit of the process misses a host that hangs; the clock misses
# nothing, but is late. Whichever comes first decides, and `end` is set once.
#
# Why a kill is not enough: the host has descendants (a JVM, Python's daemon and its workers) that outlive
# it. They inherit a mark in their environment, the incarnation, by which `kill_engine` finds them all,
# also those that were reparented to init. Only then may jobs be told as lost: their next attempts may
# begin at once, and must not meet the last ones.
# docs/decisions/0007: a child, as a JVM that dies or hangs must not take the service with it.
class EngineProcess:
    """One engine host, from its start to the end of its last descendant.

    Attributes:
        incarnation: the name of this start; all its processes have it in their environment.
        pid: of the host.
        began: when it was started, on the monotonic clock.
        handed_over: how many jobs it was given.
        is_leaving: its end is decided: what it is given now would be lost with it.
        end: why it ended, once it has.
        ready: what it said when its session was up.
        beat: its last report of memory and threads.
    """

    def __init__(self, process: Process, incarnation: str, folder: Path, settings: EngineSettings) -> None:
        self._process, self._folder, self._settings = process, folder, settings
        self._reader, self._writer = lines.LineReader(), lines.LineWriter()
        # Unbounded: it holds a few lines for each job that the engine was given.
        self._outbox = Mailbox[lines.Line]()
        self._must_look = anyio.Event()
        self._has_opened = False
        self._farewell: str | None = None
        self.incarnation, self.pid = incarnation, process.pid
        self.began = self._heard = monotonic()
        self.handed_over = 0
        self.is_leaving = False
        self.end: End | None = None
        self.ready: lines.Ready | None = None
        self.beat: lines.Beat | None = None

    @classmethod
    async def start(cls, command: Sequence[str], folder: Path, settings: EngineSettings) -> EngineProcess:
        """Start a host whose own output goes to a new file `engine.err` in `folder`.

        Raises:
            OSError: it cannot be started.
        """
        incarnation = uuid4().hex
        # A start that is cancelled half-way would leave a process that is never ended.
        with anyio.CancelScope(shield=True):
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
        return cls(process, incarnation, folder, settings)

    @property
    def takes_jobs(self) -> bool:
        """Whether its session is up, and it will run what it is given."""
        return self.ready is not None and not self.is_leaving

    def say(self, line: lines.Line) -> None:
        """Tell the host. Never waits; whether it still reads shows in what it says, not here."""
        # Through a mailbox: a host that does not read fills its pipe, and a write would then wait with
        # the caller. Unread lines are bounded by the number of jobs that it is given.
        self._outbox.put(line)

    def submit(self, task: JobTask) -> lines.Failed | None:
        """Tell it to run this attempt. Never waits.

        Returns:
            How the attempt failed, where it cannot be said in a line; the host has not heard of it.
        """
        line = lines.Submit.of(task)
        # Encoded here to see that it can be: in the writer's task an error would reach no job.
        try:
            lines.check(line)
        except (TypeError, ValueError) as error:
            text = f"the parameters cannot be given to the engine: {error}"
            return lines.Failed(task.job, task.attempt, "bad-parameters", text, None, "")
        self.handed_over += 1
        self.say(line)
        return None

    def look(self) -> None:
        """Have `why_end` called now, not at the next tick."""
        self._must_look.set()

    async def converse(
        self,
        configuration: lines.Configure,
        hear: Callable[[lines.Line], None],
        why_end: Callable[[float], End | None],
    ) -> None:
        """Speak with the host until there is a reason to end it: `end`.

        Args:
            configuration: what it is told first.
            hear: gets each line that it says, in order.
            why_end: called twice a second, and after `look`, with the monotonic time.
        """
        self.say(configuration)
        async with anyio.create_task_group() as group:

            async def until_it_ends(wait: Callable[[], Awaitable[End]]) -> None:
                end = await wait()
                # The first end counts: another watcher may find one too before it is cancelled.
                self.end, self.is_leaving = self.end or end, True
                group.cancel_scope.cancel()

            group.start_soon(self._write)
            group.start_soon(until_it_ends, partial(self._listen, hear))
            group.start_soon(until_it_ends, self._await_exit)
            group.start_soon(until_it_ends, partial(self._watch, why_end))

    async def close(self) -> Ended:
        """End it, politely unless it is hung. No process of it lives when this returns."""
        self.is_leaving = True
        # Cancelled from outside: no watcher has found a reason.
        end = self.end = self.end or End("the service stopped")
        # A host that hangs does not read a Stop, so no time is given to it.
        status = await self._end(0.0 if end.is_hung else self._settings.stop_grace)
        if not end.is_sudden:
            return Ended(end.reason, status, is_failure=end.is_failure)
        crash: CrashReport = await anyio.to_thread.run_sync(read_crash, self._folder / ERRORS, status)
        return Ended(f"{end.reason} ({crash.how})", status, is_failure=True, trace=crash.trace)

    # --- what is said ---

    async def _write(self) -> None:
        while True:
            await self._send(await self._outbox.take())

    async def _send(self, line: lines.Line) -> None:
        assert self._process.stdin is not None  # it was opened with a pipe
        # The reader and the exit report a dead host, so the writer need not.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            await self._process.stdin.send(self._writer.encode(line))

    async def _listen(self, hear: Callable[[lines.Line], None]) -> End:
        while True:
            try:
                received = await self._read()
            except lines.LineError as error:
                return End(
                    f"the engine host did not speak our language: {error}", is_hung=True, is_failure=True
                )
            self._heard = monotonic()
            if not received:
                return self._its_own_end()
            for line in received:
                self._note(line)
                hear(line)

    async def _read(self) -> list[lines.Line]:
        """The lines that came; an empty list at the end of the conversation.

        Raises:
            LineError: the host does not speak our language.
        """
        assert self._process.stdout is not None  # it was opened with a pipe
        received: list[lines.Line] = []
        while not received:
            if self._reader.failure is not None:
                raise self._reader.failure
            try:
                data = await self._process.stdout.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return []
            received = self._reader.feed(data)
        # Some other program was started, or something printed before the host did.
        if not self._has_opened and not isinstance(received[0], lines.Hello):
            raise lines.LineError("its first line is not `hello`")
        self._has_opened = True
        return received

    def _note(self, line: lines.Line) -> None:
        match line:
            case lines.Ready():
                self.ready = line
            case lines.Beat():
                self.beat = line
            case lines.Bye():
                self._farewell = line.reason
            case _:
                pass

    # --- why it ends ---

    async def _await_exit(self) -> End:
        # Normally the end of its output says so, but a process that a job forked may hold that open.
        await self._process.wait()
        # The pipe may still hold the lines before its end, `Bye` among them.
        await anyio.sleep(_LAST_LINES_SECONDS)
        return self._its_own_end()

    def _its_own_end(self) -> End:
        if self._farewell:
            return End(self._farewell, is_failure=True)
        return End("the engine host died", is_sudden=True, is_failure=True)

    async def _watch(self, why_end: Callable[[float], End | None]) -> End:
        while True:
            looked = monotonic()
            with anyio.move_on_after(TICK_SECONDS):
                await self._must_look.wait()
            self._must_look = anyio.Event()
            now = monotonic()
            # A loop that is late by less than a tick is only busy.
            if now - looked > 2 * TICK_SECONDS:
                # Our own loop stood still: the silence may be ours, not the host's.
                self._heard = now
            end = self._why_dead(now) or why_end(now)
            if end is not None:
                # At once: between now and the end of this conversation a job may come.
                self.is_leaving = True
                return end

    def _why_dead(self, now: float) -> End | None:
        settings = self._settings
        if now - self._heard > settings.silence_timeout:
            silence = f"the engine host was silent for {settings.silence_timeout:g} s"
            return End(silence, is_hung=True, is_failure=True)
        if self.ready is None and now - self.began > settings.start_timeout:
            late = f"Spark did not start within {settings.start_timeout:g} s"
            return End(late, is_hung=True, is_failure=True)
        return None

    async def _end(self, grace: float) -> int | None:
        """Ask the process to stop, wait at most `grace` seconds, then kill. Afterwards no descendant lives.

        Returns:
            The exit status, negative for a signal; None if the kernel does not let it go.
        """
        with anyio.CancelScope(shield=True):
            # A clean stop lets Spark remove its folders, and closes sessions on a Connect server.
            with anyio.move_on_after(grace):
                await self._send(lines.Stop())
                async with anyio.create_task_group() as group:
                    # A host that cannot write does not read its Stop either.
                    group.start_soon(self._drain)
                    await self._process.wait()
                    group.cancel_scope.cancel()
            # The host first: while it lives it may start more.
            with suppress(ProcessLookupError):
                self._process.kill()
            # SIGKILL cannot be refused, but a process in an uninterruptible wait for a disk ends only
            # afterwards.
            with anyio.move_on_after(_KILL_SECONDS):
                await self._process.wait()
            await anyio.to_thread.run_sync(kill_engine, self.incarnation, self.pid)
            with anyio.move_on_after(_KILL_SECONDS):
                await self._process.aclose()
        return self._process.returncode

    async def _drain(self) -> None:
        with suppress(lines.LineError):
            while await self._read():
                pass


def environment_of(incarnation: str) -> dict[str, str]:
    """The environment of an engine's processes, with the mark by which they are found."""
    # The host and Python's workers import the same modules as the service, wherever it found them. Its
    # own sys.path reaches neither: workers get theirs from the environment alone.
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
    # The mark overrides an inherited one: a service may run within another engine's job.
    return {**os.environ, **_broker(), MARKER: incarnation, "PYTHONPATH": path}


def _broker() -> dict[str, str]:
    """What `Client()` means here; a broker in memory is out of reach there, and so is any other one."""
    broker = ambient_broker()
    return {} if broker is None else {BROKER_VARIABLE: broker.url}
