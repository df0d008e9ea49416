"""A real broker in the test's process, reached in memory, by TCP or by TLS."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, assert_never
from uuid import uuid4

import anyio
import anyio.to_thread

from nebula.broker.assembly import Assembly
from nebula.broker.operations.certificates import make_authority
from nebula.broker.server.server import Server
from nebula.broker.settings import BrokerSettings, ListenerSettings
from nebula.host.apps import AppThread
from nebula.host.broker_verbs import broker_responder
from nebula.host.embedding import BrokerThread
from nebula.host.pipe import join
from nebula.logs import get_logger
from nebula.stomp.client.addresses import Address, parse_address
from nebula.stomp.client.link import Link
from nebula.stomp.client.memory_links import listening_in_memory
from nebula.stomp.client.tls import TlsOptions
from nebula.testing.clock import follow_clock

Transport: TypeAlias = Literal["memory", "tcp", "tls"]
"""How a broker for tests is reached."""

# Of the certificates that a broker has for as long as a test.
_DAYS = 1.0

_log = get_logger("nebula.testing")


class RunningBroker:
    """A broker on a thread and a loop of its own, so that plain tests and tests on trio can use one, too.

    A context manager, to be used with `with`. It keeps nothing on disk unless `data` names a folder.

    In memory, a peer is the principal that its address names, without a passcode: `memory://alice@NAME`. Its
    rights are checked as usual.

    Args:
        settings: all settings of `nebula broker`. Only listeners that are given are opened, by default none.
        transport: the kind of `url`. The broker can always be reached in memory; for `tls` it gets a
            certificate from a CA that is made for it alone.
        server: instead of `settings`, an existing broker that can be started once, without a broker's own
            verbs. `url` is then the first address at which it listens, if it does.
        **tables: instead of `settings`, the tables of `nebula.toml` as keywords:
            `limits={"max_connections": 2}, destination=[{"pattern": "/queue/small", "max_messages": 1}]`.

    Attributes:
        url: where to connect, from `start` on.
        memory_url: the address in memory; known at once.
        urls: the other addresses at which it listens.
        tls: what a client needs to trust it; None: it is not encrypted.
        server: the broker itself, from `start` on.

    Raises:
        ValueError: settings that do not exist (pydantic's `ValidationError`), or no such transport.
    """

    def __init__(
        self,
        settings: BrokerSettings | None = None,
        *,
        transport: Transport = "memory",
        server: Server | None = None,
        **tables: Any,
    ) -> None:
        if settings is not None and tables:
            raise ValueError(f"give settings or {', '.join(tables)}, not both")
        if server is not None and (settings is not None or tables or transport != "memory"):
            raise ValueError("a server that was made already has its settings and listeners")
        if transport not in ("memory", "tcp", "tls"):
            raise ValueError(f"transport {transport!r} is not one of memory, tcp, tls")
        self._settings = BrokerSettings.model_validate(tables) if settings is None else settings
        self._transport = transport
        # Unique, because all addresses in memory are in one table of the process.
        self._name = uuid4().hex
        self._running = ExitStack()
        # Of the listener for `tcp` and `tls`, once it has listened: its peers come again to the same address.
        self._port = 0
        self._certificate: tuple[Path, Path] | None = None
        self.memory_url = f"memory://{self._name}"
        self.url = self.memory_url if transport == "memory" else ""
        self.urls: list[str] = []
        self.tls: TlsOptions | None = None
        self._made = server
        self.server: Server = server  # type: ignore[assignment]  # until start

    # --- life ---

    def start(self) -> Self:
        """Start; returns when clients can connect, some hundredths of a second later.

        After `stop` it can be started again: as a new broker at the same address, with the same certificate.

        Raises:
            OSError: an address cannot be used.
            SettingsError: a file that cannot be used.
        """
        # Ends what has begun if a later step fails.
        with ExitStack() as running:
            if self._made is None:
                # Made at each start, so that a restarted broker reads its store again.
                assembly = Assembly(self._effective_settings(), _log_failure)
                self.server = assembly.server
                self._start_thread(running)
                # The broker's own verbs are those of a service, as in `nebula broker`.
                verbs = AppThread(broker_responder(assembly), self.server)
                verbs.start().result()
                running.callback(verbs.stop)
            else:
                self._start_thread(running)
            running.enter_context(listening_in_memory(self._name, self._open_link))
            self.urls = list(self.server.urls)
            if self.urls and (self._transport != "memory" or self._made is not None):
                self.url = self.urls[0]
                # The first start takes any port, and each later start the same one, so that clients can
                # reconnect.
                self._port = parse_address(self.url).port
            self._running = running.pop_all()
        return self

    def _start_thread(self, running: ExitStack) -> None:
        thread = BrokerThread(self.server)
        thread.start()
        running.callback(thread.stop)
        follow_clock(self.server)

    def stop(self) -> None:
        """End it, with all its connections. Idempotent."""
        self._running.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def _open_link(self, address: Address) -> Link:
        try:
            return join(self.server, address.login)
        except RuntimeError as error:
            # The error of a network, so that a client reconnects as it does by TCP.
            raise ConnectionRefusedError("the broker has ended") from error

    # --- what it is made from ---

    def _effective_settings(self) -> BrokerSettings:
        given = self._settings
        listeners = given.listener if "listener" in given.model_fields_set else ()
        match self._transport:
            case "memory":
                pass
            case "tcp":
                listeners = (ListenerSettings(port=self._port), *listeners)
            case "tls":
                listeners = (self._tls_listener(), *listeners)
            case transport:
                assert_never(transport)
        # A test must not write into the user's own store.
        store = "memory" if given.data is None else given.store
        # Not validated again: what programs may not do, listen nowhere, is what is wanted here.
        return given.model_copy(update={"listener": listeners, "store": store})

    def _tls_listener(self) -> ListenerSettings:
        certificate, key = self._certificate or self._make_certificate()
        # Without a CA for clients a listener of TLS must be told that any client may come in.
        return ListenerSettings(port=self._port, tls_cert=certificate, tls_key=key, anonymous=True)

    def _make_certificate(self) -> tuple[Path, Path]:
        folder = Path(tempfile.mkdtemp(prefix="nebula-"))
        # Removed with the object and not at `stop`, because a restarted broker has the same certificate.
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        authority = make_authority("a CA for tests", _DAYS)
        ca, _ = authority.certificate.write(folder, "ca")
        self.tls = TlsOptions(ca=ca)
        self._certificate = authority.issue_server(["127.0.0.1", "localhost"], _DAYS).write(folder, "server")
        return self._certificate


@asynccontextmanager
async def broker(
    settings: BrokerSettings | None = None, *, transport: Transport = "memory", **tables: Any
) -> AsyncGenerator[str]:
    """Run the real broker in memory, for the block; the value is its address, `memory://NAME`.

    `Client`, `Responder` and `StompClient` of this process use it like any other, on asyncio and trio.

    Args:
        settings: see `RunningBroker`.
        transport: `tcp` listens on a free port of 127.0.0.1 instead. For `tls` use a `RunningBroker`: its
            clients need to know which CA to trust.
        **tables: instead of `settings`.
    """
    running = RunningBroker(settings, transport=transport, **tables)
    async with started(running):
        yield running.url


@asynccontextmanager
async def started(running: RunningBroker) -> AsyncGenerator[None]:
    """Run a broker for the block, without holding up the loop while it starts and ends."""
    # In a thread, as `start` blocks until the broker's own thread listens.
    await anyio.to_thread.run_sync(running.start)
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(running.stop)


def _log_failure(error: Exception) -> None:
    _log.error("broker failed", error=str(error))
