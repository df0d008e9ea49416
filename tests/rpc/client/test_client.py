"""Client: what a call returns, what it raises, and when (C.3)."""

from __future__ import annotations

import traceback
from collections.abc import AsyncGenerator, Callable
from decimal import Decimal
from time import monotonic
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread
import pytest
from pydantic import BaseModel

from nebula.errors import (
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    LocalProtocolError,
    NoResponder,
    Rejected,
    RemoteError,
    ServerError,
)
from nebula.rpc.client.client import Client
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.verbs import verb
from nebula.rpc.errors import UnexpectedReply, VerbError
from nebula.rpc.service.responder import Responder
from nebula.stomp.client import AckMode, StompClient
from tests.rpc.conftest import RunningBroker, Serving
from tests.stomp.peer import Peer, broker, receipt_of

pytestmark = pytest.mark.anyio

app = Responder(f"shop-{uuid4().hex}")


class Order(BaseModel):
    symbol: str
    qty: int = 1


@app.verb
async def quote(symbol: str, qty: int = 1) -> Decimal:
    return Decimal("1.5") * qty


@app.verb
def place(request: Request, order: Order) -> Order:
    return Order(symbol=order.symbol, qty=order.qty + 1)


@app.verb
async def total(rows: list[int]) -> int:
    return sum(rows)


@app.verb
async def echo(value: Any) -> Any:
    return value


@app.verb
async def nothing() -> None: ...


@app.verb
async def refuse() -> None:
    raise VerbError("sold-out", "none left", details={"left": 0})


@app.verb
async def forever() -> None:
    await anyio.sleep_forever()


@verb
async def unclaimed(word: str) -> str:
    return word


@pytest.fixture
async def shop(serving: Serving) -> AsyncGenerator[str]:
    async with serving(app):
        yield app.name


# --- what a call gives ---


async def test_call_by_name_returns_the_value_as_the_type_asked_for(client: Client, shop: str) -> None:
    parameters = {"symbol": "ABC", "qty": 2}

    assert await client.call(shop, "quote", parameters) == "3.0"
    assert await client.call(shop, "quote", parameters, result=Decimal) == Decimal("3.0")
    assert await client.call(shop, "echo", {"value": [1, 2]}, result=list[float]) == [1.0, 2.0]


async def test_call_by_function_returns_its_return_type(client: Client, shop: str) -> None:
    assert await client.call(quote, "ABC", qty=2) == Decimal("3.0")
    assert await client.call(total, [1, 2, 3]) == 6
    assert await client.call(shop, "nothing") is None


async def test_call_by_function_leaves_out_the_request(client: Client, shop: str) -> None:
    assert await client.call(place, Order(symbol="A", qty=1)) == Order(symbol="A", qty=2)


async def test_call_by_name_takes_parameters_in_each_form(client: Client, shop: str) -> None:
    assert await client.call(shop, "quote", ["ABC", 2]) == "3.0"
    assert await client.call(shop, "quote", "ABC") == "1.5"
    assert await client.call(shop, "place", Order(symbol="A")) == {"symbol": "A", "qty": 2}
    assert await client.call(shop, "total", [1, 2]) == 3


@pytest.mark.parametrize("value", [0, "", [], {}, False, "é☃", 1.5, {"a": [None]}])
async def test_any_json_value_comes_back_as_it_went(client: Client, shop: str, value: Any) -> None:
    assert await client.call(shop, "echo", {"value": value}) == value


async def test_calls_in_flight_each_get_their_own_reply(client: Client, shop: str) -> None:
    answers: dict[int, Any] = {}

    async def ask(number: int) -> None:
        answers[number] = await client.call(echo, number)

    async with anyio.create_task_group() as tasks:
        for number in range(300):
            tasks.start_soon(ask, number)

    assert answers == {number: number for number in range(300)}


