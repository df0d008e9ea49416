"""Apps in the broker's process: each on a thread and a loop of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol

import anyio

from nebula.broker.connection import Connection
from nebula.broker.server import Server
from nebula.host.pipe import AppEnd, BrokerEnd, make_pipe
from nebula.stomp.link import Link

# Broker and apps share one GIL. At CPython's 5 ms an app that computes left an echo through the
# broker 2 % of its rate, at this interval 20 %.
_SWITCH_INTERVAL = 0.0002


class App(Protocol):
    """What can be hosted: a `Responder`, or anything that runs like one."""

    name: str

    async def run(
        self,
        url: str | None = None,
        *,
        link: Callable[[], Awaitable[Link]] | None = None,
        started: anyio.Event | None = None,
    ) -> None:
        """Serve over what `link` opens until cancelled; set `started` when requests are taken."""


class AppThread:
    """One app, served by a broker of this process.

    Its peer is `app:<name>` to the broker, with the rights that follow from that.

    Args:
        app: what to run.
        server: whom it connects to; must be started, on another thread's loop.
        on_end: called once, on the app's thread, when the app has ended: with its error, or None
            when it was stopped.
    """

    def __init__(
        self, app: App, server: Server, on_end: Callable[[BaseException | None], None] | None = None
    ) -> None:
        self._app = app
        self._server = server
        self._on_end = on_end
        self._started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._stop: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name=f"app {app.name}", daemon=True)

    def start(self) -> concurrent.futures.Future[None]:
        """Begin. The result is there when the app takes requests, or holds why it does not."""
        self._thread.start()
        return self._started

    def stop(self, timeout: float = 10.0) -> None:
        """End the app and wait for it. Blocks; call it from a worker thread."""
        self._stop()
        self._thread.join(timeout)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            anyio.run(self._main, backend_options={"use_uvloop": _has_uvloop()})
        except BaseException as failure:
            error = failure
        if not self._started.done():
            self._started.set_exception(error or RuntimeError("the app ended before it had started"))
        if self._on_end is not None:
            self._on_end(error)

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        started = anyio.Event()
        async with anyio.create_task_group() as tasks:

            def stop() -> None:
                # The loop may have ended by itself.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(tasks.cancel_scope.cancel)

            self._stop = stop
            tasks.start_soon(self._tell_started, started)
            await self._app.run(link=self._open_link, started=started)
            tasks.cancel_scope.cancel()

    async def _tell_started(self, started: anyio.Event) -> None:
        await started.wait()
        self._started.set_result(None)

    async def _open_link(self) -> AppEnd:
        broker_end, app_end = make_pipe(self._server.loop, asyncio.get_running_loop())
        self._server.loop.call_soon_threadsafe(self._accept, broker_end)
        return app_end

    def _accept(self, broker_end: BrokerEnd) -> None:
        broker_end.connection = Connection(self._server, f"app:{self._app.name}")
        broker_end.connection.connection_made(broker_end)  # type: ignore[arg-type]  # a pipe's end


@contextlib.contextmanager
def shared_interpreter(apps: Sequence[App]) -> Iterator[None]:
    """Let the broker have its turn beside apps that compute, as long as there are any."""
    before = sys.getswitchinterval()
    if apps:
        sys.setswitchinterval(_SWITCH_INTERVAL)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _has_uvloop() -> bool:
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return False
    return True
