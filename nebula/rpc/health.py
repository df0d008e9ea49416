"""Whether a service is well, by what its owner declares: hooks that probes ask."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio
import anyio.to_thread
import structlog

__all__ = ["Check", "Checks", "HasHealth"]

_log = structlog.get_logger()

Check = Callable[[], Awaitable[bool | None] | bool | None]
"""Says how it is: False, or an exception, is not well; all else is."""

_C = TypeVar("_C", bound=Check)

# A probe waits no longer, and what hangs is not well.
_SECONDS: Final = 5.0


class Checks:
    """Hooks of one kind, asked together.

    `async def` hooks run on the event loop, plain ones in worker threads.

    Args:
        kind: what they answer for, in the log.
        seconds: that one may take.
    """

    def __init__(self, kind: str, seconds: float = _SECONDS) -> None:
        self._kind = kind
        self._seconds = seconds
        self._checks: list[Check] = []

    def declare(self, check: _C) -> _C:
        """Add one; it is returned as it is.

        Raises:
            TypeError: it takes arguments.
        """
        if any(one.default is one.empty for one in inspect.signature(check).parameters.values()):
            raise TypeError(f"{_name(check)}: a hook for {self._kind} takes no arguments")
        self._checks.append(check)
        return check

    async def failing(self) -> list[str]:
        """The names of those that say no, raise, or do not answer in time, in the order of declaration."""
        said: dict[int, bool] = {}

        async def ask(number: int, check: Check) -> None:
            said[number] = await self._ask(check)

        async with anyio.create_task_group() as tasks:
            for number, check in enumerate(self._checks):
                tasks.start_soon(ask, number, check)
        return [_name(check) for number, check in enumerate(self._checks) if not said[number]]

    async def _ask(self, check: Check) -> bool:
        try:
            with anyio.fail_after(self._seconds):
                if inspect.iscoroutinefunction(check):
                    return await check() is not False
                return await anyio.to_thread.run_sync(check, abandon_on_cancel=True) is not False
        # Whatever the hook does is its answer.
        except Exception:
            _log.exception("check failed", kind=self._kind, check=_name(check))
            return False


class HasHealth:
    """The part of a `Responder` that says how it is."""

    def __init__(self) -> None:
        self._ready, self._live = Checks("ready"), Checks("live")

    def ready(self, check: _C) -> _C:
        """Declare a hook that says whether requests can be handled now: a database that is away, for one.

        A function without arguments, `async def` or plain. False, an exception, or no answer within some
        seconds is a no; it is returned as it is. Probes ask it, see `nebula run --http`; requests come all
        the same.

        Raises:
            TypeError: it takes arguments.
        """
        return self._ready.declare(check)

    def live(self, check: _C) -> _C:
        """Declare a hook that says whether the process is of use at all; as `ready` otherwise.

        Where it says no, an orchestrator starts the service anew.
        """
        return self._live.declare(check)

    async def not_ready(self) -> list[str]:
        """The names of the `ready` hooks that say no."""
        return await self._ready.failing()

    async def not_live(self) -> list[str]:
        """The names of the `live` hooks that say no."""
        return await self._live.failing()


def _name(check: Check) -> str:
    return getattr(check, "__name__", type(check).__name__)