async def test_answer_in_any_shape_is_a_value(client: Client, broker_url: str) -> None:
    queue = f"/queue/odd-{uuid4().hex}"
    bodies = [b'"free"', b"[1]", b"null", b'{"verb":"done","params":7}', b"verb: success\nparameters: []\n\n"]
    async with StompClient(broker_url) as other, other.subscribe(queue) as requests:
        values = []
        for body in bodies:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(answer_next, requests, other, body)
                values.append(await client.call(queue, "anything"))

    assert values == ["free", [1], None, 7, None]


async def answer_next(requests: Any, stomp: StompClient, body: bytes) -> None:
    request = (await anext(requests)).headers
    content_type = "text/plain" if body.startswith(b"verb") else "application/json"
    headers = {"content-type": content_type, "neb-in-reply-to": request["neb-reply-id"]}
    stomp.post(request["neb-reply-to"], body, headers)


# --- what a call raises ---


async def test_error_reply_is_raised_with_its_code(client: Client, shop: str) -> None:
    with pytest.raises(RemoteError) as caught:
        await client.call(refuse)

    error = caught.value
    assert (error.code, error.message, error.details) == ("sold-out", "none left", {"left": 0})
    assert not error.retryable


async def test_call_fails_at_once_without_a_listener(client: Client) -> None:
    with anyio.fail_after(10), pytest.raises(NoResponder) as caught:
        await client.call("nobody", "ping")

    assert caught.value.destination == "/queue/nobody"


async def test_call_of_a_client_with_a_long_backlog_is_answered(client: Client, shop: str) -> None:
    queue = f"/queue/much-{uuid4().hex}"
    large = b"x" * 8_000_000  # a connection reads two of them ahead
    with anyio.fail_after(10):
        async with client.stomp.subscribe(queue) as unread:
            for _ in range(4):
                await client.stomp.send(queue, large, receipt=True)
            async for _ in unread:
                with pytest.raises(NoResponder):
                    await client.call("nobody", "ping")
                assert await client.call(shop, "echo", {"value": 7}) == 7
                break


async def test_request_that_no_service_took_is_not_kept(client: Client) -> None:
    queue = f"/queue/nobody-{uuid4().hex}"
    with pytest.raises(NoResponder):
        await client.call(queue, "ping")

    async with client.stomp.subscribe(queue) as later:
        await client.stomp.send(queue, b"only this")
        with anyio.fail_after(5):
            assert (await anext(later)).body == b"only this"


async def test_call_ends_when_its_time_is_over(client: Client, shop: str) -> None:
    with anyio.fail_after(4), pytest.raises(CallTimeout, match="did not answer in time"):
        await client.call(shop, "forever", timeout=0.05)


async def test_calls_end_at_their_own_deadlines_whatever_was_asked_before(client: Client, shop: str) -> None:
    took: dict[float, float] = {}

    async def ask(seconds: float) -> None:
        began = monotonic()
        with pytest.raises(CallTimeout):
            await client.call(shop, "forever", timeout=seconds)
        took[seconds] = monotonic() - began

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for seconds in (60.0, 0.1, 0.2):
                tasks.start_soon(ask, seconds)
            while len(took) < 2:
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()

    assert took.keys() == {0.1, 0.2}
    assert all(seconds <= passed for seconds, passed in took.items())


async def test_scope_around_a_call_is_its_deadline(client: Client, shop: str, serving: Serving) -> None:
    seen: list[float] = []
    other = Responder(f"clock-{uuid4().hex}")

    @other.verb
    async def look(request: Request) -> None:
        seen.append(int(request.headers["neb-timeout"]))

    async with serving(other):
        with anyio.fail_after(60):
            await client.call(look)
            await client.call(other.name, "look", timeout=2)
            await client.with_options(timeout=3).call(look)
        await client.call(look)

    # What the broker says is left.
    assert [most - 1 < ms / 1000 <= most for ms, most in zip(seen, (60, 2, 3, 5), strict=True)] == [True] * 4


