"""A client whose connection ends: which calls fail, are sent again or wait, and when it reconnects."""

from __future__ import annotations

import traceback
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from nebula.errors import (
    ConnectFailed,
    ConnectionLost,
    NebulaError,
    Refused,
    ServerError,
    SettingsError,
    fresh,
)
from nebula.rpc.client.client import Client
from nebula.rpc.client.reconnect import Addresses, Connections, ConnectionState
from nebula.rpc.contract.retry import Retry
from nebula.rpc.discovery import Instance
from nebula.rpc.service.responder import Responder
from nebula.stomp.client import StompClient
from nebula.stomp.client.messages import AckMode
from tests.own_logs import all_logs
from tests.rpc.scripted import Script, answer_to, brokers, header, request, welcome
from tests.stomp.peer import Peer, receipt_of

pytestmark = pytest.mark.anyio

LOST = (ConnectionLost, ServerError)

shop = Responder("shop")


@shop.verb(idempotent=True)
async def price(symbol: str) -> int:
    return len(symbol)


async def answering(peer: Peer) -> None:
    """A broker that answers each request with 5, until the client leaves."""
    await welcome(peer)
    while (frame := await peer.hear()).startswith("SEND\n"):
        await peer.say(f"RECEIPT\nreceipt-id:{receipt_of(frame)}\ndisposition:accepted\n\n^@")
        await peer.say(answer_to(frame, 5))
    await peer.say(f"RECEIPT\nreceipt-id:{receipt_of(frame)}\n\n^@")


async def silent(peer: Peer) -> None:
    """A broker that takes one request and is gone."""
    await welcome(peer)
    await request(peer)


def leaving(cut: anyio.Event) -> Script:
    """A broker that opens an inbox, confirms subscriptions, and is gone when `cut` is set."""

    async def script(peer: Peer) -> None:
        await welcome(peer)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(confirm, peer)
            await cut.wait()
            tasks.cancel_scope.cancel()

    async def confirm(peer: Peer) -> None:
        while True:
            await peer.confirm()

    return script


# --- calls ---


async def test_call_in_flight_fails_with_its_connection_and_the_next_one_goes_by_a_new_one() -> None:
    async with brokers(silent, answering) as url, Client(url) as client:
        with pytest.raises(ConnectionLost):
            await client.call("shop", "price")
        assert await client.call("shop", "price") == 5


async def test_calls_in_flight_fail_with_an_error_each_that_holds_nothing_of_the_others() -> None:
    async def asked(peer: Peer) -> None:
        await welcome(peer)
        for _ in range(3):
            await request(peer)

    errors: list[NebulaError] = []

    async def call(client: Client) -> None:
        with pytest.raises(ConnectionLost) as caught:
            await client.call("shop", "price")
        errors.append(caught.value)

    async with brokers(asked) as url, Client(url, reconnect=False) as client:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(call, client)
        for _ in range(2):
            await call(client)

    calls = [
        sum(frame.f_code is Client._called.__code__ for frame, _ in traceback.walk_tb(error.__traceback__))
        for error in errors
    ]
    assert calls == [1] * 5
    assert len(set(map(id, errors))) == 5
    assert len({str(error) for error in errors}) == 1


def test_fresh_error_says_the_same() -> None:
    for error in (ServerError("no", "not that"), Refused("busy", "later"), ConnectFailed("nobody")):
        try:
            raise error from KeyError("why")
        except NebulaError as raised:
            one = fresh(raised)

        assert (type(one), str(one), vars(one)) == (type(error), str(error), vars(error))
        assert one.__cause__ is error.__cause__
        assert one.__traceback__ is None


async def test_reply_that_is_cut_off_in_the_middle_is_no_answer() -> None:
    async def cutting(peer: Peer) -> None:
        await welcome(peer)
        whole = answer_to(await request(peer), "a long answer")
        await peer.say(whole[:-10])

    async with brokers(cutting, answering) as url, Client(url) as client:
        with pytest.raises(ConnectionLost):
            await client.call("shop", "price")
        assert await client.call("shop", "price") == 5


