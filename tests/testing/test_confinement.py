"""No test reaches a broker that is not its own, unless it asks for that."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from nebula import Client, OutsideBroker, RemoteError, Responder, SettingsError, embedded, sync
from nebula.broker.server.server import Listener, Server
from nebula.errors import ConnectFailed, LocalProtocolError
from nebula.host.embedding import BrokerThread
from nebula.spark.engine_process import environment_of
from nebula.stomp.client import StompClient
from nebula.testing import Faults, RunningBroker, Serve, TestClient, broker, fake, serving

pytestmark = pytest.mark.anyio


class Outside:
    """An address outside of the tests. It never replies, and notices connections."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.port: int = listener.getsockname()[1]
        self.url = f"stomp://127.0.0.1:{self.port}"

    @property
    def was_reached(self) -> bool:
        try:
            self._listener.accept()[0].close()
        except BlockingIOError:
            return False
        return True


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[Outside]:
    """The address in `NEBULA_BROKER`, as on the machine of a user who works with a live broker."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        there = Outside(listener)
        monkeypatch.setenv("NEBULA_BROKER", there.url)
        yield there


prices = Responder("prices")
orders = Responder("orders")


@prices.verb
async def quote(symbol: str, qty: int = 1) -> Decimal:
    raise NotImplementedError("a live service was called")


@orders.verb
async def total(symbol: str, qty: int) -> Decimal:
    async with Client() as client:
        return await client.call(quote, symbol, qty=qty) + 5


@orders.verb
def total_in_thread(symbol: str, qty: int) -> Decimal:
    with sync.Client() as client:
        return client.call(quote, symbol, qty=qty) + 5


@orders.verb
async def total_in_executor(symbol: str, qty: int) -> Decimal:
    with ThreadPoolExecutor(1) as executor:
        pending = executor.submit(total_in_thread, symbol, qty)
        return await anyio.to_thread.run_sync(pending.result)


@orders.verb
async def total_elsewhere(url: str) -> Decimal:
    async with Client(url) as client:
        return await client.call(quote, "ABC")


@pytest.mark.parametrize("verb", ["total", "total_in_thread", "total_in_executor"])
async def test_handler_whose_client_has_no_address_finds_the_fake(outside: Outside, verb: str) -> None:
    price = fake(quote, returns=Decimal(7))
    async with TestClient(orders, price) as client:
        assert await client.call("orders", verb, {"symbol": "ABC", "qty": 2}, result=Decimal) == 12

    assert len(price.calls) == 1
    assert not outside.was_reached


async def test_test_itself_finds_its_broker(outside: Outside) -> None:
    async with TestClient(fake(quote, returns=Decimal(7))), Client() as client:
        assert await client.call(quote, "ABC") == 7

    assert not outside.was_reached


async def test_client_that_was_made_before_finds_the_broker_of_where_it_is_entered(outside: Outside) -> None:
    made_at_import = Client()
    async with TestClient(fake(quote, returns=Decimal(7))), made_at_import as client:
        assert await client.call(quote, "ABC") == 7

    assert not outside.was_reached


async def test_each_of_two_systems_has_its_own_broker(outside: Outside) -> None:
    cheap, dear = fake(quote, returns=Decimal(1)), fake(quote, returns=Decimal(100))
    async with TestClient(orders, cheap) as one, TestClient(orders, dear) as other:
        assert await one.call(total, "ABC", 1) == 6
        assert await other.call(total, "ABC", 1) == 105


async def test_other_broker_is_refused_and_the_text_says_how_to_allow_it(outside: Outside) -> None:
    async with TestClient():
        with pytest.raises(OutsideBroker) as refused:
            async with Client(outside.url):
                pytest.fail("a live broker was reached")

    assert not outside.was_reached
    assert isinstance(refused.value, SettingsError)
    for part in (f"127.0.0.1:{outside.port} is outside", "memory://", "allow_outside=True", "TestClient"):
        assert part in str(refused.value)


async def test_waiting_for_a_broker_that_is_refused_ends_at_once(outside: Outside) -> None:
    with anyio.fail_after(5):
        async with TestClient():
            with pytest.raises(OutsideBroker):
                async with Client(outside.url, wait=True):
                    pytest.fail("a live broker was reached")


async def test_all_ways_to_another_broker_are_refused(outside: Outside) -> None:
    async with TestClient():
        with pytest.raises(OutsideBroker):
            async with StompClient(outside.url):
                pytest.fail("a live broker was reached")
        with pytest.raises(OutsideBroker):
            await Faults(outside.url)()
        with pytest.raises(OutsideBroker):
            async with Client(outside.url.replace("stomp", "ws", 1)):
                pytest.fail("a live broker was reached")
        with pytest.raises(OutsideBroker):
            await orders.run(outside.url)
        with pytest.raises(OutsideBroker):
            await anyio.to_thread.run_sync(sync.Client(outside.url).__enter__)

    assert not outside.was_reached


async def test_test_that_fails_tells_what_its_service_was_refused(outside: Outside) -> None:
    with pytest.raises(RemoteError, match="internal") as failed:
        async with TestClient(orders) as client:
            await client.call(total_elsewhere, outside.url)

    (note,) = failed.value.__notes__
    assert f"127.0.0.1:{outside.port} is outside" in note


@pytest.mark.parametrize("allowed", ["all", "this one", "by another name"])
async def test_other_broker_is_reached_where_that_is_allowed(outside: Outside, allowed: str) -> None:
    named = {"this one": [outside.url], "by another name": [f"stomp://ada:secret@localhost:{outside.port}"]}
    async with TestClient(allow_outside=named.get(allowed, True)):
        with pytest.raises(ConnectFailed):
            async with Client(outside.url, connect_timeout=0.2):
                pytest.fail("nobody speaks there")

    assert outside.was_reached


async def test_allowing_another_broker_is_not_to_mean_it(outside: Outside) -> None:
    async with TestClient(orders, fake(quote, returns=Decimal(7)), allow_outside=True) as client:
        assert await client.call(total, "ABC", 1) == 12

    assert not outside.was_reached


async def test_what_a_block_allows_is_allowed_in_those_within(outside: Outside) -> None:
    async with TestClient(allow_outside=[outside.url]), TestClient(), broker() as url, serving(url):
        with pytest.raises(ConnectFailed):
            async with Client(outside.url, connect_timeout=0.2):
                pytest.fail("nobody speaks there")


async def test_one_address_is_no_list_of_them() -> None:
    with pytest.raises(TypeError, match=r"\['stomp://rabbit'\]"):
        async with TestClient(allow_outside="stomp://rabbit"):
            pytest.fail("it must not begin")


async def test_brokers_of_this_process_are_not_outside() -> None:
    with RunningBroker(transport="tcp") as running:
        async with TestClient(), Client(running.url) as client:
            await client.publish("/queue/somewhere", "arrived")


async def test_address_of_a_broker_that_has_ended_is_outside() -> None:
    thread = BrokerThread(Server([Listener("127.0.0.1", 0)]))
    thread.start()
    (url,) = thread.server.urls
    thread.stop()

    async with TestClient():
        with pytest.raises(OutsideBroker):
            await StompClient(url).__aenter__()


async def test_after_the_block_the_environment_counts_again(outside: Outside) -> None:
    async with TestClient():
        pass
    with pytest.raises(ConnectFailed):
        async with Client(connect_timeout=0.2):
            pytest.fail("nobody speaks there")

    assert outside.was_reached


async def test_task_that_outlives_its_block_does_not_find_another_broker(outside: Outside) -> None:
    over = anyio.Event()

    async def outlive() -> None:
        await over.wait()
        with pytest.raises(ConnectFailed, match="no broker of this process"):
            await StompClient().__aenter__()

    async with anyio.create_task_group() as tasks:
        async with TestClient():
            tasks.start_soon(outlive)
        over.set()

    assert not outside.was_reached


async def test_fixture_serves_under_the_same_rule(outside: Outside, nebula_serve: Serve) -> None:
    async with nebula_serve(orders, fake(quote, returns=Decimal(7))), Client() as client:
        assert await client.call(total, "ABC", 2) == 12
        with pytest.raises(OutsideBroker):
            await StompClient(outside.url).__aenter__()

    assert not outside.was_reached


async def test_client_without_address_trusts_the_broker_of_the_block() -> None:
    price = fake(quote, returns=Decimal(7))
    with RunningBroker(transport="tls") as running:
        async with serving(running.url, orders, price, tls=running.tls), Client() as client:
            assert await client.call(total, "ABC", 2) == 12


async def test_fixture_refuses_other_brokers_without_a_service_too(
    outside: Outside, nebula_broker: RunningBroker
) -> None:
    with pytest.raises(OutsideBroker, match="nebula_allow_outside"):
        await StompClient(outside.url).__aenter__()


@pytest.mark.parametrize("nebula_allow_outside", [True])
async def test_fixture_is_told_to_allow_others(outside: Outside, nebula_serve: Serve) -> None:
    async with nebula_serve():
        with pytest.raises(ConnectFailed):
            await StompClient(outside.url, connect_timeout=0.2).__aenter__()


async def test_embedded_apps_find_their_broker(outside: Outside) -> None:
    live = Responder("prices")

    @live.verb(name="quote")
    async def price(symbol: str, qty: int = 1) -> Decimal:
        return Decimal(7)

    async with embedded(orders, live), Client() as client:
        assert await client.call(total, "ABC", 2) == 12
        assert await client.call(total_in_thread, "ABC", 2) == 12
        with pytest.raises(RemoteError, match="internal"):
            await client.call(total_elsewhere, outside.url)
        with pytest.raises(OutsideBroker, match="embedded"):
            await StompClient(outside.url).__aenter__()

    assert not outside.was_reached


async def test_embedded_system_may_be_let_out(outside: Outside) -> None:
    async with embedded(allow_outside=[outside.url]):
        with pytest.raises(ConnectFailed):
            await StompClient(outside.url, connect_timeout=0.2).__aenter__()


async def test_embedded_system_is_no_concern_of_other_threads(outside: Outside) -> None:
    found: list[type[BaseException]] = []

    def connect() -> None:
        try:
            sync.Client(connect_timeout=0.2).__enter__()
        except ConnectFailed as error:
            found.append(type(error))

    async with embedded():
        thread = threading.Thread(target=connect)
        thread.start()
        await anyio.to_thread.run_sync(thread.join)

    assert found == [ConnectFailed]
    assert outside.was_reached


async def test_engine_of_a_service_is_told_the_same_broker(outside: Outside) -> None:
    async with TestClient() as client:
        assert environment_of("one")["NEBULA_BROKER"] == client.url


# --- without await ---


def test_plain_test_has_a_client_without_await(outside: Outside) -> None:
    with TestClient(orders, fake(quote, returns=Decimal(7))) as client:
        assert client.call(total, "ABC", 2) == 12

    assert not outside.was_reached


def test_plain_test_finds_its_broker_by_no_address(outside: Outside) -> None:
    with TestClient(fake(quote, returns=Decimal(7))), sync.Client() as client:
        assert client.call(quote, "ABC") == 7

    assert not outside.was_reached


def test_loop_of_another_framework_is_in_the_plain_test_too(outside: Outside) -> None:
    async def ask() -> Decimal:
        async with Client() as client:
            return await client.call(quote, "ABC")

    with anyio.from_thread.start_blocking_portal() as portal, TestClient(fake(quote, returns=Decimal(7))):
        assert portal.call(ask) == 7

    assert not outside.was_reached


def test_plain_test_is_refused_other_brokers(outside: Outside) -> None:
    with TestClient(), pytest.raises(OutsideBroker):
        sync.Client(outside.url).__enter__()

    assert not outside.was_reached


def test_failure_of_a_plain_test_comes_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError), TestClient(prices):
        _ = 1 / 0


def test_plain_client_is_entered_once() -> None:
    client = TestClient()
    with client:
        pass
    with pytest.raises(LocalProtocolError, match="entered once"), client:
        pytest.fail("it must not begin")