async def test_cancelled_call_forgets_its_answer(client: Client, shop: str) -> None:
    with anyio.move_on_after(0.05) as scope:
        await client.call(forever)

    assert scope.cancelled_caught
    assert await client.call(echo, 1) == 1


async def test_value_of_another_type_than_asked_for_is_reported_without_the_value(
    client: Client, shop: str
) -> None:
    secret = "hunter2"
    with pytest.raises(UnexpectedReply, match="Input should be a valid decimal") as caught:
        await client.call(shop, "echo", {"value": secret}, result=Decimal)

    # Nor in a traceback, which is logged.
    assert secret not in "".join(traceback.format_exception(caught.value))


async def test_wrong_parameters_are_reported_by_the_service(client: Client, shop: str) -> None:
    with pytest.raises(RemoteError, match="qty: Input should be a valid integer") as caught:
        await client.call(shop, "quote", {"symbol": "ABC", "qty": "many"})

    assert caught.value.code == "bad-parameters"


async def test_parameters_without_a_json_form_are_refused_before_anything_is_sent(
    client: Client, shop: str
) -> None:
    with pytest.raises(ValueError, match="Unable to serialize"):
        await client.call(shop, "echo", {"value": object()})


async def test_calls_in_flight_and_later_ones_fail_when_the_connection_ends(
    mortal_broker: RunningBroker,
) -> None:
    outcomes: list[BaseException] = []
    started = anyio.Event()
    waiting = Responder("waiting")
    entered = anyio.Event()

    @waiting.verb
    async def wait() -> None:
        entered.set()
        await anyio.sleep_forever()

    async def serve() -> None:
        with pytest.raises((ConnectionLost, ServerError)):
            await waiting.run(mortal_broker.url, started=started, grace=0.01, reconnect=False)

    async def ask(client: Client) -> None:
        with pytest.raises((ConnectionLost, ServerError)) as caught:
            await client.call(wait)
        outcomes.append(caught.value)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            await started.wait()
            async with Client(mortal_broker.url, reconnect=False) as client:
                async with anyio.create_task_group() as calls:
                    calls.start_soon(ask, client)
                    calls.start_soon(ask, client)
                    await entered.wait()
                    await anyio.to_thread.run_sync(mortal_broker.stop)
                with pytest.raises((ConnectionLost, ServerError)):
                    await client.call("waiting", "ping")

    assert len(outcomes) == 2


async def test_broker_that_ends_the_connection_while_the_inbox_opens_fails_the_entry() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        frame = await peer.hear()
        await peer.say(f"RECEIPT\nreceipt-id:{receipt_of(frame)}\n\n^@ERROR\nmessage:going down\n\n^@")

    async with broker(script) as url:
        with pytest.raises(ServerError, match="going down"):
            async with Client(url):
                raise AssertionError


async def test_client_that_finds_no_broker_says_so(free_port: int) -> None:
    with pytest.raises(ConnectFailed):
        async with Client(f"stomp://127.0.0.1:{free_port}"):
            raise AssertionError


async def test_call_outside_of_the_context_is_refused(broker_url: str) -> None:
    with pytest.raises(LocalProtocolError, match="async with"):
        await Client(broker_url).call("prices", "ping")


# --- whom to ask ---


async def test_function_without_a_service_is_refused_with_the_cure(client: Client) -> None:
    with pytest.raises(TypeError, match=r"client\.service\(NAME\)\.call\(unclaimed"):
        await client.call(unclaimed, "x")


async def test_function_without_a_service_is_called_through_one(client: Client, serving: Serving) -> None:
    first = Responder(f"first-{uuid4().hex}")
    second = Responder(f"second-{uuid4().hex}")
    holder = type("Holder", (), {"unclaimed": staticmethod(unclaimed)})
    for one in (first, second):
        one.include(holder)

    async with serving(first, second):
        for one in (first, second):
            assert await client.service(one.name).call(unclaimed, "x") == "x"


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.call(quote),
        lambda client: client.call(quote, "A", 1, 2),
        lambda client: client.call(quote, "A", symbol="A"),
        lambda client: client.call(quote, "A", quantity=2),
        lambda client: client.send(quote, quantity=2),
    ],
)
async def test_arguments_that_do_not_fit_the_function_are_refused(
    client: Client, call: Callable[[Client], Any]
) -> None:
    with pytest.raises(TypeError, match="quote"):
        await call(client)


