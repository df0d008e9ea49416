"""One engine host from its start to its end: what it is told, what it says, and why it has to go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import anyio

from nebula.rpc.contract.job_runner import JobTask
from nebula.spark import lines
from nebula.spark.child import ERRORS, Child
from nebula.spark.crash_report import last_words
from nebula.spark.engine import Spark
from nebula.spark.mailbox import Mailbox

# How often the host's signs of life are looked at.
TICK_SECONDS = 0.5

# For what an ended host said last to be read.
_LAST_WORDS_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class End:
    """Why a host has to go.

    Attributes:
        reason: for people, and for the jobs that are lost with it.
        is_hung: it does not react, and is not asked to stop first.
        is_idle: nobody needs another one before the next job.
        is_sudden: it has ended by itself, and has not said why.
        is_failure: nobody wished it: it has ended by itself, or does not do what it should.
    """

    reason: str
    is_hung: bool = False
    is_idle: bool = False
    is_sudden: bool = False
    is_failure: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """What is known of a host that is gone.

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


class HostRun:
    """One engine host, from its start to the end of its last process.

    Attributes:
        incarnation: the name of this start.
        pid: of the host.
        began: when it was started, on the monotonic clock.
        handed_over: how many jobs it was given.
        is_leaving: its end is decided: what it is given now it would take with it.
        ready: what it said when its session was up.
        beat: what it said of itself last.
    """

    def __init__(self, child: Child, folder: Path, spark: Spark) -> None:
        self._child, self._folder, self._spark = child, folder, spark
        self.incarnation, self.pid = child.incarnation, child.pid
        self._outbox = Mailbox[lines.Line]()
        self._must_look = anyio.Event()
        self.began = self._heard = monotonic()
        self.handed_over = 0
        self.is_leaving = False
        self.ready: lines.Ready | None = None
        self.beat: lines.Beat | None = None
        self._farewell: str | None = None

    @classmethod
    async def start(cls, command: Sequence[str], folder: Path, spark: Spark) -> HostRun:
        """Start a host whose own output goes to `engine.err` in this folder.

        Raises:
            OSError: it cannot be started.
        """
        # A start that is cancelled half-way would leave a process that nobody knows.
        with anyio.CancelScope(shield=True):
            child = await Child.start(command, folder)
        return cls(child, folder, spark)

    def say(self, line: lines.Line) -> None:
        """Tell the host. Never waits."""
        self._outbox.put(line)

    def submit(self, task: JobTask) -> lines.Failed | None:
        """Tell it to run this attempt. Never waits.

        Returns:
            How the attempt failed, where it cannot be said in a line; the host has not heard of it.
        """
        line = lines.Submit.of(task)
        try:
            lines.check(line)
        except (TypeError, ValueError) as error:
            text = f"the parameters cannot be given to the engine: {error}"
            return lines.Failed(task.job, task.attempt, "bad-parameters", text, None, "")
        self.handed_over += 1
        self.say(line)
        return None

    def look(self) -> None:
        """Have `why_end` asked now, not at the next tick."""
        self._must_look.set()

    # Three things end a talk, and the first one counts: what is heard, the host's exit, and `why_end`.
    async def converse(
        self,
        configuration: lines.Configure,
        hear: Callable[[lines.Line], None],
        why_end: Callable[[float], End | None],
    ) -> End:
        """Speak with the host until there is a reason to end it.

        Args:
            configuration: what it is told first.
            hear: gets each line that it says, in order.
            why_end: asked twice a second, and after `look`, with the monotonic time.
        """
        ends: list[End] = []
        self.say(configuration)
        async with anyio.create_task_group() as group:

            async def until_it_ends(wait: Callable[[], Awaitable[End]]) -> None:
                ends.append(await wait())
                self.is_leaving = True
                group.cancel_scope.cancel()

            group.start_soon(self._write)
            group.start_soon(until_it_ends, partial(self._listen, hear))
            group.start_soon(until_it_ends, self._await_exit)
            group.start_soon(until_it_ends, partial(self._watch, why_end))
        return ends[0]

    async def close(self, end: End) -> Ended:
        """End it, politely unless it is hung. No process of it lives when this returns."""
        self.is_leaving = True
        status = await self._child.close(0.0 if end.is_hung else self._spark.stop_grace)
        if not end.is_sudden:
            return Ended(end.reason, status, is_failure=end.is_failure)
        words = await anyio.to_thread.run_sync(last_words, self._folder / ERRORS, status)
        return Ended(f"{end.reason} ({words.how})", status, is_failure=True, trace=words.trace)

    async def _write(self) -> None:
        while True:
            await self._child.send(await self._outbox.take())

    async def _listen(self, hear: Callable[[lines.Line], None]) -> End:
        while True:
            try:
                received = await self._child.read()
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

    async def _await_exit(self) -> End:
        # Its end is normally heard as the end of its output, but a process that a job forked may hold that
        # open.
        await self._child.wait()
        await anyio.sleep(_LAST_WORDS_SECONDS)
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
            if now - looked > 2 * TICK_SECONDS:
                # Our own loop stood still: the silence may be ours, not the host's.
                self._heard = now
            end = self._why_dead(now) or why_end(now)
            if end is not None:
                # At once: between now and the end of this talk a job may come.
                self.is_leaving = True
                return end

    def _why_dead(self, now: float) -> End | None:
        spark = self._spark
        if now - self._heard > spark.silence_timeout:
            silence = f"the engine host was silent for {spark.silence_timeout:g} s"
            return End(silence, is_hung=True, is_failure=True)
        if self.ready is None and now - self.began > spark.start_timeout:
            late = f"Spark did not start within {spark.start_timeout:g} s"
            return End(late, is_hung=True, is_failure=True)
        return None
