"""A client whose services are in the test itself."""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from nebula.host.apps import App
from nebula.rpc.client import Client
from nebula.testing.apps import serving
from nebula.testing.fakes import Fake
from nebula.testing.running import RunningBroker, started


class TestClient(Client):
    """A `Client` of services that run beside it, over a real broker in memory: nothing of a network.

        async with TestClient(app) as client:
            assert await client.call(quote, "ABC", qty=2) == Decimal("20")

    Services and handlers run in the loop of the test. What they say to each other goes through the codec and
    the broker as in production, and so do validation and errors.

    Args:
        *apps: responders, and fakes of what they call.
        timeout: seconds, see `Client`; short, as nothing is far away.
        settings: of the broker by keyword, see `RunningBroker`.
        **options: of the `Client`.
    """

    __test__ = False  # it is no test case, whatever its name

    def __init__(
        self,
        *apps: App | Fake,
        timeout: float = 5.0,
        settings: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self._broker = RunningBroker(**(settings or {}))
        super().__init__(self._broker.memory_url, timeout=timeout, **options)
        self._apps = apps
        self._surroundings = AsyncExitStack()

    @property
    def url(self) -> str:
        """The broker's address, for more clients and services."""
        return self._broker.memory_url

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(started(self._broker))
            await stack.enter_async_context(serving(self.url, *self._apps))
            await super().__aenter__()
            self._surroundings = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            await self._surroundings.__aexit__(kind, error, trace)
