"""Virtual clock: deadlines, back-offs and timeouts pass when a test says so, without waiting.

trio lets a run have a clock of its own (`trio.testing.MockClock`). asyncio has no such thing, but its plain
loop asks itself for the time by `loop.time()` and by nothing else. uvloop's timers are in C and cannot be
moved. Our own deadlines are told by `time.monotonic`, and so the modules that use it get one that can be
moved, for as long as the clock is there: programs pay nothing for it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

# All that tell time, to be there when their clocks are moved: what is imported later has the real one, as has
# what waits for Redis, which knows of no other.
import nebula.rpc.client.cache
import nebula.rpc.client.client
import nebula.rpc.middleware.logs
import nebula.rpc.middleware.metrics
import nebula.rpc.service.responder  # noqa: F401
from nebula.waiter import runs_on_asyncio

if TYPE_CHECKING:
    from nebula.broker.server.server import Server

# Whose deadlines are moved. The broker's clock is an attribute of its server.
_PACKAGES = ("nebula.rpc.", "nebula.stomp.", "nebula.testing.")

_NO_UVLOOP = (
    "uvloop's timers cannot be moved: run the test on asyncio's own loop, with the fixture anyio_backend "
    "returning ('asyncio', {'use_uvloop': False})"
)
_NO_MOCK_CLOCK = (
    "trio's clock is given when it starts: let the fixture anyio_backend return "
    "('trio', {'clock': trio.testing.MockClock(rate=1)})"
)


# docs/decisions/0022: a clock that jumps by itself would overtake the broker's thread.
class VirtualClock:
    """A clock that a test can move forward. `virtual_clock` makes it."""

    def __init__(self, jump: Callable[[float], Any]) -> None:
        self._jump = jump
        # Added to the real time, which goes on: deadlines still end a test that hangs.
        self.passed = 0.0

    def monotonic(self) -> float:
        """The time of `time.monotonic`, plus what was added."""
        return time.monotonic() + self.passed

    async def advance(self, seconds: float) -> None:
        """Let time pass at once, and let all tasks that waited for it continue.

        Whatever is due within `seconds` happens only at their end: a retry that waits again afterwards needs
        another `advance`. Before time passes, all tasks run until they wait.

        Args:
            seconds: how much; time does not run backwards.

        Raises:
            ValueError: it would.
        """
        if seconds < 0:
            raise ValueError(f"time cannot be moved by {seconds} s: it does not run backwards")
        await anyio.wait_all_tasks_blocked()
        self.passed += seconds
        self._jump(seconds)
        # A turn of the loop, in which it looks at its timers, and one for those who were woken by them.
        await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()


# The one that there is, if any.
_clocks: list[VirtualClock] = []


@asynccontextmanager
async def virtual_clock() -> AsyncGenerator[VirtualClock]:
    """Take over the clock for the block: of the running loop, of clients and services, and of brokers of
    `nebula.testing` that are started within it.

    Time runs on as usual, and `advance` moves it as far as the test wants. Wrap it around everything else:

        async with virtual_clock() as clock, TestClient(app) as client:
            ...

    Use brokers in memory: over TCP, a jump looks like a silent broker, because no heart-beat came.

    It needs asyncio's own loop, or trio with a `MockClock` of rate 1. There can be only one at a time.

    Raises:
        RuntimeError: the loop is uvloop's, trio has its usual clock, or there is a clock already.
    """
    if _clocks:
        raise RuntimeError("there is a virtual clock already, around this one")
    with ExitStack() as restored:
        if runs_on_asyncio():
            clock = VirtualClock(lambda _: None)
            restored.enter_context(_moved_loop(clock))
        else:
            clock = VirtualClock(_trio_clock().jump)
        restored.enter_context(_moved_modules(clock))
        _clocks.append(clock)
        restored.callback(_clocks.clear)
        yield clock


def follow_clock(server: Server) -> None:
    """Let a broker that was just started tell time by the test's clock, if there is one."""
    if _clocks:
        (clock,) = _clocks
        # The broker's own loop is not moved; the broker reads its time from `runtime`.
        loop_time = server.runtime.loop.time
        server.runtime.time = lambda: loop_time() + clock.passed


@contextmanager
def _moved_loop(clock: VirtualClock) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    if not isinstance(loop, asyncio.BaseEventLoop):
        raise RuntimeError(_NO_UVLOOP)  # noqa: TRY004  # no argument has the wrong type
    loop_time = loop.time
    loop.time = lambda: loop_time() + clock.passed  # type: ignore[method-assign]
    try:
        yield
    finally:
        # Deletes the attribute of this loop, which hid the method of its class.
        del loop.time


def _trio_clock() -> Any:
    import trio
    import trio.testing

    clock = trio.lowlevel.current_clock()
    if not isinstance(clock, trio.testing.MockClock) or clock.rate != 1:
        raise RuntimeError(_NO_MOCK_CLOCK)
    return clock


@contextmanager
def _moved_modules(clock: VirtualClock) -> Iterator[None]:
    """Give the modules that say `from time import monotonic` another one."""
    moved = [space for module in _our_modules() for space in _namespaces(module)]
    with ExitStack() as restored:
        # By identity, because a module may import it by another name.
        for names in moved:
            for name in [name for name, value in names.items() if value is time.monotonic]:
                names[name] = clock.monotonic
                restored.callback(names.__setitem__, name, time.monotonic)
        yield


def _our_modules() -> list[ModuleType]:
    return [module for path, module in list(sys.modules.items()) if path.startswith(_PACKAGES)]


def _namespaces(module: ModuleType) -> Iterator[dict[str, Any]]:
    """Where names of the module are bound: its own, and the defaults of its functions' arguments."""
    yield vars(module)
    members = list(vars(module).values())
    members += [member for kind in members if isinstance(kind, type) for member in vars(kind).values()]
    for member in members:
        if isinstance(member, FunctionType) and member.__kwdefaults__:
            yield member.__kwdefaults__