async def test_call_with_a_key_is_sent_again_with_the_same_key_by_another_inbox() -> None:
    frames: list[str] = []
    inboxes: list[str] = []

    async def first(peer: Peer) -> None:
        inboxes.append(await welcome(peer))
        frames.append(await request(peer))

    async def second(peer: Peer) -> None:
        inboxes.append(await welcome(peer))
        frames.append(await request(peer))
        await peer.say(answer_to(frames[-1], 7))
        await peer.part()

    async with brokers(first, second) as url, Client(url) as client:
        assert await client.call("shop", "price", idempotency_key="order 1") == 7

    assert [header(frame, "neb-idempotency-key") for frame in frames] == ["order 1"] * 2
    assert [header(frame, "neb-reply-to") for frame in frames] == inboxes
    assert len(set(inboxes)) == 2
    assert header(frames[0], "neb-reply-id") != header(frames[1], "neb-reply-id")
    assert int(header(frames[1], "neb-timeout")) < int(header(frames[0], "neb-timeout")) <= 30_000


async def test_verb_that_is_declared_idempotent_is_called_again() -> None:
    async with brokers(silent, silent, answering) as url, Client(url) as client:
        assert await client.call(price, "ABC") == 5


async def test_start_is_sent_again_for_the_same_job() -> None:
    jobs: list[str] = []

    async def first(peer: Peer) -> None:
        await welcome(peer)
        jobs.append(header(await request(peer), "neb-job-id"))

    async def second(peer: Peer) -> None:
        await welcome(peer)
        frame = await request(peer)
        jobs.append(header(frame, "neb-job-id"))
        await peer.say(answer_to(frame, {"job": f"shop/{jobs[-1]}"}, verb="success"))
        await peer.part()

    async with brokers(first, second) as url, Client(url) as client:
        handle = await client.start("shop", "report")

    assert jobs == [handle.id.removeprefix("shop/")] * 2


async def test_request_that_ends_each_connection_is_not_sent_for_ever() -> None:
    async def refusing(peer: Peer) -> None:
        await welcome(peer)
        await request(peer)
        await peer.say("ERROR\nmessage:not that one\n\n^@")

    async with brokers(refusing, refusing, refusing, answering) as url, Client(url) as client:
        with pytest.raises(ServerError, match="not that one"):
            await client.call(price, "ABC")
        assert await client.call("shop", "price") == 5


async def test_call_made_while_there_is_no_broker_waits_for_one() -> None:
    again = anyio.Event()

    async def late(peer: Peer) -> None:
        await again.wait()
        await answering(peer)

    cut = anyio.Event()
    async with brokers(leaving(cut), late) as url:
        states: list[ConnectionState] = []
        async with Client(url, on_state=states.append) as client:
            cut.set()
            while "lost" not in states:
                await anyio.lowlevel.checkpoint()
            async with anyio.create_task_group() as tasks:

                async def call() -> None:
                    assert await client.call("shop", "price") == 5

                tasks.start_soon(call)
                tasks.start_soon(call)
                await anyio.wait_all_tasks_blocked()
                again.set()


async def test_question_about_instances_waits_for_a_broker() -> None:
    again, cut = anyio.Event(), anyio.Event()
    one = Instance("shop", "one")

    async def late(peer: Peer) -> None:
        await again.wait()
        await welcome(peer)
        while not (frame := await peer.hear()).startswith("DISCONNECT\n"):
            if frame.startswith("SUBSCRIBE\n"):
                body = one.to_json().decode()
                await peer.say(
                    f"RECEIPT\nreceipt-id:{receipt_of(frame)}\n\n^@"
                    f"MESSAGE\nsubscription:{header(frame, 'id')}\nmessage-id:1\nsnapshot:end\n"
                    f"destination:{one.destination}\n\n{body}^@"
                )
        await peer.say(f"RECEIPT\nreceipt-id:{receipt_of(frame)}\n\n^@")

    async with brokers(leaving(cut), late) as url, Client(url) as client:
        cut.set()
        while client.state == "connected":
            await anyio.lowlevel.checkpoint()
        async with anyio.create_task_group() as tasks:

            async def look() -> None:
                assert await client.services("shop") == [one]

            async def ask() -> None:
                assert (await client.call_all("shop", "price")).missing == [one]

            async def watch() -> None:
                async with client.watch_services() as presence:
                    assert presence.instances == [one]

            for do in (look, ask, watch):
                tasks.start_soon(do)
            await anyio.wait_all_tasks_blocked()
            again.set()


