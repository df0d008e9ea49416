"""Orders with fakes of the other services, and once with the services themselves."""

from __future__ import annotations

import pytest

from nebula import RemoteError
from nebula.testing import FakeCall, TestClient, fake, handled
from services.shop import orders, prices, stock
from services.shop.orders import ORDERS, Order, app, place
from services.shop.prices import NotForSale, mark, quote
from services.shop.stock import DELIVERIES, Delivery, OutOfStock, left, put_away, take

pytestmark = pytest.mark.anyio


async def test_order_is_priced_taken_from_stock_and_recorded() -> None:
    price, taken = fake(quote, returns=4500), fake(take, returns=7)
    async with TestClient(app, price, taken) as client, client.subscribe(ORDERS, as_=Order) as recorded:
        order = await client.call(place, "hat", 3)

        assert (order.item, order.count, order.cents) == ("hat", 3, 4500)
        assert (await anext(recorded)).value == order
    assert price.calls == taken.calls == [FakeCall({"item": "hat", "count": 3})]


async def test_nothing_is_taken_of_what_has_no_price() -> None:
    taken = fake(take)
    async with TestClient(app, fake(quote, raises=NotForSale("nobody sells hats")), taken) as client:
        with pytest.raises(NotForSale, match="nobody sells hats"):
            await client.call(place, "hat")

    assert taken.calls == []


async def test_order_fails_while_the_stock_is_away() -> None:
    async with TestClient(app, fake(quote, returns=1500)) as client:
        with pytest.raises(RemoteError, match="upstream-unavailable") as caught:
            await client.call(place, "hat")

    assert caught.value.retryable


async def test_goods_of_an_order_that_was_not_recorded_go_back_into_stock() -> None:
    full = {"destination": [{"pattern": ORDERS, "max_messages": 1}]}
    services = (app, fake(quote, returns=1500), fake(take, returns=7))
    async with TestClient(*services, settings=full) as client:
        await client.publish(ORDERS, "a first one")
        with pytest.raises(RemoteError, match="upstream-unavailable"):
            await client.call(place, "hat", 2)
        async with client.subscribe(DELIVERIES, as_=Delivery) as deliveries:
            back = (await anext(deliveries)).value

    assert back is not None
    assert (back.item, back.count) == ("hat", 2)


async def test_whole_shop_sells_what_it_has() -> None:
    async with TestClient(prices.app, stock.app, orders.app) as client:
        await client.call(mark, "hat", 1500)
        async with handled(put_away):
            await client.publish(DELIVERIES, Delivery(id="1", item="hat", count=3))

        assert (await client.call(place, "hat", 2)).cents == 3000
        with pytest.raises(OutOfStock, match="1 of hat are left"):
            await client.call(place, "hat", 2)
        assert await client.call(left, "hat") == 1