# --- messages without an answer ---


async def test_send_is_kept_until_a_service_comes_and_then_run(client: Client, serving: Serving) -> None:
    ran = anyio.Event()
    seen: dict[str, str] = {}
    later = Responder(f"later-{uuid4().hex}")

    @later.verb
    async def note(request: Request, word: str) -> None:
        seen.update(request.headers, word=word)
        ran.set()

    await client.send(note, "kept")
    async with serving(later):
        with anyio.fail_after(5):
            await ran.wait()

    assert seen["word"] == "kept"
    assert seen["neb-no-reply"] == "true"
    assert "neb-timeout" not in seen
    assert "neb-reply-to" not in seen


async def test_send_that_expires_is_not_run(client: Client, serving: Serving) -> None:
    # Connecting a service takes longer than the millisecond that the request has.
    runs: list[None] = []
    later = Responder(f"later-{uuid4().hex}")

    @later.verb
    async def note() -> None:
        runs.append(None)

    await client.send(later.name, "note", expires_in=0.001)
    async with serving(later):
        await client.call(later.name, "ping")

    assert not runs


async def test_send_that_the_broker_refuses_is_rejected(client: Client) -> None:
    # An inbox that is not there takes nothing (D.48).
    with pytest.raises(Rejected) as caught:
        await client.send("/queue/nebula.inbox.gone", "ping")

    assert caught.value.verdict == "rejected-no-consumer"


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [({"a": 1}, "application/json", b'{"a":1}'), ("é", "text/plain", "é".encode()), (b"\0", "x/y", b"\0")],
)
async def test_publish_sends_a_body_as_it_is(
    client: Client, body: Any, content_type: str, expected: bytes
) -> None:
    topic = f"/topic/news-{uuid4().hex}"
    async with client.stomp.subscribe(topic, ack=AckMode.AUTO) as news:
        await client.publish(topic, body, content_type=content_type, headers={"x": "y"})
        with anyio.fail_after(5):
            message = await anext(news)

    assert (message.body, message.headers["content-type"], message.headers["x"]) == (
        expected,
        content_type,
        "y",
    )


# --- a reply queue shared with strangers ---


async def test_requesters_that_share_a_reply_queue_each_get_their_own_answers(
    broker_url: str, shop: str
) -> None:
    queue = f"/queue/shared-{uuid4().hex}"
    answers: dict[str, list[Any]] = {"first": [], "second": []}

    async def ask(client: Client, name: str) -> None:
        for number in range(5):
            answers[name].append(await client.call(echo, [name, number]))

    async with Client(broker_url, reply_to=queue) as first, Client(broker_url, reply_to=queue) as second:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, first, "first")
                tasks.start_soon(ask, second, "second")

    assert answers == {name: [[name, number] for number in range(5)] for name in ("first", "second")}


async def test_strangers_answer_stays_in_a_shared_queue_uncounted(
    broker_url: str, shop: str, client: Client
) -> None:
    queue = f"/queue/shared-{uuid4().hex}"
    await client.stomp.send(queue, b"boo")
    await client.stomp.send(queue, b"not yours", {"neb-in-reply-to": "strange"})

    async with Client(broker_url, reply_to=queue) as one:
        with anyio.fail_after(5), pytest.raises(CallTimeout):
            await one.with_options(timeout=0.3).call(forever)
        assert await one.call(echo, 1) == 1

    async with client.stomp.subscribe(queue) as rest:
        with anyio.fail_after(5):
            left = await anext(rest)
    assert left.body == b"not yours"
    assert "delivery-count" not in left.headers