async def test_waiting_callers_get_an_error_within_their_time() -> None:
    told: list[type[BaseException]] = []
    cut = anyio.Event()

    async def fail(work: Any) -> None:
        with pytest.raises(ConnectionLost, match=r"no connection in time: .*closed the connection") as caught:
            await work
        told.append(type(caught.value))

    async with brokers(leaving(cut)) as url, Client(url) as connected:
        cut.set()
        while connected.state == "connected":
            await anyio.lowlevel.checkpoint()
        client = connected.with_options(timeout=0.1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail, client.call("shop", "price"))
            tasks.start_soon(fail, client.call(price, "ABC"))
            tasks.start_soon(fail, client.send("shop", "price"))
            tasks.start_soon(fail, client.publish("/topic/news", {}))
            tasks.start_soon(fail, client.start("shop", "report"))
            tasks.start_soon(fail, client.services("shop"))
            tasks.start_soon(fail, client.call_all("shop", "price"))
            tasks.start_soon(fail, client.watch_services().__aenter__())

    assert len(told) == 8


async def test_client_that_does_not_reconnect_fails_each_later_call_at_once() -> None:
    async with brokers(silent) as url, Client(url, reconnect=False) as client:
        for _ in range(3):
            with pytest.raises(ConnectionLost):
                await client.call("shop", "price")
        with pytest.raises(ConnectionLost):
            await client.publish("/topic/news", {})
        while client.state != "closed":
            await anyio.lowlevel.checkpoint()


# --- connecting ---


async def test_dead_addresses_are_passed_over(free_port: int) -> None:
    dead = f"stomp://127.0.0.1:{free_port}"
    async with brokers(silent, answering) as url, Client([dead, url, dead]) as client:
        with pytest.raises(ConnectionLost):
            await client.call("shop", "price")
        assert await client.call("shop", "price") == 5


async def test_broker_that_says_nothing_is_passed_over_in_time() -> None:
    async def mute(peer: Peer) -> None:
        assert (await peer.hear()).startswith("CONNECT\n")
        assert await peer.is_closed()

    async with (
        brokers(mute) as deaf,
        brokers(answering) as url,
        # For each: the one that answers has to do so within it, on a busy machine, too.
        Client([deaf, url], connect_timeout=2) as client,
    ):
        assert await client.call("shop", "price") == 5


async def test_nobody_at_any_address_is_told_of_each_at_entering(free_port: int) -> None:
    urls = [f"stomp://127.0.0.1:{free_port}", f"stomp://localhost:{free_port}"]

    with (
        anyio.fail_after(5),
        pytest.raises(ConnectFailed, match=f"127.0.0.1:{free_port}.*localhost:{free_port}"),
    ):
        async with Client(urls):
            raise AssertionError


async def test_client_that_waits_is_entered_once_there_is_a_broker() -> None:
    async def nobody(peer: Peer) -> None:
        await peer.hear()

    async with brokers(nobody, nobody, answering) as url, Client(url, wait=True) as client:
        assert await client.call("shop", "price") == 5


async def test_client_can_be_left_while_it_waits_for_a_broker(free_port: int) -> None:
    with anyio.fail_after(5):
        with anyio.move_on_after(0.05) as scope:
            async with Client(f"stomp://127.0.0.1:{free_port}", wait=True):
                raise AssertionError

    assert scope.cancelled_caught


@pytest.mark.parametrize("urls", [[], ["stomp://127.0.0.1", "gopher://there"]])
def test_addresses_that_cannot_be_used_are_refused_at_once(urls: Sequence[str]) -> None:
    with pytest.raises(SettingsError, match="address"):
        Client(urls)


async def test_client_is_left_at_once_while_it_reconnects() -> None:
    cut, is_tried = anyio.Event(), anyio.Event()

    async def stuck(peer: Peer) -> None:
        assert (await peer.hear()).startswith("CONNECT\n")
        is_tried.set()
        assert await peer.is_closed()

    with anyio.fail_after(5):
        async with brokers(leaving(cut), stuck) as url, Client(url):
            cut.set()
            await is_tried.wait()


async def test_states_are_published_in_their_order() -> None:
    states: list[str] = []

    async with brokers(silent, answering) as url, Client(url, on_state=states.append) as client:
        with pytest.raises(ConnectionLost):
            await client.call("shop", "price")
        await client.call("shop", "price")

    assert states == ["connecting", "connected", "lost", "connecting", "connected", "closed"]


async def test_hook_that_fails_is_logged_and_does_no_harm() -> None:
    def broken(state: ConnectionState) -> None:
        raise ValueError(state)

    with all_logs() as logged:
        async with brokers(silent, answering) as url, Client(url, on_state=broken) as client:
            with pytest.raises(ConnectionLost):
                await client.call("shop", "price")
            assert await client.call("shop", "price") == 5

    assert sum(entry["event"] == "state hook failed" for entry in logged) == 6


# --- the delays ---


