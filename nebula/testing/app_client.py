"""`TestClient`: a client whose services run in the test itself, with `await` or without."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Self

from nebula import sync
from nebula.errors import LocalProtocolError
from nebula.host.apps import App
from nebula.rpc.client.client import Client
from nebula.sync.calls import Calls
from nebula.testing.apps import serving
from nebula.testing.fakes import Fake
from nebula.testing.own_task import OwnTask
from nebula.testing.running import RunningBroker, started


class TestClient(Client):
    """A `Client` of services in the same process, over a real broker in memory: no network is used.

        async with TestClient(app) as client:
            assert await client.call(quote, "ABC", qty=2) == Decimal("20")

    Or without `await`, where the block's client is a `nebula.sync.Client`:

        with TestClient(app) as client:
            assert client.call(quote, "ABC", qty=2) == Decimal("20")

    Services and handlers run in the loop of the test; without `await`, in a loop on a thread of their own.
    Their messages go through the codec and the broker, with validation and errors, as in production.

    `Client()` without an address means this broker as long as the block lasts, in the test and in handlers,
    whatever `NEBULA_BROKER` says. Entering a client with the address of another broker raises
    `OutsideBroker`, so that no test reaches a live service by accident. Brokers in this process are allowed.

    Jobs are kept in a temporary folder that is removed with the block, whatever `NEBULA_STATE` and
    `NEBULA_JOBS` say, unless their responder names a place with `state=` or `jobs=`.

    Args:
        *apps: responders, and fakes of what they call.
        timeout: seconds, see `Client`; short, because everything is in this process.
        settings: of the broker by keyword, see `RunningBroker`.
        allow_outside: True allows connections to all other brokers; or their addresses.
        **options: of the `Client`.
    """

    __test__ = False  # it is no test case, whatever its name

    def __init__(
        self,
        *apps: App | Fake,
        timeout: float = 5.0,
        settings: dict[str, Any] | None = None,
        allow_outside: bool | Sequence[str] = False,
        **options: Any,
    ) -> None:
        self._broker = RunningBroker(**(settings or {}))
        # The address in memory is known before the broker runs, so the client can be made here.
        super().__init__(self._broker.memory_url, timeout=timeout, **options)
        self._apps = apps
        self._allow_outside = allow_outside
        self._surroundings = AsyncExitStack()
        self._without_await: _WithoutAwait | None = None

    @property
    def url(self) -> str:
        """The broker's address, for more clients and services."""
        return self._broker.memory_url

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            # Closed in reverse, so that the broker still runs when the client disconnects and services send
            # their last replies.
            await stack.enter_async_context(started(self._broker))
            await stack.enter_async_context(serving(self.url, *self._apps, allow_outside=self._allow_outside))
            # The client has a task group too, so it is entered in its own task (`OwnTask`).
            await stack.enter_async_context(OwnTask(self._connection()))
            # If a step fails, leaving the `async with` closes what was opened before.
            self._surroundings = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._surroundings.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            # That of the client; `__aenter__` above belongs to the block.
            await super().__aenter__()
            stack.push_async_exit(super().__aexit__)
            yield

    def __enter__(self) -> sync.Client:
        if self._without_await is not None:
            raise LocalProtocolError("a client is entered once: make a new one")
        self._without_await = _WithoutAwait(self)
        return self._without_await.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._without_await is not None
        self._without_await.__exit__(kind, error, trace)


class _WithoutAwait(sync.Client):
    """The same client for plain tests: broker, services and client share the loop of its thread."""

    # Not `sync.Client.__init__`, which would make another client.
    def __init__(self, client: TestClient) -> None:
        Calls.__init__(self, client)
