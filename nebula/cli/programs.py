"""Programs that run until a signal ends them: the loop, the signals, the order of start and stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import anyio

from nebula import logs
from nebula.cli.arguments import find_app
from nebula.cli.exits import Exit
from nebula.cli.hangups import ends_by_hangup, note_hangups, take_hangup
from nebula.cli.progress import StartView
from nebula.cli.supervising import Supervisor
from nebula.cli.terminal import flush_all
from nebula.errors import SettingsError
from nebula.logs import Level, get_logger
from nebula.record.recorder import Recorder
from nebula.rpc.service.responder import Responder

# Programs import only what they run, so that services run where no broker is installed.
if TYPE_CHECKING:
    from nebula.broker.operations.history import History
    from nebula.broker.server.server import Server
    from nebula.broker.settings import BrokerSettings, SettingsSource
    from nebula.console.relay import Relay
    from nebula.host.apps import App

_log = get_logger("nebula.broker")

# A burst makes a few short-lived objects for each message, without reference cycles. With CPython's threshold
# of 700 the garbage collector took a fifth of the broker's time to find nothing, see docs/decisions/0004.
_GC_THRESHOLDS = (50_000, 20, 20)


def run_broker(
    settings: BrokerSettings,
    on_listening: Callable[[str], None],
    on_console: Callable[[str], None],
    source: SettingsSource | None = None,
) -> None:
    """Run a broker and the services it hosts until SIGTERM or SIGINT, then drain and end it.

    While it drains, no connection is admitted. Requests under way at hosted services have half of
    `drain_seconds` to be answered, and peers have the other half to read their last frames. A second signal
    ends the process at once; receipted messages are on disk then too. On a terminal SIGHUP ends it as SIGTERM
    does, elsewhere it makes the broker reload its files.

    Args:
        settings: everything it is told.
        on_listening: called with each URL once all of them listen and all services take requests.
        on_console: called afterwards with each URL of the console.
        source: from where a reload reads the settings again; None: they stay as they are.

    Raises:
        SettingsError: an address cannot be had, or a service that is no service.
        BaseException: what a hosted service ended with: the broker does not go on without it.
    """
    from nebula.broker.assembly import files_wanted

    apps = [find_app(target) for target in settings.app]
    logs.configure(settings.log_level)
    gc.set_threshold(*_GC_THRESHOLDS)
    _raise_file_limit(files_wanted(settings))
    _run(_serve_broker(settings, apps, on_listening, on_console, source))


def _raise_file_limit(wanted: int) -> None:
    """Let the process open as many files, as far as it may."""
    try:
        import resource
    except ModuleNotFoundError:
        # Windows has no such limit.
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    # Never lowered.
    if soft != resource.RLIM_INFINITY and soft < possible:
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
    # Only a warning, because most brokers have fewer connections.
    if possible < wanted:
        _log.warning("open files limited", limit=possible, wanted=wanted)


def run_service(
    app: Responder,
    url: str | None,
    level: Level,
    on_serving: Callable[[str | None], None],
    *,
    http: tuple[str, int] | None = None,
    is_supervised: bool = False,
    is_exclusive: bool = False,
) -> None:
    """Run a service until SIGTERM or SIGINT; requests under way are answered before it returns.

    Args:
        app: the service.
        url: of the broker; None for the environment's, else the usual one.
        level: of the log.
        on_serving: called once every queue is listened to, with the URL of the probes if there are any.
        http: host and port for probes and metrics.
        is_supervised: the end of stdin stops it too, as it is the end of its supervisor.
        is_exclusive: do not start while an instance with another contract runs.

    Raises:
        NebulaError: as `Responder.run`.
        SettingsError: the port cannot be had.
    """
    logs.configure(level)
    _run(_serve_app(app, url, on_serving, http, is_supervised=is_supervised, is_exclusive=is_exclusive))


def run_supervisor(supervisor: Callable[[], Supervisor], level: Level) -> int:
    """Keep workers alive until SIGTERM or SIGINT, and end them; a second signal leaves them to end alone.

    Args:
        supervisor: makes it, on the loop.
        level: of the log.

    Returns:
        The status to exit with.
    """
    logs.configure(level)
    status = int(Exit.OK)

    async def supervise() -> None:
        nonlocal status
        one = supervisor()
        with _until_signal():
            await one.run()
        status = one.status

    _run(supervise())
    return status


def run_console(relay: Relay, level: Level, on_serving: Callable[[str], None]) -> None:
    """Serve the console next to a broker until SIGTERM or SIGINT.

    Args:
        relay: where it listens, and the broker.
        level: of the log.
        on_serving: called once with the URL.

    Raises:
        SettingsError: the address cannot be used.
    """
    logs.configure(level)

    async def serve() -> None:
        with _until_signal():
            try:
                async with relay.serving() as url:
                    on_serving(url)
                    await anyio.sleep_forever()
            except (OSError, UnicodeError) as error:
                reason = (error.strerror or error) if isinstance(error, OSError) else "not a host name"
                place = f"{relay.host}:{relay.port}"
                raise SettingsError(f"the console cannot listen on {place}: {reason}") from error

    _run(serve())


def run_recorder(recorder: Recorder, level: Level, on_recording: Callable[[], None]) -> None:
    """Record until SIGTERM or SIGINT; what was received by then is recorded. A second signal ends it at once.

    Args:
        recorder: which has not run.
        level: of the log.
        on_recording: called once, when all is subscribed to.

    Raises:
        NebulaError: as `Recorder.run`.
    """
    logs.configure(level)
    gc.set_threshold(*_GC_THRESHOLDS)

    async def record() -> None:
        with _at_signal(recorder.stop):
            await recorder.run(on_recording)

    _run(record())


async def _serve_broker(
    settings: BrokerSettings,
    apps: Sequence[App],
    on_listening: Callable[[str], None],
    on_console: Callable[[str], None],
    source: SettingsSource | None,
) -> None:
    from nebula.broker.assembly import Assembly
    from nebula.broker.server.systemd import READY, STOPPING, ServiceManager
    from nebula.console.assets import PATH
    from nebula.host.apps import hosting
    from nebula.host.broker_verbs import broker_responder
    from nebula.host.http_results import calls_and_results

    failure = _Failure()
    view = StartView()
    assembly = Assembly(settings, failure.set, view.tell, source)
    server = assembly.server
    hosted: list[App] = [*apps, broker_responder(assembly), *calls_and_results(assembly)]
    # Half each for services and peers: replies are written after the services have ended.
    half = settings.limits.drain_seconds / 2
    try:
        # Opening a large store may take minutes.
        with view.shown():
            await server.start()
    except OSError as error:
        # Usually the port is in use: a mistake in the settings, so status 2.
        raise SettingsError(f"the broker cannot listen: {error.strerror or error}") from error
    manager = ServiceManager()
    with _until_signal() as ending, _on_hangup(assembly.reload, ending.cancel), manager.watched():
        try:
            # Services first, because scripts may call them after the first line of output.
            async with hosting(server, hosted, failure.tell, grace=half):
                for url in server.urls:
                    on_listening(url)
                for url, listener in server.places:
                    if listener.console:
                        on_console(f"{url.replace('ws', 'http', 1)}{PATH}")
                assembly.tell_place()
                # Only now systemd may start units that depend on the broker.
                manager.tell(READY)
                sampling = asyncio.ensure_future(_keep_history(server, assembly.history))
                try:
                    # It never returns: a signal cancels it, a failure raises.
                    await failure.wait()
                finally:
                    sampling.cancel()
                    manager.tell(STOPPING)
                    # First, so that no further client connects during the drain.
                    server.close_listeners()
        finally:
            # Shielded, because the signal has cancelled the scope around this.
            with anyio.CancelScope(shield=True):
                await _stop(server, half)


async def _keep_history(server: Server, history: History) -> None:
    """Take a sample now and each ten seconds, until this is cancelled."""
    from nebula.broker.operations.history import SAMPLE_SECONDS

    while True:
        history.note(time.time(), await server.runtime.walk(server.status()))
        await anyio.sleep(SAMPLE_SECONDS)


async def _stop(server: Server, seconds: float) -> None:
    from nebula.broker.store.writer import StoreStuck

    try:
        await server.stop(seconds)
    except StoreStuck as error:
        _log.critical("store did not stop", error=str(error))
        # The interpreter would wait for the store's thread, and that waits for the disk.
        flush_all()
        # No message with a RECEIPT is lost: its batch is on disk.
        os._exit(Exit.FAILED)


class _Failure:
    """The first failure of the broker or any app, waited for on the broker's loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._first: asyncio.Future[None] = self._loop.create_future()
        # Started at once: it is not awaited any more when the program ends for another reason.
        self._first.add_done_callback(lambda first: first.cancelled() or first.exception())

    def tell(self, app: App, error: BaseException) -> None:  # noqa: ARG002  # the error says enough
        # The program may have ended without an app that did not stop in time.
        with contextlib.suppress(RuntimeError):
            # Apps run on threads of their own.
            self._loop.call_soon_threadsafe(self.set, error)

    def set(self, error: BaseException) -> None:
        """The same, of the broker itself, on its own thread."""
        # Later failures are often consequences of the first.
        if not self._first.done():
            self._first.set_exception(error)

    async def wait(self) -> None:
        await self._first


