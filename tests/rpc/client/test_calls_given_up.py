"""Calls that their callers give up: which services learn of it, and how long a call may take."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import anyio
import pytest
from pydantic_core import from_json

from nebula.errors import CallTimeout, NoResponder, RemoteError
from nebula.headers import INBOX_PREFIX
from nebula.rpc.client.client import Client
from nebula.rpc.errors import VerbError
from nebula.rpc.service.responder import Responder
from nebula.rpc.wire.deadlines import AMBIENT
from nebula.stomp.client import Message, StompClient
from tests.rpc.conftest import Serving
from tests.rpc.scripted import answer_to, brokers, header, request, welcome
from tests.stomp.peer import Peer

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def hearing(url: str, service: str) -> AsyncGenerator[tuple[list[Message], list[Message]]]:
    """A service that hears requests and cancels, and answers nothing: what comes of each."""
    requests: list[Message] = []
    cancels: list[Message] = []
    async with StompClient(url) as peer:
        await peer.listen(f"/queue/{service}", requests.append)
        await peer.listen(f"/topic/nebula.cancel.{service}", cancels.append)
        yield requests, cancels


async def until(messages: list[Message]) -> Message:
    while not messages:
        await anyio.sleep(0.001)
    return messages[0]


@pytest.mark.parametrize("queue", ["gone-{}", "/queue/gone-{}", "/queue/gone-{}.instance7"])
async def test_call_whose_scope_is_left_is_withdrawn(
    client: Client, broker_url: str, queue: str, anyio_backend_name: str
) -> None:
    service = f"gone-{anyio_backend_name}"
    destination = queue.format(anyio_backend_name)
    with anyio.fail_after(5):
        async with hearing(broker_url, service) as (requests, cancels), StompClient(broker_url) as instance:
            if "." in destination:
                await instance.listen(destination, requests.append)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call, destination, "work")
                asked = await until(requests)
                tasks.cancel_scope.cancel()
            cancel = await until(cancels)

    told = from_json(cancel.body)
    assert set(told) == {"reply-to", "reply-id", "timeout"}
    assert (told["reply-to"], told["reply-id"]) == (
        asked.headers["neb-reply-to"],
        asked.headers["neb-reply-id"],
    )
    assert 0 < told["timeout"] <= 5000
    assert [name for name in cancel.headers if name.startswith("neb-")] == []
    assert cancel.headers["content-type"] == "application/json"


async def test_cancelled_client_withdraws_its_calls_before_it_goes(
    broker_url: str, anyio_backend_name: str
) -> None:
    service = f"going-{anyio_backend_name}"

    async def live() -> None:
        async with Client(broker_url) as client:
            await client.call(service, "work")

    with anyio.fail_after(5):
        async with hearing(broker_url, service) as (requests, cancels):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(live)
                await until(requests)
                tasks.cancel_scope.cancel()
            await until(cancels)


async def test_cancelled_client_does_not_wait_for_a_broker_that_is_stuck() -> None:
    asked = anyio.Event()
    heard: list[str] = []

    async def script(peer: Peer) -> None:
        await welcome(peer)
        await request(peer)
        asked.set()
        heard.extend([await peer.hear(), await peer.hear()])
        assert await peer.is_closed()

    async def live(url: str) -> None:
        async with Client(url) as client:
            await client.call("shop", "price")

    # A client that took its leave as usual would wait for five seconds.
    with anyio.fail_after(4):
        async with brokers(script) as url, anyio.create_task_group() as tasks:
            tasks.start_soon(live, url)
            await asked.wait()
            tasks.cancel_scope.cancel()

    assert header(heard[0], "destination") == "/topic/nebula.cancel.shop"
    assert heard[1].startswith("DISCONNECT\n")


async def test_call_whose_time_is_over_is_not_withdrawn(
    client: Client, broker_url: str, anyio_backend_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A scope that ends a little before its call does is no withdrawal; on a busy machine that may be more.
    monkeypatch.setattr("nebula.rpc.client.inbox._GRAIN", 0.25)
    service = f"late-{anyio_backend_name}"
    with anyio.fail_after(5):
        async with hearing(broker_url, service) as (_, cancels):
            with pytest.raises(CallTimeout):
                await client.call(service, "work", timeout=0.02)
            with anyio.move_on_after(0.02):
                await client.call(service, "work")
            # By the same connection, so it comes behind whatever was withdrawn.
            await client.publish(f"/topic/nebula.cancel.{service}", {"last": True})
            await until(cancels)

    assert [from_json(one.body) for one in cancels] == [{"last": True}]


async def test_calls_leave_nothing_awaited_however_they_end(
    client: Client, broker_url: str, serving: Serving, anyio_backend_name: str
) -> None:
    service = f"ended-{anyio_backend_name}"
    with anyio.fail_after(5):
        async with serving(Responder(f"{service}-not")):
            await client.call(f"{service}-not", "ping")
        # Not all brokers say so.
        with pytest.raises((NoResponder, CallTimeout)):
            await client.call(service, "work", timeout=0.5)
        async with hearing(broker_url, service):
            with pytest.raises(CallTimeout):
                await client.call(service, "work", timeout=0.02)
            with anyio.move_on_after(0.02):
                await client.call(service, "work")

    # For as long as something is, the client reads beyond its bound.
    assert client.stomp.connection._awaited == {}


@pytest.mark.parametrize(("server", "asks"), [("nebula/0", True), ("RabbitMQ/4", False)])
async def test_call_asks_for_a_receipt_that_only_a_rejection_brings(server: str, *, asks: bool) -> None:
    frames: list[str] = []

    async def script(peer: Peer) -> None:
        await welcome(peer, server)
        frames.append(await request(peer))
        await peer.say(answer_to(frames[0], 5))

    async with brokers(script) as url, Client(url, reconnect=False) as client:
        assert await client.call("shop", "price") == 5

    assert ("\nreceipt:" in frames[0]) is asks
    assert ("\nreceipt-on-rejection:true\n" in frames[0]) is asks


async def test_replies_come_to_one_exclusive_inbox_with_automatic_acks() -> None:
    opening: list[str] = []
    frames: list[str] = []

    async def script(peer: Peer) -> None:
        await peer.accept("1.2", "server:nebula/0\n")
        opening.append(await peer.confirm())
        for value in (5, 6):
            frames.append(await request(peer))
            await peer.say(answer_to(frames[-1], value))
        frames.append(await peer.hear())

    async with brokers(script) as url, Client(url, reconnect=False) as client:
        assert [await client.call("shop", "price") for _ in range(2)] == [5, 6]

    (subscribe,) = opening
    inbox = header(subscribe, "destination")
    assert subscribe.startswith("SUBSCRIBE\n")
    assert inbox.startswith(INBOX_PREFIX)
    assert [header(subscribe, name) for name in ("ack", "exclusive", "auto-delete")] == [
        "auto",
        "true",
        "true",
    ]
    # Nothing is said between a reply and what follows: no ACK.
    assert [header(frame, "neb-reply-to") for frame in frames[:2]] == [inbox, inbox]
    assert frames[2].startswith("DISCONNECT\n")


async def test_start_and_questions_to_the_broker_are_not_withdrawn() -> None:
    async def script(peer: Peer) -> None:
        await welcome(peer)
        for _ in range(2):
            await request(peer)
        frame = await peer.hear()
        assert header(frame, "destination") == "/queue/nebula.asked.later"

    async with brokers(script) as url, Client(url) as client:
        for work in (client.start("shop", "report"), client.call("nebula.broker", "ping")):
            with anyio.move_on_after(5) as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_await, work)
                    await anyio.wait_all_tasks_blocked()
                    scope.cancel()
        client.stomp.post("/queue/nebula.asked.later", b"", {})


async def _await(work: Any) -> None:
    await work


# --- how long it may take ---


async def timeout_of(call: Any) -> float:
    """The timeout on the wire, in seconds."""
    told: list[str] = []

    async def script(peer: Peer) -> None:
        await welcome(peer)
        told.append(header(await request(peer), "neb-timeout"))

    async with brokers(script) as url, Client(url, timeout=30, reconnect=False) as client:
        with pytest.raises(Exception):  # noqa: B017, PT011 - however it ends
            await call(client)
    return int(told[0]) / 1000


@pytest.mark.parametrize(
    ("left", "timeout", "expected"),
    [(None, None, 30), (None, 5, 5), (100, None, 100), (2, None, 2), (2, 5, 2), (10, 5, 5)],
)
async def test_call_within_a_handler_takes_no_longer_than_the_handlers_caller_waits(
    left: float | None, timeout: float | None, expected: float
) -> None:
    async def call(client: Client) -> None:
        token = AMBIENT.set(None if left is None else monotonic() + left)
        try:
            await client.call("shop", "price", timeout=timeout)
        finally:
            AMBIENT.reset(token)

    told = await timeout_of(call)

    # `brokers` has a scope of its own, which a call without any other deadline takes.
    assert told <= expected
    assert told > expected - 1 or (timeout is None and left in (None, 100))


async def test_call_for_a_request_that_is_over_is_not_even_sent(client: Client) -> None:
    token = AMBIENT.set(monotonic() - 1)
    try:
        with pytest.raises(CallTimeout, match="the time of the request that this call is for is over"):
            await client.call("shop", "price", timeout=5)
    finally:
        AMBIENT.reset(token)


# --- typed errors ---


class OutOfStock(VerbError):
    """There are not so many left."""

    code = "out-of-stock"
    retryable = True


async def test_declared_error_is_raised_as_its_class(client: Client, serving: Serving) -> None:
    app = Responder("stock")

    @app.verb(errors=[OutOfStock])
    async def order(count: int) -> int:
        if count > 2:
            raise OutOfStock("two are left", details={"left": 2})
        raise VerbError("other", "not that")

    with anyio.fail_after(5):
        async with serving(app):
            with pytest.raises(OutOfStock, match="two are left") as typed:
                await client.call(order, 3)
            with pytest.raises(OutOfStock):
                await client.call("stock", "order", {"count": 3}, errors=[OutOfStock])
            with pytest.raises(RemoteError, match="out-of-stock: two are left"):
                await client.call("stock", "order", {"count": 3})
            with pytest.raises(RemoteError, match="other"):
                await client.call(order, 1)

    error = typed.value
    assert (error.code, error.details, error.retryable) == ("out-of-stock", {"left": 2}, True)
    assert isinstance(error.__cause__, RemoteError)


async def test_declared_error_of_another_service_is_not_passed_on_as_the_services_own(
    client: Client, serving: Serving
) -> None:
    stock, orders = Responder("far-stock"), Responder("orders")

    @stock.verb(errors=[OutOfStock])
    async def take() -> None:
        raise OutOfStock("a secret of the stock's")

    @orders.verb
    async def careless() -> None:
        await client.call(take)

    @orders.verb(errors=[OutOfStock])
    async def open_about_it() -> None:
        await client.call(take)

    with anyio.fail_after(5):
        async with serving(stock, orders):
            with pytest.raises(RemoteError, match=r"^upstream-error: ") as hidden:
                await client.call(careless)
            with pytest.raises(OutOfStock):
                await client.call(open_about_it)

    assert "secret" not in str(hidden.value)
    assert hidden.value.details == {"code": "out-of-stock"}


# --- who is not there yet ---


async def test_responder_that_comes_late_is_waited_for(client: Client, serving: Serving) -> None:
    app = Responder("late-comer")
    answers: list[Any] = []

    @app.verb
    async def hello() -> str:
        return "here"

    async def call() -> None:
        answers.append(await client.call("late-comer", "hello", wait_for_responder=5))
        answers.append(await client.with_options(wait_for_responder=5).call(hello))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            async with serving(app):
                while len(answers) < 2:
                    await anyio.sleep(0.001)

    assert answers == ["here", "here"]


async def test_option_that_there_is_not_is_refused(client: Client) -> None:
    with pytest.raises(TypeError, match="retires"):
        await client.call("shop", "price", retires=3)  # type: ignore[call-overload]
