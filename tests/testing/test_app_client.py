"""A client together with its services, and services that run for one `with` block."""

from __future__ import annotations

from decimal import Decimal

import anyio
import pytest

from nebula.errors import NoResponder, RemoteError
from nebula.rpc.client.client import Client
from nebula.rpc.errors import VerbError
from nebula.rpc.service.responder import Responder
from nebula.testing import FakeCall, TestClient, broker, fake, serving

pytestmark = pytest.mark.anyio

app = Responder("prices")


@app.verb
async def quote(symbol: str, qty: int = 1) -> Decimal:
    if symbol == "GONE":
        raise VerbError("sold-out", "none left")
    return Decimal(10) * qty


async def test_handler_is_tested_in_one_line() -> None:
    async with TestClient(app) as client:
        assert await client.call(quote, "ABC", qty=2) == Decimal(20)


async def test_same_app_is_served_again_in_the_next_test() -> None:
    for _ in range(2):
        async with TestClient(app) as client:
            assert await client.call("prices", "quote", {"symbol": "ABC"}) == "10"


async def test_errors_come_as_they_do_from_afar() -> None:
    async with TestClient(app) as client:
        with pytest.raises(RemoteError, match="sold-out"):
            await client.call(quote, "GONE")
        with pytest.raises(RemoteError, match="bad-parameters"):
            await client.call("prices", "quote", {"qty": "many"})
        with pytest.raises(NoResponder):
            await client.call("elsewhere", "ping")


async def test_handler_and_test_share_what_they_like() -> None:
    asked: list[str] = []
    noting = Responder("noting")

    @noting.verb
    async def note(word: str) -> None:
        asked.append(word)

    async with TestClient(noting) as client:
        await client.call(note, "hello")

    assert asked == ["hello"]


async def test_service_that_calls_another_one_finds_its_fake() -> None:
    shop = Responder("shop")
    price = fake(quote, returns=Decimal(3))

    @shop.verb
    async def total(symbol: str) -> Decimal:
        async with Client(client.url) as inside:
            return await inside.call(quote, symbol) + 1

    async with TestClient(shop, price) as client:
        assert await client.call(total, "ABC") == Decimal(4)

    assert price.calls == [FakeCall({"symbol": "ABC", "qty": 1})]


async def test_options_are_those_of_client_and_broker() -> None:
    slow = Responder("slow")

    @slow.verb
    async def wait() -> None:
        await anyio.sleep_forever()

    async with TestClient(slow, timeout=1.0, settings={"limits": {"max_connections": 9}}) as client:
        with pytest.raises(TimeoutError):
            await client.call(wait)


async def test_failure_of_the_test_itself_comes_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with TestClient(app):
            _ = 1 / 0


async def test_cancelled_test_leaves_nothing_behind() -> None:
    with anyio.move_on_after(10) as scope:
        async with TestClient(app):
            scope.cancel()
            await anyio.sleep_forever()

    assert scope.cancelled_caught


async def test_service_that_cannot_begin_fails_the_test_with_its_reason() -> None:
    class Broken:
        name = "broken"

        async def run(self, *_: object, **__: object) -> None:
            raise LookupError("no database")

    with anyio.fail_after(10), pytest.raises(LookupError, match="no database"):
        async with TestClient(Broken()):
            pytest.fail("the block must not begin")


async def test_service_that_ends_while_the_test_waits_fails_it_with_its_reason() -> None:
    class Mortal:
        name = "mortal"
        die = anyio.Event()

        async def run(self, *_: object, started: anyio.Event | None = None, **__: object) -> None:
            assert started is not None
            started.set()
            await self.die.wait()
            raise LookupError("database lost")

    mortal = Mortal()

    async def use_it() -> None:
        async with broker() as url, serving(url, mortal):
            mortal.die.set()
            await anyio.sleep_forever()

    with anyio.fail_after(10), pytest.raises(LookupError, match="database lost"):
        await use_it()


async def test_without_apps_there_is_just_a_broker() -> None:
    async with TestClient() as client:
        await client.publish("/topic/news", "nobody hears")


def test_pytest_does_not_take_it_for_a_test_case() -> None:
    assert TestClient.__test__ is False
