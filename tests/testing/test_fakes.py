"""Fakes of remote verbs: what they answer, what they note, what they refuse."""

from __future__ import annotations

import traceback
from collections.abc import AsyncGenerator, AsyncIterator
from decimal import Decimal

import anyio
import pytest

from nebula.errors import RemoteError
from nebula.rpc.client.client import Client
from nebula.rpc.contract.verbs import verb
from nebula.rpc.errors import VerbError
from nebula.rpc.service.responder import Responder
from nebula.testing import Fake, FakeCall, TestClient, fake

pytestmark = pytest.mark.anyio

real = Responder("prices")


@real.verb
async def quote(symbol: str, qty: int = 1) -> Decimal:
    raise NotImplementedError


@real.verb
async def ticks(symbol: str) -> AsyncIterator[int]:
    if symbol:
        raise NotImplementedError
    yield 0


@verb
async def unclaimed(word: str) -> str:
    raise NotImplementedError


async def test_fake_answers_what_it_was_told_and_notes_the_calls() -> None:
    price = fake("prices", "quote", returns="9.99")
    async with TestClient(price) as client:
        first = await client.call("prices", "quote", {"symbol": "ABC"})
        second = await client.call("prices", "quote", ["ABC", 2])
        third = await client.call("prices", "quote")

    assert [first, second, third] == ["9.99", "9.99", "9.99"]
    assert price.calls == [FakeCall({"symbol": "ABC"}), FakeCall(["ABC", 2]), FakeCall(None)]


async def test_call_tells_who_asked() -> None:
    price = fake("prices", "quote")
    async with TestClient(price) as client, Client(client.url.replace("//", "//ada@")) as ada:
        assert await ada.call("prices", "quote") is None

    request = price.calls[0].request
    assert request is not None
    assert request.principal == "ada"


async def test_fakes_of_one_service_stand_side_by_side() -> None:
    fakes = [fake("prices", "quote", returns=1), fake("prices", "list", returns=["ABC"]), fake("tax", "rate")]
    async with TestClient(*fakes) as client:
        for _ in range(5):
            assert await client.call("prices", "quote") == 1
            assert await client.call("prices", "list") == ["ABC"]
        await client.call("tax", "rate")

    assert [len(each.calls) for each in fakes] == [5, 5, 1]


async def test_fakes_of_one_queue_stand_side_by_side_by_whatever_name() -> None:
    fakes = [fake("/queue/prices", "quote", returns=1), fake("prices", "list", returns=["ABC"])]
    other = fake("/queue/prices.i1", "quote", returns=2)
    async with TestClient(*fakes, other) as client:
        for _ in range(5):
            assert await client.call("/queue/prices", "list") == ["ABC"]
            assert await client.call("prices", "quote") == 1
        assert await client.call("/queue/prices.i1", "quote") == 2


async def test_error_of_a_fake_does_not_grow_with_its_calls() -> None:
    sold_out = VerbError("sold-out", "no more")
    async with TestClient(fake("prices", "quote", raises=sold_out)) as client:
        depths = []
        for _ in range(3):
            with pytest.raises(RemoteError):
                await client.call("prices", "quote")
            depths.append(len(list(traceback.walk_tb(sold_out.__traceback__))))

    assert depths == [depths[0]] * 3


async def test_fake_of_a_function_keeps_its_contract() -> None:
    price = fake(quote, returns=Decimal(3))
    async with TestClient(price) as client:
        assert await client.call(quote, "ABC", qty=2) == Decimal(3)
        with pytest.raises(RemoteError, match="bad-parameters: qty"):
            await client.call("prices", "quote", {"symbol": "ABC", "qty": "many"})

    assert price.calls == [FakeCall({"symbol": "ABC", "qty": 2})]


async def test_function_without_a_service_is_given_one() -> None:
    word = fake(unclaimed, service="words", returns="yes")
    async with TestClient(word) as client:
        assert await client.service("words").call(unclaimed, "no") == "yes"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (VerbError("sold-out", "none left"), "sold-out"),
        (ValueError("secret"), "internal"),
        (ZeroDivisionError, "internal"),
    ],
)
async def test_fake_fails_as_a_service_does(error: Exception | type[Exception], code: str) -> None:
    async with TestClient(fake("prices", "quote", raises=error)) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call("prices", "quote")

    assert caught.value.code == code
    assert "secret" not in str(caught.value)


async def test_side_effect_is_called_with_the_arguments() -> None:
    async def price(symbol: str, qty: int = 1) -> Decimal:
        await anyio.lowlevel.checkpoint()
        return Decimal(len(symbol)) * qty

    async with TestClient(fake(quote, side_effect=price), fake("words", "count", side_effect=len)) as client:
        assert await client.call(quote, "ABC", 2) == Decimal(6)
        assert await client.call("words", "count", ["a", "b"]) == 2


async def test_calls_get_one_outcome_after_the_other() -> None:
    busy = VerbError("busy", "try again")
    async with TestClient(fake("prices", "quote", side_effect=[busy, "9.99"])) as client:
        with pytest.raises(RemoteError, match="busy"):
            await client.call("prices", "quote")
        assert await client.call("prices", "quote") == "9.99"
        with pytest.raises(RemoteError, match=r"no-outcome: the fake of prices\.quote"):
            await client.call("prices", "quote")


async def test_fake_of_a_stream_gives_its_items_for_each_call() -> None:
    ticking = fake(ticks, returns=iter([1, 2, 3]))
    async with TestClient(ticking) as client:
        for _ in range(2):
            assert [item async for item in client.stream(ticks, "ABC")] == [1, 2, 3]

    assert ticking.calls == [FakeCall({"symbol": "ABC"})] * 2


async def test_fake_of_a_stream_may_yield_and_break_off() -> None:
    async def some(symbol: str) -> AsyncGenerator[int]:
        yield len(symbol)
        raise VerbError("sold-out", "none left")

    items: list[int] = []

    async def read(client: Client) -> None:
        async for item in client.stream(ticks, "ABC"):
            items.append(item)

    async with TestClient(fake(ticks, side_effect=some)) as client:
        with pytest.raises(RemoteError, match="sold-out"):
            await read(client)
    async with TestClient(fake(ticks)) as client:
        await read(client)

    assert items == [3]


# --- what cannot be a fake ---


def test_value_that_the_function_could_not_return_is_refused() -> None:
    with pytest.raises(TypeError, match=r"fake of prices\.quote: the function could not return 'much'"):
        fake(quote, returns="much")


def test_items_that_the_stream_could_not_have_are_refused() -> None:
    with pytest.raises(TypeError, match="could not return"):
        fake(ticks, returns=[1, "much"])


def test_exception_is_raised_and_not_returned() -> None:
    with pytest.raises(TypeError, match="give it as raises"):
        fake(quote, returns=ValueError())


def test_one_outcome_is_enough() -> None:
    with pytest.raises(TypeError, match="one outcome"):
        fake("prices", "quote", returns=None, side_effect=[1])


def test_service_and_verb_have_to_be_known() -> None:
    with pytest.raises(TypeError, match="no service declared unclaimed"):
        fake(unclaimed)
    with pytest.raises(TypeError, match="name the verb too"):
        fake("prices")  # type: ignore[call-overload]


def test_fake_is_shown_by_its_name() -> None:
    one: Fake = fake("prices", "quote")

    assert repr(one) == "fake('prices', 'quote')"