async def _serve_app(
    app: Responder,
    url: str | None,
    on_serving: Callable[[str | None], None],
    http: tuple[str, int] | None,
    *,
    is_supervised: bool,
    is_exclusive: bool,
) -> None:
    started = anyio.Event()

    async def announce(pages: str | None) -> None:
        # A task, because `app.run` does not return while it serves.
        await started.wait()
        on_serving(pages)

    async with contextlib.AsyncExitStack() as stack:
        # Before the service starts, so that /readyz replies 503 instead of refusing connections.
        pages = None if http is None else await stack.enter_async_context(_pages(app, *http))
        announcing = asyncio.ensure_future(announce(pages))
        stack.callback(announcing.cancel)
        with _until_signal():
            if is_supervised:
                stack.enter_context(_stopped_with_stdin())
            await app.run(url, started=started, exclusive=is_exclusive)


def _pages(app: Responder, host: str, port: int) -> contextlib.AbstractAsyncContextManager[str]:
    from nebula.host.service_pages import pages_served

    return pages_served(app, host, port)


@contextlib.contextmanager
def _stopped_with_stdin() -> Iterator[None]:
    """Make the end of stdin do what SIGTERM does: the process that held its other end has gone."""
    loop, stdin = asyncio.get_running_loop(), sys.stdin.fileno()

    def on_readable() -> None:
        # The supervisor writes nothing, so the input is readable only when the supervisor has ended, perhaps
        # by SIGKILL.
        if not os.read(stdin, 4096):
            loop.remove_reader(stdin)
            # Ends as usual, so that requests in progress are completed.
            os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(stdin, on_readable)
    try:
        yield
    finally:
        loop.remove_reader(stdin)


