"""Health checks of a service: hooks that its owner declares and that probes ask."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from typing import Final, TypeVar

import anyio

from nebula.logs import get_logger
from nebula.loop_calls import call_soon_from_thread
from nebula.rpc.contract.hints import parameters_of

__all__ = ["Check", "Checks", "HasHealth"]

_log = get_logger(__name__)

Check = Callable[[], Awaitable[bool | None] | bool | None]
"""Says how it is: False, or an exception, is not well; all else is."""

_C = TypeVar("_C", bound=Check)

# A probe waits no longer, and what hangs is not well.
_SECONDS: Final = 5.0


class Checks:
    """Hooks of one kind, asked together.

    `async def` hooks run on the event loop, plain ones in threads. One that turns out to return an awaitable
    is called again on the loop, from then on always. A hook runs once at a time: callers meanwhile get
    that run's outcome. So a hook that hangs holds one thread, however often it is asked for.

    Args:
        kind: what they answer for, in the log.
        seconds: that one may take.
    """

    def __init__(self, kind: str, seconds: float = _SECONDS) -> None:
        self._kind = kind
        self._seconds = seconds
        self._hooks: list[_Hook] = []

    def declare(self, check: _C) -> _C:
        """Add one; it is returned as it is.

        Raises:
            TypeError: it takes arguments.
        """
        hook = _Hook(check, self._kind, self._seconds)
        if any(one.default is one.empty for one in parameters_of(check)):
            raise TypeError(f"{hook.name}: a hook for {self._kind} takes no arguments")
        self._hooks.append(hook)
        return check

    async def failing(self) -> list[str]:
        """The names of those that say no, raise, or do not answer in time, in the order of declaration."""
        said: dict[_Hook, bool] = {}

        async def ask(hook: _Hook) -> None:
            said[hook] = await hook.is_well()

        # All at once, because a probe has one time limit, and hooks in sequence would add up theirs.
        async with anyio.create_task_group() as tasks:
            for hook in self._hooks:
                tasks.start_soon(ask, hook)
        return [hook.name for hook in self._hooks if not said[hook]]


class _Run:
    """One run of a hook, for all who ask meanwhile; `is_well` is None until something is known."""

    __slots__ = ("deadline", "ended", "is_well")

    def __init__(self, seconds: float) -> None:
        self.deadline = anyio.current_time() + seconds
        self.ended = anyio.Event()
        self.is_well: bool | None = None


class _Hook:
    """A check that is run once at a time."""

    def __init__(self, check: Check, kind: str, seconds: float) -> None:
        self.name = getattr(check, "__name__", type(check).__name__)
        self._check = check
        # A first guess: a lambda, decorated function or object may still return an awaitable.
        self._is_async = inspect.iscoroutinefunction(check)
        self._kind = kind
        self._seconds = seconds
        self._run: _Run | None = None

    async def is_well(self) -> bool:
        """Whether it says so, in time."""
        while True:
            run = self._run
            if run is None:
                run = self._run = _Run(self._seconds)
                if self._is_async:
                    await self._ask(run)
                else:
                    self._begin_thread(run)
            if run.is_well is None:
                await self._wait(run)
            if run.is_well is not None:
                return run.is_well
            # The task that ran it was cancelled, or it belongs on the loop: it is run again.

    async def _wait(self, run: _Run) -> None:
        with anyio.CancelScope(deadline=run.deadline) as in_time:
            await run.ended.wait()
        if in_time.cancelled_caught and run.is_well is None:
            # For all who ask until it comes back, too.
            run.is_well = False
            _log.warning("check hung", kind=self._kind, check=self.name, seconds=self._seconds)

    async def _ask(self, run: _Run) -> None:
        try:
            with anyio.fail_after(self._seconds):
                said = self._check()
                run.is_well = (await said if inspect.isawaitable(said) else said) is not False
        # Whatever the hook does is its result.
        except (Exception, SystemExit):
            self._note_failure(run)
        finally:
            self._end(run)

    def _begin_thread(self, run: _Run) -> None:
        """Run it in a thread of its own, which the end of the program does not wait for."""
        on_loop = call_soon_from_thread()

        def work() -> None:
            try:
                said = self._check()
                if inspect.isawaitable(said):
                    # A lambda, a decorated one, an object: only its result tells.
                    self._is_async = True
                    if inspect.iscoroutine(said):
                        said.close()
                else:
                    run.is_well = said is not False
            except (Exception, SystemExit):
                self._note_failure(run)
            try:
                on_loop(partial(self._end, run))
            except RuntimeError:  # that loop has ended; the next one may ask again
                self._run = None

        name, context = f"check {self.name}", copy_context()
        # Not a thread of anyio's pool: one that hangs would occupy a place there, and hold up the end of the
        # process.
        threading.Thread(target=context.run, args=(work,), name=name, daemon=True).start()

    def _note_failure(self, run: _Run) -> None:
        run.is_well = False
        _log.exception("check failed", kind=self._kind, check=self.name)

    def _end(self, run: _Run) -> None:
        self._run = None
        run.ended.set()


class HasHealth:
    """The part of a `Responder` that says how it is."""

    def __init__(self) -> None:
        self._ready, self._live = Checks("ready"), Checks("live")

    def ready(self, check: _C) -> _C:
        """Declare a hook that says whether requests can be handled now, for example whether a database is
        reachable.

        A function without arguments, `async def` or plain, which is returned unchanged. False, an exception,
        or no result within some seconds means no. Probes call it, see `nebula run --http`; requests are taken
        in any case.

        Raises:
            TypeError: it takes arguments.
        """
        return self._ready.declare(check)

    def live(self, check: _C) -> _C:
        """Declare a hook that says whether the process still works at all; otherwise like `ready`.

        If it says no, an orchestrator restarts the service.
        """
        return self._live.declare(check)

    async def not_ready(self) -> list[str]:
        """The names of the `ready` hooks that say no."""
        return await self._ready.failing()

    async def not_live(self) -> list[str]:
        """The names of the `live` hooks that say no."""
        return await self._live.failing()
