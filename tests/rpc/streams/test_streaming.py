"""Streams from a handler that yields to a loop that reads, over a broker."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread
import pytest
from typing_extensions import deprecated

from nebula.errors import CallTimeout, ConnectionLost, NoResponder, RemoteError, ServerError
from nebula.rpc import Remote
from nebula.rpc.client.client import Client
from nebula.rpc.contract.verbs import verb
from nebula.rpc.errors import UnexpectedReply
from nebula.rpc.service.responder import Responder
from nebula.stomp.client import AckMode, StompClient
from nebula.stomp.client.messages import Message
from tests.rpc.conftest import RunningBroker, Serving
from tests.rpc.streams.market import (
    SoldOut,
    Tick,
    app,
    endless,
    failing,
    large,
    odd,
    plain_failing,
    plain_ticks,
    quiet,
    read,
    rows,
    ticks,
    wait,
    watch,
)

pytestmark = pytest.mark.anyio


# --- what a reader gets ---


@pytest.mark.parametrize("function", [ticks, plain_ticks])
async def test_items_come_in_order_as_the_handler_typed_them(
    client: Client, prices: str, function: Callable[..., Any]
) -> None:
    found = await read(client.stream(function, "ABC", count=2000))

    assert found == [Tick(symbol="ABC", cents=number) for number in range(2000)]


async def test_stream_by_name_gives_json_or_the_type_asked_for(client: Client, prices: str) -> None:
    asked = partial(client.stream, prices, "ticks", {"symbol": "A", "count": 2})

    assert await read(asked()) == [{"symbol": "A", "cents": 0}, {"symbol": "A", "cents": 1}]
    assert await read(asked(result=Tick)) == [Tick(symbol="A", cents=0), Tick(symbol="A", cents=1)]


@pytest.mark.parametrize("verb", ["ticks", "plain_ticks"])
async def test_empty_stream_ends_at_once(client: Client, prices: str, verb: str) -> None:
    assert await read(client.stream(prices, verb, ["A", 0])) == []


@pytest.mark.parametrize("credit", [1, 2, 3, 1000])
@pytest.mark.parametrize("verb", ["ticks", "plain_ticks"])
async def test_any_credit_brings_all_items(client: Client, prices: str, verb: str, credit: int) -> None:
    count = 300 if credit > 1 else 50
    found = await read(client.stream(prices, verb, ["A", count], credit=credit))

    assert [item["cents"] for item in found] == list(range(count))


async def test_declaration_for_callers_reads_as_the_handler_does(client: Client, prices: str) -> None:
    @Remote(prices).verb
    def ticks(symbol: str, count: int) -> AsyncIterator[Tick]:
        raise NotImplementedError

    assert await read(client.stream(ticks, "A", 1)) == [Tick(symbol="A", cents=0)]
    with pytest.warns(DeprecationWarning, match="plain_ticks"):
        deprecated_stream = client.service(prices).stream(bare, "A", 1)
    assert await read(deprecated_stream) == [Tick(symbol="A", cents=0)]


@verb(name="ticks")
@deprecated("ask for `plain_ticks`")
async def bare(symbol: str, count: int) -> AsyncIterator[Tick]:
    async for tick in ticks(symbol, count):
        yield tick


def test_handler_that_returns_an_iterator_is_told_to_yield() -> None:
    def returns() -> AsyncIterator[int]:
        raise NotImplementedError

    with pytest.raises(TypeError, match="returns an iterator: write it as a generator"):
        Responder("prices").verb(returns)


async def test_batches_hold_what_is_there(client: Client, prices: str) -> None:
    stream = client.stream(ticks, "A", 1000)
    sizes = []
    with anyio.fail_after(10):
        while batch := await stream.next_batch():
            sizes.append(len(batch))

    assert sum(sizes) == 1000
    assert max(sizes) == 128


async def test_item_is_sent_while_the_handler_waits_for_the_next(client: Client, prices: str) -> None:
    assert await read(client.stream(quiet), most=1) == [0]


async def test_large_items_come_through_one_by_one(client: Client, prices: str) -> None:
    found = await read(client.stream(large, 1_500_000, 5))

    assert [len(item) for item in found] == [1_500_000] * 5


async def test_several_streams_are_read_at_once(client: Client, prices: str) -> None:
    found: dict[str, list[int]] = {}

    async def collect(symbol: str) -> None:
        found[symbol] = [tick.cents for tick in await read(client.stream(ticks, symbol, 1000))]

    async with anyio.create_task_group() as tasks:
        for symbol in "ABC":
            tasks.start_soon(collect, symbol)

    assert found == {symbol: list(range(1000)) for symbol in "ABC"}


async def test_plain_generator_stays_in_one_thread(client: Client, prices: str) -> None:
    assert await read(client.stream(rows, 3000)) == list(range(3000))


async def test_items_are_read_from_a_shared_reply_queue(broker_url: str, prices: str) -> None:
    async with Client(broker_url, timeout=5, reply_to=f"shared-{uuid4().hex}") as client:
        found = await read(client.stream(ticks, "A", 600))

    assert len(found) == 600


# --- errors ---


@pytest.mark.parametrize("function", [failing, plain_failing])
async def test_error_comes_after_the_items_before_it(
    client: Client, prices: str, function: Callable[..., Any]
) -> None:
    found: list[Any] = []
    with pytest.raises((SoldOut, RemoteError), match="none left"):
        await read(client.stream(function, 300), into=found)

    assert found == list(range(300))


async def test_declared_error_is_raised_as_its_class(client: Client, prices: str) -> None:
    with pytest.raises(SoldOut) as caught:
        await read(client.stream(failing, 1))

    assert caught.value.details == {"left": 0}


async def test_error_not_meant_for_the_caller_is_hidden_from_it(client: Client, prices: str) -> None:
    with pytest.raises(RemoteError, match="internal") as caught:
        await read(client.stream(failing, 1, kind="other"))

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("wait", [False, True])
async def test_item_without_a_json_form_ends_the_stream(client: Client, prices: str, wait: bool) -> None:
    found: list[Any] = []

    with pytest.raises(RemoteError, match="bad-result"):
        await read(client.stream(odd, wait), into=found)
    assert found == [1]


async def test_bad_parameters_are_an_error_of_the_stream(client: Client, prices: str) -> None:
    with pytest.raises(RemoteError, match="bad-parameters"):
        await read(client.stream(prices, "ticks", {"symbol": "A", "count": "many"}))


async def test_item_of_another_type_is_unexpected_and_closes_the_handler(client: Client, prices: str) -> None:
    with pytest.raises(UnexpectedReply):
        await read(client.stream(prices, "endless", result=Tick))

    await wait(watch.closed)


async def test_nobody_to_ask_is_told_at_once(client: Client) -> None:
    with pytest.raises(NoResponder):
        await read(client.stream(f"nobody-{uuid4().hex}", "ticks"))


async def test_lost_connection_ends_the_stream(mortal_broker: RunningBroker) -> None:
    async with StompClient(mortal_broker.url) as service, Client(mortal_broker.url, timeout=5) as client:
        asked = anyio.Event()
        await service.listen("/queue/mute", lambda _: asked.set(), ack=AckMode.AUTO)

        async def stop() -> None:
            await wait(asked)
            await anyio.to_thread.run_sync(mortal_broker.stop)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop)
            with pytest.raises((ConnectionLost, ServerError)):
                await read(client.stream("mute", "ticks"))


async def test_stopping_service_ends_the_streams_of_its_readers(client: Client, serving: Serving) -> None:
    async with serving(app):
        stream = client.stream(endless)
        await anext(stream)

    with pytest.raises(RemoteError, match="busy"):
        await read(stream)


# --- deadlines ---


async def test_time_for_the_whole_stream_ends_it_on_both_sides(client: Client, prices: str) -> None:
    with pytest.raises(CallTimeout):
        await read(client.stream(prices, "quiet", timeout=0.6))

    await wait(watch.closed)


async def test_scope_around_the_call_is_the_streams_time(client: Client, prices: str) -> None:
    with pytest.raises(TimeoutError), anyio.fail_after(0.6):
        async for _ in client.stream(quiet):
            pass

    await wait(watch.closed)


async def test_request_says_how_long_its_stream_may_last_and_no_more(broker_url: str) -> None:
    heard: dict[str, Message] = {}
    all_heard = anyio.Event()
    queue = f"/queue/{uuid4().hex}"

    def hear(message: Message) -> None:
        heard[json.loads(message.body)["verb"]] = message
        if len(heard) == 4:
            all_heard.set()

    async with StompClient(broker_url) as service, Client(broker_url, timeout=5) as client:
        await service.listen(queue, hear, ack=AckMode.AUTO)
        streams = [
            client.stream(queue, "plain"),
            client.stream(queue, "told", timeout=7),
            client.with_options(timeout=7).stream(queue, "by options"),
        ]
        with anyio.move_on_after(7):
            streams.append(client.stream(queue, "in a scope"))
        async with anyio.create_task_group() as tasks:
            for stream in streams:
                tasks.start_soon(read_quietly, stream)
            await wait(all_heard)
            tasks.cancel_scope.cancel()

    times = {name: message.headers.get("neb-timeout") for name, message in heard.items()}
    assert times.pop("plain") is None
    assert all(text is not None and 0 < int(text) <= 7000 for text in times.values())
    assert {message.headers["neb-stream"] for message in heard.values()} == {"true"}


async def read_quietly(stream: AsyncIterator[Any]) -> None:
    async for _ in stream:
        pass


# --- beside a subscription ---


async def test_stream_of_a_client_with_a_long_backlog_goes_on(
    client: Client, broker_url: str, prices: str
) -> None:
    queue = f"/queue/much-{uuid4().hex}"
    big = b"x" * 8_000_000  # a connection reads two of them ahead
    with anyio.fail_after(10):
        async with StompClient(broker_url) as other, client.stomp.subscribe(queue):
            items = client.stream(prices, "endless", credit=10)
            found = await read(items, most=1)
            for _ in range(3):
                await other.send(queue, big, receipt=True)
            await read(items, most=1000, into=found)
            await items.aclose()

    assert found == list(range(1000))
    assert client.stomp.connection._awaited == {}


# --- peers that know nothing of streams ---


async def test_call_gets_the_list_if_it_is_short(client: Client, prices: str) -> None:
    assert await client.call(prices, "ticks", ["A", 2]) == [
        {"symbol": "A", "cents": 0},
        {"symbol": "A", "cents": 1},
    ]
    assert len(await client.call(prices, "plain_ticks", ["A", 256])) == 256
    assert await client.call(prices, "ticks", ["A", 0]) == []


@pytest.mark.parametrize(
    "parameters", [("ticks", ["A", 257]), ("plain_ticks", ["A", 257]), ("large", [40_000, 2])]
)
async def test_call_of_a_long_stream_says_that_it_is_one(
    client: Client, prices: str, parameters: tuple[str, list[Any]]
) -> None:
    with pytest.raises(RemoteError, match="streaming-only"):
        await client.call(prices, *parameters)


async def test_call_of_an_endless_stream_closes_the_handler(client: Client, prices: str) -> None:
    with pytest.raises(RemoteError, match="streaming-only"):
        await client.call(prices, "endless")

    assert watch.closed.is_set()


async def test_verb_that_returns_a_list_is_read_as_a_stream_of_its_items(client: Client, prices: str) -> None:
    assert await read(client.stream(prices, "numbers")) == [1, 2, 3]


async def test_verb_that_returns_one_value_is_no_stream(client: Client, prices: str) -> None:
    with pytest.raises(UnexpectedReply, match=r"client\.call"):
        await read(client.stream(prices, "one"))


async def test_description_says_that_it_streams_and_what(client: Client, prices: str) -> None:
    described = await client.call(prices, "describe")
    verbs = {one["verb"]: one for one in described["verbs"]}

    assert verbs["ticks"]["stream"] is True
    item = verbs["ticks"]["item"]
    assert item["$ref"] == "#/$defs/Tick"
    assert item["$defs"]["Tick"]["properties"].keys() == {"symbol", "cents"}
    assert verbs["ticks"]["result"]["type"] == "array"
    assert "stream" not in verbs["numbers"]


@pytest.mark.parametrize("credit", [0, -1, 10**7])
async def test_credit_that_cannot_work_is_refused(client: Client, credit: int) -> None:
    with pytest.raises(ValueError, match="credit"):
        client.stream("prices", "ticks", credit=credit)
