"""`embedded`: a broker and its apps in one process, for the time of a block."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import AsyncIterator, Sequence

import anyio
import anyio.to_thread

from nebula.broker.core.limits import Limits
from nebula.broker.server.server import Listener, Server
from nebula.host.apps import App, hosting
from nebula.logs import get_logger
from nebula.stomp.client.confinement import confined, listening_here

# What a stopping broker may take: it gives its peers half a second.
_STOP_SECONDS = 5.0

_HINT = "nebula.embedded(…, allow_outside=True), or their addresses in a list"

_log = get_logger("nebula.host")


@contextlib.asynccontextmanager
async def embedded(
    *apps: App,
    host: str = "127.0.0.1",
    port: int = 0,
    limits: Limits | None = None,
    allow_outside: bool | Sequence[str] = False,
) -> AsyncIterator[str]:
    """Run a broker and `apps` in this process; the value is the broker's address.

    Broker and apps have a thread and a loop each, so the caller may be on asyncio or trio. They share one
    interpreter, so run verbs that compute for long with `nebula run` instead.

    `Client()` without an address means this broker, in the block and in the apps, whatever `NEBULA_BROKER`
    says; connecting to another one raises `OutsideBroker` unless it is allowed.

    Broker and apps keep nothing after the block: jobs are in a temporary folder, whatever `NEBULA_STATE` and
    `NEBULA_JOBS` say, unless their responder names a place with `state=` or `jobs=`.

    When the block ends, requests under way are answered first. An app that fails while the block
    runs is logged, and the others go on; its callers get `NoResponder`.

    Args:
        apps: responders; each is served before the block begins.
        host: where to listen for others.
        port: 0: a free one.
        limits: what peers may use of the broker.
        allow_outside: True allows connections to all other brokers; or their addresses.

    Raises:
        OSError: the address cannot be used.
        Exception: what an app raised while it started.
    """
    # Without a store: an embedded broker is for tests and trials.
    broker = BrokerThread(Server([Listener(host, port)], limits=limits))
    # `start` blocks until the other loop runs; the caller's loop may be trio's.
    await anyio.to_thread.run_sync(broker.start)
    try:
        url = broker.server.urls[0]
        # `confined` first, so that apps that connect while they start reach this broker.
        with confined(url, hint=_HINT, allow_outside=allow_outside):
            async with hosting(broker.server, apps, _log_failure):
                yield url
    finally:
        # Shielded, or the port would stay open until the process ends.
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(broker.stop)


def _log_failure(app: App, error: BaseException) -> None:
    _log.error("app failed", app=app.name, exc_info=error)


class BrokerThread:
    """A broker on a thread and loop of its own."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._stopped: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="broker", daemon=True)

    def start(self) -> None:
        """Begin, and return when it listens. Raises OSError when it cannot."""
        self._thread.start()
        try:
            self._started.result()
        except BaseException:
            # Joined, so that the thread has ended when the caller sees the error.
            self._thread.join(_STOP_SECONDS)
            raise

    def stop(self) -> None:
        """End it and wait for that."""
        loop, stopped = self.server.runtime.loop, self._stopped
        assert stopped is not None
        loop.call_soon_threadsafe(stopped.set)
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        try:
            self._run_loop()
        except BaseException as error:
            # After the start the error goes to `threading.excepthook`, and clients lose their connections.
            if self._started.done():
                raise
            self._started.set_exception(error)

    def _run_loop(self) -> None:
        try:
            import uvloop
        except ImportError:
            asyncio.run(self._main())
        else:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._main())

    async def _main(self) -> None:
        self._stopped = asyncio.Event()
        await self.server.start()
        # Confinement lets clients of this process connect to these addresses.
        with listening_here(self.server.urls):
            self._started.set_result(None)
            await self._stopped.wait()
        await self.server.stop()