def test_addresses_are_tried_in_rounds_with_growing_delays_between() -> None:
    addresses = Addresses(["a", "b"], Retry(first=1.0, longest=4.0))

    taken = [addresses.take() for _ in range(10)]

    assert [url for url, _ in taken] == ["a", "b"] * 5
    assert [delay for _, delay in taken[:2]] == [0.0, 0.0]
    for (_, first), (_, second), whole in zip(taken[2::2], taken[3::2], (1.0, 2.0, 4.0, 4.0), strict=True):
        assert whole <= first <= 1.5 * whole
        assert second == 0.0


def test_lost_address_is_tried_first_and_after_a_delay() -> None:
    addresses = Addresses(["a", "b", "c"], Retry(first=1.0, longest=4.0))
    addresses.take()
    addresses.take()
    addresses.lose(100.0)

    url, delay = addresses.take()

    assert url == "b"
    assert 1.0 <= delay <= 1.5
    assert addresses.take() == ("c", 0.0)
    assert addresses.take() == ("a", 0.0)


def test_connection_that_held_brings_the_delay_back_and_one_that_did_not_does_not() -> None:
    addresses = Addresses(["a"], Retry(first=1.0, longest=8.0))
    addresses.take()
    for _ in range(3):
        addresses.lose(0.1)
        delay = addresses.take()[1]
    assert 4.0 <= delay <= 6.0

    addresses.lose(8.0)
    assert addresses.take()[1] <= 1.5


async def test_delays_are_slept_between_the_rounds(free_port: int) -> None:
    slept: list[float] = []

    async def sleep(seconds: float, /) -> None:
        slept.append(seconds)
        if len(slept) == 5:
            connections.leave()
        await anyio.lowlevel.checkpoint()

    @asynccontextmanager
    async def live(_stomp: StompClient) -> AsyncGenerator[None]:
        yield

    urls = [f"stomp://127.0.0.1:{free_port}"] * 2
    backoff = Retry(first=1.0, longest=8.0)
    connections = Connections(StompClient, urls, live, waits=True, backoff=backoff, sleep=sleep)
    with anyio.fail_after(5):
        await connections.run()

    assert [whole <= one <= 1.5 * whole for one, whole in zip(slept, (1, 2, 4, 8, 8), strict=True)] == [
        True
    ] * 5


# --- subscriptions ---


async def test_subscription_goes_on_with_the_next_connection() -> None:
    cut = anyio.Event()

    def message(text: str, subscription: str) -> str:
        return f"MESSAGE\nsubscription:{subscription}\nmessage-id:{text}\ndestination:/topic/news\n\n{text}^@"

    async def first(peer: Peer) -> None:
        await welcome(peer)
        subscribing = await peer.confirm()
        await peer.say(message("one", header(subscribing, "id")))
        await cut.wait()

    async def second(peer: Peer) -> None:
        await welcome(peer)
        subscribing = await peer.confirm()
        assert header(subscribing, "destination") == "/topic/news"
        assert header(subscribing, "selector") == "all"
        await peer.say(message("two", header(subscribing, "id")))
        assert (await peer.hear()).startswith("UNSUBSCRIBE\n")
        await peer.part()

    async with (
        brokers(first, second) as url,
        Client(url) as client,
        client.subscribe("/topic/news", headers={"selector": "all"}) as news,
    ):
        cut.set()
        assert [(await anext(news)).body, (await anext(news)).body] == [b"one", b"two"]


async def test_unacked_message_of_a_queue_is_not_handed_out_twice_and_old_acks_do_nothing() -> None:
    def message(text: str, subscribing: str) -> str:
        return (
            f"MESSAGE\nsubscription:{header(subscribing, 'id')}\nmessage-id:{text}\nack:{text}\n"
            f"destination:/queue/work\n\n{text}^@"
        )

    async def first(peer: Peer) -> None:
        await welcome(peer)
        subscribing = await peer.confirm()
        await peer.say(message("one", subscribing) + message("two", subscribing))
        assert header(await peer.hear(), "id") == "one"

    async def second(peer: Peer) -> None:
        await welcome(peer)
        subscribing = await peer.confirm()
        await peer.say(message("two", subscribing) + message("three", subscribing))
        assert [header(await peer.hear(), "id") for _ in range(2)] == ["two", "three"]
        assert (await peer.hear()).startswith("UNSUBSCRIBE\n")
        await peer.part()

    async with (
        brokers(first, second) as url,
        Client(url) as client,
        client.subscribe("/queue/work", ack=AckMode.CLIENT_INDIVIDUAL) as work,
    ):
        one = await anext(work)
        one.ack()
        while client.state == "connected":
            await anyio.lowlevel.checkpoint()
        one.ack()
        for expected in (b"two", b"three"):
            got = await anext(work)
            assert got.body == expected
            got.ack()