@contextlib.contextmanager
def _on_hangup(reload: Callable[[], None], leave: Callable[[], None]) -> Iterator[None]:
    """Call `reload` on each SIGHUP, and now if one was noted before. Errors of `reload` are logged.

    Where a SIGHUP says that our terminal is gone, call `leave` instead. Afterwards a SIGHUP is only noted, or
    ignored: it must not interrupt the shutdown.
    """
    if sys.platform == "win32":
        yield
        return
    loop = asyncio.get_running_loop()
    if ends_by_hangup():
        # A shell and the kernel may each send one: a second one does not end the process at once.
        loop.add_signal_handler(signal.SIGHUP, leave)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        return

    def on_hangup() -> None:
        try:
            reload()
        # The earlier content of a faulty file stays in force, so a mistake neither ends the broker nor opens
        # it to all.
        except SettingsError as error:
            _log.warning("reload failed", reason=str(error))
        else:
            _log.info("files reloaded")

    # On the loop, so that a reload does not begin in the middle of a frame.
    loop.add_signal_handler(signal.SIGHUP, on_hangup)
    try:
        if take_hangup():
            on_hangup()
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        note_hangups()


@contextlib.contextmanager
def _until_signal() -> Iterator[anyio.CancelScope]:
    """Cancel what runs inside when SIGTERM or SIGINT comes; a second one ends the process at once."""
    with anyio.CancelScope() as scope, _at_signal(scope.cancel):
        yield scope


@contextlib.contextmanager
def _at_signal(leave: Callable[[], None]) -> Iterator[None]:
    """Call `leave` when SIGTERM or SIGINT comes; a second one ends the process at once."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def on_first() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)
        # A second signal now ends the process by its default action. For SIGINT the loop has restored
        # Python's handler instead, and its KeyboardInterrupt would wait for shielded scopes, such as one
        # in which a hosted service answers its requests.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        leave()

    for number in numbers:
        try:
            loop.add_signal_handler(number, on_first)
        except NotImplementedError:
            # On Windows loops have no signals. Python's own handler may run between any two instructions.
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(leave))
    yield


def _run(program: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop where there is one: it moves several times the messages of asyncio's own loop."""
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        import uvloop

        new_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(program)
