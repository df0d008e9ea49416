"""A call to a misspelt service names the service that may have been meant."""

from __future__ import annotations

import anyio
import pytest

from nebula.errors import NoResponder
from nebula.rpc.client.client import Client
from nebula.rpc.discovery import Instance, suggestions
from nebula.rpc.discovery.presence import present
from nebula.rpc.service.responder import Responder
from nebula.stomp.client import StompClient
from nebula.testing import TestClient, serving

pytestmark = pytest.mark.anyio


async def told(client: Client, service: str) -> str:
    with pytest.raises(NoResponder) as nobody:
        await client.call(service, "ping", timeout=10)
    return str(nobody.value)


async def test_misspelt_service_has_a_suggestion() -> None:
    async with TestClient(Responder("prices"), Responder("orders")) as client:
        misspelt = await told(client, "pirces")
        assert misspelt == "/queue/pirces: rejected-no-consumer; did you mean 'prices'?"
        assert await told(client, "Orders") == "/queue/Orders: rejected-no-consumer; did you mean 'orders'?"
        assert await told(client, "accounts") == "/queue/accounts: rejected-no-consumer"
        assert await told(client, "prices.3f2a9c41") == "/queue/prices.3f2a9c41: rejected-no-consumer"
        with pytest.raises(NoResponder, match="did you mean 'prices'"):
            await client.with_options(idempotency_key="k").call("pirces", "ping")
        with pytest.raises(NoResponder, match="did you mean 'prices'"):
            await anext(client.stream("pirces", "ticks"))
        with pytest.raises(NoResponder, match="did you mean 'prices'"):
            await client.job("pirces/01HQZX3Y8Z1V2W3X4Y5Z6A7B8C").status()


async def test_service_that_has_just_gone_is_not_suggested_for_itself() -> None:
    app, other = Responder("prices"), Responder("orders")
    async with TestClient(other) as client:
        async with serving(client.url, app):
            await client.call("prices", "ping")
        assert await told(client, "prices") == "/queue/prices: rejected-no-consumer"


async def test_one_of_many_simultaneous_failures_asks_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    async def counted(stomp: StompClient, service: str | None, seconds: float) -> list[Instance]:
        asked.append(seconds)
        return await present(stomp, service, seconds)

    monkeypatch.setattr(suggestions, "present", counted)
    async with TestClient(Responder("prices")) as client, anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(told, client, "pirces")

    assert len(asked) == 1
    assert asked[0] < 1
