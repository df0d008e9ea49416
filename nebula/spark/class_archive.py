"""Class archive of one engine: made once, in the background, so that the next processes start faster."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, assert_never
from uuid import uuid4

import anyio

from nebula.environment import ServiceEnvironment
from nebula.logs import get_logger
from nebula.spark import lines
from nebula.spark.cds import is_set_aside, set_aside, why_distrusted
from nebula.spark.engine_process import environment_of
from nebula.spark.processes import kill_engine
from nebula.spark.settings import EngineSettings

_log = get_logger(__name__)

MAKER_COMMAND = (sys.executable, "-m", "nebula.spark.host.archive")

# An engine that was idle for this time is probably idle for half a minute more.
_IDLE_SECONDS = 10.0
_LOOK_SECONDS = 1.0

# It runs at the lowest priority: on a busy machine it takes long.
_MAKE_SECONDS = 900.0


# Theory. Reading and checking Spark's classes is more than half of an engine's start. Java can keep them
# in an archive (class data sharing) and map it at the next start; it refuses one that does not fit, and
# then starts as without. So a wrong archive costs time, never correctness. One that Java refused, or that
# an engine may have died with, is set aside for a day.
#
# The name of an archive has a digest of all that it depends on (`nebula.spark.cds`), so nothing is ever
# invalidated: a new version of Spark asks for another name.
# docs/decisions/0032: made here and not shipped, as each Java, Spark and set of flags needs another.
class ClassArchive:
    """The archive of one engine's classes.

    It is made by a process of its own, at the lowest priority, once an engine was idle for a while: a Spark
    that is started, does a little of everything and ends. It needs some 700 MB of memory for half a minute
    or more. Of several services that want the same one, one makes it. What goes wrong is logged, and the
    engine starts without: nothing waits for it.

    Args:
        settings: of the engine.
        idle_seconds: tells how long the engine has had nothing to do.
        command: what to start as the maker; its niceness and the archive's path come after it.
        niceness: of the maker, 19 for the lowest priority.
        folder: of the archives, instead of the user's cache.
        patience: seconds of idleness before it begins.

    Attributes:
        folder: of the archives; None: the engine wants none.
        state: for `engine.status`: `off`, `distrusted`, `missing`, `unused`, `used`, `refused` as the engine
            says; then `making`, and `made` (for the next start), `elsewhere` (another service makes it) or
            `failed`.
    """

    def __init__(
        self,
        settings: EngineSettings,
        idle_seconds: Callable[[], float],
        *,
        command: Sequence[str] = MAKER_COMMAND,
        folder: Path | None = None,
        niceness: int = 19,
        patience: float = _IDLE_SECONDS,
    ) -> None:
        self._settings, self._idle_seconds = settings, idle_seconds
        self._command, self._patience = [*command, str(niceness)], patience
        # A Connect server's JVM is not ours.
        wants = settings.cds and settings.remote is None
        self.folder = (folder or ServiceEnvironment.read().cache_root / "spark") if wants else None
        self.state = "off"
        self._missing: Path | None = None
        self._refused: tuple[Path, str] | None = None
        self._is_wanted = anyio.Event()

    def hear(self, ready: lines.Ready, *, suspects_it: bool = False) -> None:
        """An engine is up.

        Args:
            ready: has the state of its archive.
            suspects_it: the start before it had the archive, and Java died.
        """
        self.state = ready.archive_state
        if ready.archive is None:
            return
        # Set aside later, in `run`: this is called within a conversation, and must not block.
        archive = Path(ready.archive)
        match ready.archive_state:
            case "refused":
                self._refused = (archive, "Java refused it")
            case "unused" if suspects_it:
                self._refused = (archive, "the engine started without it, and not with it")
            case "distrusted":
                reason = why_distrusted(archive)
                _log.warning("archive of classes not used", archive=ready.archive, reason=reason)
            case "missing":
                self._missing = archive
            case "off" | "unused" | "used":
                pass
            case state:
                assert_never(state)
        self._is_wanted.set()

    async def run(self) -> None:
        """Make and set aside archives, until cancelled. The maker has ended when this returns."""
        while True:
            await self._is_wanted.wait()
            self._is_wanted = anyio.Event()
            if self._refused is not None:
                (archive, reason), self._refused = self._refused, None
                _log.warning("archive of classes set aside for a day", archive=str(archive), reason=reason)
                await anyio.to_thread.run_sync(set_aside, archive, reason)
            if self._missing is not None:
                archive, self._missing = self._missing, None
                await self._make_when_idle(archive)

    async def _make_when_idle(self, archive: Path) -> None:
        # In a thread, since the cache may be on a slow disk.
        if await anyio.to_thread.run_sync(is_set_aside, archive):
            self.state = "failed"
            return
        # A maker needs memory and a core for half a minute. The archive can wait, and a job should not.
        while self._idle_seconds() < self._patience:
            await anyio.sleep(min(_LOOK_SECONDS, self._patience))
        self.state = "making"
        began = monotonic()
        reason = await self._make(archive)
        seconds = round(monotonic() - began, 1)
        log = _log.bind(archive=str(archive), seconds=seconds)
        if reason is not None:
            await anyio.to_thread.run_sync(set_aside, archive, reason)
            self.state = "failed"
            log.warning("archive of classes not made, and not tried again for a day", reason=reason)
        # The maker returns 0 also where another process makes the archive now.
        elif await anyio.to_thread.run_sync(archive.is_file):
            self.state = "made"
            log.info("archive of classes made")
        else:
            self.state = "elsewhere"

    async def _make(self, archive: Path) -> str | None:
        """Run the maker: None, or why there is no archive."""
        incarnation = uuid4().hex
        try:
            process = await anyio.open_process(
                [*self._command, str(archive)],
                # Its end of input is ours: a maker whose service has died ends, too.
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=environment_of(incarnation),
                # A group of its own, so that Ctrl-C in a terminal goes to the service alone.
                start_new_session=True,
            )
        except OSError as error:
            return f"{self._command[0]} was not started: {error}"
        said = b""
        try:
            with anyio.move_on_after(_MAKE_SECONDS):
                assert process.stdin is not None  # opened with pipes
                assert process.stderr is not None
                await process.stdin.send(lines.LineWriter().encode(self._configuration(incarnation)))
                async for part in process.stderr:
                    # Only the end of its output is reported, so no more is kept.
                    said = (said + part)[-1000:]
                await process.wait()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            pass  # it died; its status says the rest
        finally:
            await _end(process, incarnation)
        if process.returncode == 0:
            return None
        last = said.decode(errors="replace").strip().rpartition("\n")[2]
        return last or f"its maker ended with status {process.returncode}"

    def _configuration(self, incarnation: str) -> lines.Configure:
        return lines.Configure(
            name="archive",
            incarnation=incarnation,
            folder="",
            results="",
            # One thread: it runs next to jobs, and only the classes that are loaded matter.
            master="local[1]",
            memory=self._settings.memory,
            conf=dict(self._settings.conf),
            max_rows=0,
            max_result_bytes=0,
            cancel_grace=0.0,
            archives=str(self.folder),
        )


async def _end(process: Any, incarnation: str) -> None:
    # Also at a cancellation: no maker outlives the service that wanted it.
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            process.kill()
            with anyio.move_on_after(5):
                await process.wait()
        # The maker's JVM has the mark in its environment, and may outlive the maker.
        await anyio.to_thread.run_sync(kill_engine, incarnation, process.pid)
        with anyio.move_on_after(5):
            await process.aclose()
