"""Clients and services together, over our broker."""

from __future__ import annotations

from decimal import Decimal

import anyio
import pytest

from nebula.errors import NoResponder
from nebula.rpc.client import Client
from nebula.rpc.responder import Responder
from tests.rpc.conftest import Serving

pytestmark = pytest.mark.anyio


def prices() -> Responder:
    app = Responder("prices")

    @app.verb
    async def quote(symbol: str, qty: int = 1) -> Decimal:
        return Decimal("1.5") * qty

    @app.verb
    def slow(symbol: str) -> str:
        return symbol * 2

    return app


async def test_call_returns_the_value(serving: Serving, client: Client) -> None:
    async with serving(prices()):
        with anyio.fail_after(5):
            total = await client.call("prices", "quote", {"symbol": "ABC", "qty": 2}, result=Decimal)
            double = await client.call("prices", "slow", "ab")

    assert total == Decimal("3.0")
    assert double == "abab"


async def test_call_fails_at_once_when_nobody_listens(client: Client) -> None:
    with anyio.fail_after(5), pytest.raises(NoResponder):
        await client.call("nobody", "ping")