async def test_subscription_that_is_refused_then_fails_alone() -> None:
    cut = anyio.Event()

    async def second(peer: Peer) -> None:
        await welcome(peer)
        for _ in range(2):
            frame = await peer.hear()
            result = "result:ignored\n" if "/topic/secret" in frame else ""
            await peer.say(f"RECEIPT\nreceipt-id:{receipt_of(frame)}\n{result}\n^@")
        await peer.say(answer_to(await request(peer), 5))
        assert (await peer.hear()).startswith("UNSUBSCRIBE\n")
        await peer.part()

    async with (
        brokers(leaving(cut), second) as url,
        Client(url) as client,
        client.subscribe("/topic/open"),
        client.subscribe("/topic/secret") as secret,
    ):
        cut.set()
        for _ in range(2):
            with pytest.raises(Refused, match="ignored: SUBSCRIBE to /topic/secret"):
                await anext(secret)
        assert await client.call("shop", "price") == 5


async def test_durable_subscription_goes_on_in_the_session_that_the_broker_named() -> None:
    async def accept(peer: Peer) -> str:
        connect = await peer.hear()
        await peer.say("CONNECTED\nversion:1.2\nserver:nebula/0\nsession:s-17\n\n^@")
        await peer.confirm()
        assert header(await peer.confirm(), "id") == "mine"
        return connect

    cut = anyio.Event()

    async def first(peer: Peer) -> None:
        assert "client-id" not in await accept(peer)
        await cut.wait()

    async def second(peer: Peer) -> None:
        assert header(await accept(peer), "client-id") == "s-17"
        assert (await peer.hear()).startswith("UNSUBSCRIBE\n")
        await peer.part()

    async with brokers(first, second) as url:
        states: list[str] = []
        async with (
            Client(url, on_state=states.append) as client,
            client.subscribe("/topic/news", durable="mine", ack=AckMode.CLIENT_INDIVIDUAL),
        ):
            cut.set()
            while states.count("connected") < 2:
                await anyio.lowlevel.checkpoint()


async def test_subscription_that_is_left_meanwhile_is_not_made_again() -> None:
    cut, again = anyio.Event(), anyio.Event()
    states: list[str] = []

    async def second(peer: Peer) -> None:
        await again.wait()
        await welcome(peer)
        await peer.part()

    async with brokers(leaving(cut), second) as url, Client(url, on_state=states.append) as client:
        async with client.subscribe("/topic/news"):
            cut.set()
            while "lost" not in states:
                await anyio.lowlevel.checkpoint()
        again.set()
        while states.count("connected") < 2:
            await anyio.lowlevel.checkpoint()


async def test_subscription_that_is_left_as_it_is_made_again_is_ended() -> None:
    cut, asked, is_left = anyio.Event(), anyio.Event(), anyio.Event()

    async def second(peer: Peer) -> None:
        await welcome(peer)
        frame = await peer.hear()
        asked.set()
        await is_left.wait()
        await peer.say(f"RECEIPT\nreceipt-id:{receipt_of(frame)}\n\n^@")
        ending = await peer.hear()
        assert ending.startswith("UNSUBSCRIBE\n")
        assert header(ending, "id") == header(frame, "id")
        is_ended.set()
        await peer.part()

    is_ended = anyio.Event()
    async with brokers(leaving(cut), second) as url, Client(url) as client:
        async with client.subscribe("/topic/news"):
            cut.set()
            await asked.wait()
        is_left.set()
        await is_ended.wait()


async def test_reader_gets_an_error_when_the_client_is_left() -> None:
    told: list[NebulaError] = []

    async def read(news: Any) -> None:
        with pytest.raises(ConnectionLost, match="has disconnected") as caught:
            await anext(news)
        told.append(caught.value)

    async def script(peer: Peer) -> None:
        await welcome(peer)
        await peer.confirm()
        await peer.part()

    async with brokers(script) as url, anyio.create_task_group() as tasks:
        client = Client(url)
        await client.__aenter__()
        async with client.subscribe("/topic/news") as news:
            tasks.start_soon(read, news)
            await anyio.wait_all_tasks_blocked()
            await client.__aexit__(None, None, None)

    assert len(told) == 1
