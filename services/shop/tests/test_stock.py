"""Stock: a delivery is counted once, and a customer cannot take more than there is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nebula import Client
from nebula.testing import TestClient, handled, virtual_clock
from services.shop.stock import DELIVERIES, Delivery, OutOfStock, app, left, put_away, take

pytestmark = pytest.mark.anyio


async def deliver(client: Client, item: str, count: int, *, delivery: str = "first") -> None:
    async with handled(put_away):
        await client.publish(DELIVERIES, Delivery(id=delivery, item=item, count=count))


async def test_nobody_takes_more_than_there_is() -> None:
    async with TestClient(app) as client:
        await deliver(client, "hat", 3)

        assert await client.call(take, "hat", 2) == 1
        with pytest.raises(OutOfStock, match="1 of hat are left") as caught:
            await client.call(take, "hat", 2)
        assert caught.value.details == {"left": 1}


async def test_delivery_that_comes_twice_is_put_away_once() -> None:
    async with TestClient(app) as client:
        for delivery in ("first", "first", "second"):
            await deliver(client, "hat", 3, delivery=delivery)

        assert await client.call(left, "hat") == 6


async def test_stock_is_there_after_a_restart() -> None:
    async with TestClient(app) as client:
        await deliver(client, "hat", 3)
    async with TestClient(app) as client:
        assert await client.call(left, "hat") == 3


async def test_delivery_comes_again_where_the_database_was_busy(tmp_path: Path) -> None:
    async with virtual_clock() as clock, TestClient(app) as client:
        with closing(sqlite3.connect(tmp_path / "stock.sqlite", isolation_level=None)) as backup:
            backup.execute("BEGIN IMMEDIATE")
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                await deliver(client, "hat", 3)
        async with handled(put_away):
            await clock.advance(2)

        assert await client.call(left, "hat") == 3
