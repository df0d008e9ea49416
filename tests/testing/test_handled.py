"""A test waits until what it published was handled, and sees what went wrong."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from nebula import Responder, Retry, VerbError
from nebula.testing import TestClient, handled

pytestmark = pytest.mark.anyio


class Delivery(BaseModel):
    item: str
    count: int


app = Responder("stock")
stock: dict[str, int] = {}


@app.on("/queue/deliveries", retry=Retry(first=0, attempts=2))
async def put_away(delivery: Delivery) -> None:
    if delivery.count < 0:
        raise ValueError("nobody delivers less than nothing")
    stock[delivery.item] = stock.get(delivery.item, 0) + delivery.count


@app.on("/topic/counts")
def count(item: str) -> None:
    stock[item] = 0


@pytest.fixture(autouse=True)
def empty_stock() -> None:
    stock.clear()


async def test_block_ends_when_the_message_was_handled() -> None:
    async with TestClient(app) as client:
        async with handled(put_away):
            await client.publish("/queue/deliveries", Delivery(item="hat", count=3))
        assert stock == {"hat": 3}
        async with handled(put_away, times=2):
            await client.publish("/queue/deliveries", Delivery(item="hat", count=1))
            await client.publish("/queue/deliveries", Delivery(item="scarf", count=1))

        assert stock == {"hat": 4, "scarf": 1}


def test_without_await_it_is_the_same() -> None:
    with TestClient(app) as client, handled(count):
        client.publish("/topic/counts", "hat")

    assert stock == {"hat": 0}


async def test_what_the_function_raised_is_raised_in_the_test() -> None:
    async with TestClient(app) as client:
        with pytest.raises(ValueError, match="less than nothing"):
            async with handled(put_away):
                await client.publish("/queue/deliveries", Delivery(item="hat", count=-1))


async def test_message_that_does_not_fit_is_told() -> None:
    async with TestClient(app) as client:
        with pytest.raises(VerbError, match="count") as caught:
            async with handled(put_away):
                await client.publish("/queue/deliveries", {"item": "hat", "count": "many"})

    assert caught.value.code == "bad-parameters"


async def test_message_that_never_comes_is_a_timeout_that_names_the_function() -> None:
    async with TestClient(app):
        with pytest.raises(TimeoutError, match=r"put_away has handled 0 of 1 messages after 0\.05 s"):
            async with handled(put_away, timeout=0.05):
                pass


async def test_error_of_the_block_itself_is_not_waited_for() -> None:
    async with TestClient(app):
        with pytest.raises(KeyError):
            async with handled(put_away, timeout=3600):
                raise KeyError
