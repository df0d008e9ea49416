"""Hosting of apps in the broker's process, each on its own thread and event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

import anyio
import anyio.to_thread

from nebula.broker.server.server import Server
from nebula.host.pipe import AppEnd, join
from nebula.logs import get_logger
from nebula.stomp.client.ambient import ambient_broker, carried
from nebula.stomp.client.link import Link

# Broker and apps share one GIL. At CPython's 5 ms an app that computes left an echo through the
# broker 2 % of its rate, at this interval 20 %.
_SWITCH_INTERVAL = 0.0002

# Apps get a link, so the address in the environment, which may be another broker's, is not used.
_NO_ADDRESS = "stomp://localhost"

# Seconds for an app to end, after the grace of its requests: it closes connections and may kill an engine.
_CLOSING_SECONDS = 1.0

_log = get_logger("nebula.host")


class App(Protocol):
    """What can be hosted: a `Responder`, or anything that runs like one."""

    name: str

    async def run(
        self,
        url: str | None = None,
        *,
        link: Callable[[], Awaitable[Link]] | None = None,
        started: anyio.Event | None = None,
        grace: float = 5.0,
    ) -> None:
        """Serve over what `link` opens until cancelled; set `started` when requests are taken.

        When cancelled, requests under way have `grace` seconds to be answered.
        """


# Theory. Each app has a thread and a loop of its own, because verbs may compute or block, and a broker on the
# same loop would miss heart-beats meanwhile. They still share the interpreter's lock, so its switch interval
# is shortened (`shared_interpreter`). Bytes pass through memory (`pipe`), and the broker sees an ordinary
# connection.
@contextlib.asynccontextmanager
async def hosting(
    server: Server,
    apps: Sequence[App],
    on_failure: Callable[[App, BaseException], None],
    *,
    grace: float = 5.0,
) -> AsyncIterator[None]:
    """Serve `apps` by a broker of this process, from the block's begin to its end.

    The block begins when all of them take requests. At its end all of them stop at once; it takes
    `grace` seconds at most, and little more.

    Args:
        server: started, on this loop or another thread's.
        apps: what to host.
        on_failure: told, on its thread, of an app that ends while the block runs; the others go on.
        grace: seconds that requests under way have to be answered.

    Raises:
        BaseException: what an app raised while it started.
    """

    def on_end(app: App, error: BaseException | None) -> None:
        # None: `stop` has ended the app.
        if error is not None:
            on_failure(app, error)

    threads: list[AppThread] = []
    with shared_interpreter(apps):
        try:
            for app in apps:
                # One after the other: a later app may call an earlier one while it starts.
                threads.append(AppThread(app, server, partial(on_end, app), grace=grace))
                # Abandoned with the caller: an app may hang as it starts, and is stopped then.
                await anyio.to_thread.run_sync(threads[-1].start().result, abandon_on_cancel=True)
            yield
        finally:
            # Shielded, or cancellation would leave threads that use a broker that is about to stop.
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as stopping:
                    for thread in threads:
                        # Concurrently, because each may take its whole grace.
                        stopping.start_soon(partial(anyio.to_thread.run_sync, thread.stop))


class AppThread:
    """One app, served by a broker of this process.

    Its peer is `app:<name>` to the broker, with the rights that follow from that.

    Args:
        app: what to run.
        server: the broker that it connects to; started, on another thread's loop.
        on_end: called once, on the app's thread, when an app that had started has ended: with its
            error, or None when it was stopped.
        grace: seconds that requests under way have to be answered when it is stopped.
    """

    def __init__(
        self,
        app: App,
        server: Server,
        on_end: Callable[[BaseException | None], None] | None = None,
        *,
        grace: float = 5.0,
    ) -> None:
        self._app = app
        self._server = server
        self._on_end = on_end
        self._grace = grace
        # Not an asyncio future: the waiting thread may have no loop.
        self._started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._is_stopping = False
        # Read on the caller's thread, because a new thread does not inherit context variables.
        self._ambient = ambient_broker()
        self._cancel: Callable[[], None] = lambda: None
        # A daemon, so that an app that hangs does not keep the process alive.
        self._thread = threading.Thread(target=self._run, name=f"app {app.name}", daemon=True)

    def start(self) -> concurrent.futures.Future[None]:
        """Begin. The result is there when the app takes requests, or holds why it does not."""
        # Who no longer waits for it cannot cancel it: `stop` is what ends an app.
        self._started.set_running_or_notify_cancel()
        self._thread.start()
        return self._started

    def stop(self, timeout: float | None = None) -> None:
        """End the app and wait for it. Blocks; call it from a worker thread.

        An app that does not end within `timeout` seconds is left to itself, and the log says so.
        Without `timeout` it has its grace and a second.
        """
        timeout = self._grace + _CLOSING_SECONDS if timeout is None else timeout
        # Set before `_cancel` is called; `_main` relies on this order.
        self._is_stopping = True
        self._cancel()
        self._thread.join(timeout)
        if self._thread.is_alive():
            _log.warning("app left running", app=self._app.name, seconds=timeout)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            with carried(self._ambient):
                anyio.run(self._main, backend_options={"use_uvloop": _has_uvloop()})
        # SystemExit and KeyboardInterrupt would end only this thread, and the caller has to know.
        except BaseException as failure:
            error = failure
        # An app that ends before it takes requests fails `start`; `on_end` is not called.
        if not self._started.done():
            self._started.set_exception(error or RuntimeError("the app ended before it had started"))
        elif self._on_end is not None:
            self._on_end(error)

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        started = anyio.Event()
        # A task, not a group of them, which would wrap the app's error.
        telling = loop.create_task(self._tell_started(started))
        # The scope swallows the cancellation of `stop`, so that an app that was stopped ends without an
        # error.
        with anyio.CancelScope() as scope:

            def cancel() -> None:
                # The loop may have ended by itself.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(scope.cancel)

            self._cancel = cancel
            # In this order, as `stop` does the reverse: one of the two sees the other.
            if not self._is_stopping:
                await self._app.run(_NO_ADDRESS, link=self._open_link, started=started, grace=self._grace)
        telling.cancel()

    async def _tell_started(self, started: anyio.Event) -> None:
        await started.wait()
        self._started.set_result(None)

    async def _open_link(self) -> AppEnd:
        return join(self._server, f"app:{self._app.name}")


@contextlib.contextmanager
def shared_interpreter(apps: Sequence[App]) -> Iterator[None]:
    """Shorten the interpreter's switch interval: apps that compute must not stall the broker.

    May be entered on several threads at once: the last to leave restores what the first found.
    """
    if not apps:
        yield
        return
    _switch_interval.begin()
    try:
        yield
    finally:
        _switch_interval.end()


# For several hosts in one process, as in tests: the first sets the interval, the last restores it.
class _SwitchInterval:
    """The interpreter's switch interval, which belongs to the whole process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = 0.0

    def begin(self) -> None:
        with self._lock:
            if not self._users:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, _SWITCH_INTERVAL))
            self._users += 1

    def end(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                sys.setswitchinterval(self._before)


_switch_interval = _SwitchInterval()


def _has_uvloop() -> bool:
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return False
    return True
