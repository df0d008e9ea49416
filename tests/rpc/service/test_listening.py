"""`@app.on` functions: first what goes wrong, then their arguments."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
import anyio.from_thread
import pytest
from pydantic import BaseModel

from nebula.avro import Schema
from nebula.codegen.asyncapi import asyncapi_document
from nebula.errors import LocalProtocolError, Refused, RemoteError
from nebula.rpc.client.client import Client
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.injection import Depends
from nebula.rpc.contract.retry import Retry
from nebula.rpc.errors import VerbError
from nebula.rpc.middleware.chain import CallNext
from nebula.rpc.service.responder import Responder
from nebula.rpc.wire.reply_body import ReplyBody, success
from nebula.testing import Faults, RunningBroker, TestClient
from tests.rpc.asyncapi_schema import OFFICIAL, faults
from tests.rpc.heard import Heard
from tests.rpc.scripted import brokers, header
from tests.stomp.peer import Peer

pytestmark = pytest.mark.anyio

_DEADLINE = 20.0

READING = Schema({"type": "record", "name": "egm.Meter_v1", "fields": [{"name": "cents", "type": "long"}]})


class Meter(BaseModel):
    cents: int


@pytest.fixture
def app() -> Responder:
    return Responder("meters", max_attempts=2, client_id="meters-1")


@pytest.fixture
async def heard() -> Heard:
    return Heard()


async def counts(client: Client, handler: int = 0) -> dict[str, Any]:
    listens: list[dict[str, Any]] = (await client.call("meters", "stats"))["listens"]
    return listens[handler]


# --- what goes wrong ---


async def test_message_of_a_queue_that_is_never_handled_comes_again_and_is_dead_lettered(
    app: Responder, heard: Heard
) -> None:
    @app.on("/queue/readings")
    async def note(meter: Meter, request: Request) -> None:
        heard(request.attempt)
        raise RuntimeError("no room")

    with anyio.fail_after(_DEADLINE):
        async with TestClient(app) as client, client.subscribe("/queue/DLQ", as_=Meter) as dead:
            await client.publish("/queue/readings", Meter(cents=7))
            buried = await anext(dead)
            told = await counts(client)

    assert buried.value == Meter(cents=7)
    assert heard.all == [1, 2]
    assert (told["messages"], told["errors"], told["given_up"], told["unreadable"]) == (2, 2, 1, 0)


# --- retries ---


class OutOfRoom(VerbError):
    """There is no room."""

    code = "out-of-room"


async def test_second_attempt_comes_a_second_later_unless_it_is_said_otherwise(heard: Heard) -> None:
    app = Responder("meters")

    @app.on("/queue/readings")
    async def note(meter: Meter) -> None:
        heard(monotonic())
        if len(heard.all) == 1:
            raise RuntimeError("no room")

    with anyio.fail_after(_DEADLINE):
        async with TestClient(app) as client:
            await client.publish("/queue/readings", Meter(cents=7))
            first, second = await heard.until(2)

    assert 1.0 <= second - first < 5.0


async def test_others_are_handled_while_one_waits_for_its_next_attempt(heard: Heard) -> None:
    app = Responder("meters")

    @app.on("/queue/readings", retry=Retry(first=0.3))
    async def note(meter: Meter, request: Request) -> None:
        heard((meter.cents, request.attempt))
        if meter.cents == 1 and request.attempt == 1:
            raise RuntimeError("no room")

    with anyio.fail_after(_DEADLINE):
        async with TestClient(app) as client:
            for cents in range(1, 7):
                await client.publish("/queue/readings", Meter(cents=cents))
            await heard.until(7)

    assert heard.all == [*((cents, 1) for cents in range(1, 7)), (1, 2)]


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (RuntimeError("no room\nat all\0"), "internal", "RuntimeError: no room\nat all"),
        (OutOfRoom("two are left"), "out-of-room", "two are left"),
        (RemoteError("busy", "later"), "busy", "later"),
        (ValueError("x" * 5_000), "internal", f"ValueError: {'x' * 988}"),
    ],
)
async def test_dead_letter_says_what_failed_where_and_how_often(
    error: Exception, code: str, text: str
) -> None:
    app = Responder("meters", retry=Retry(attempts=2, first=0.0))

    @app.on("/queue/readings")
    async def note(meter: Meter) -> None:
        raise error

    with anyio.fail_after(_DEADLINE):
        async with TestClient(app) as client, client.subscribe("/queue/DLQ") as dead:
            await client.publish("/queue/readings", Meter(cents=7))
            headers = (await anext(dead)).headers

    names = ("code", "text", "handler", "deliveries", "reason")
    assert [headers[f"dead-letter-{name}"] for name in names] == [code, text, "note", "2", "rejected"]


async def test_dead_letter_of_garbage_says_what_is_wrong_with_it(app: Responder) -> None:
    @app.on("/queue/readings")
    async def note(meter: Meter) -> None: ...

    with anyio.fail_after(_DEADLINE):
        async with TestClient(app) as client, client.subscribe("/queue/DLQ") as dead:
            await client.publish("/queue/readings", b'{"cents": "many"}', content_type="application/json")
            headers = (await anext(dead)).headers

    assert (headers["dead-letter-code"], headers["dead-letter-handler"]) == ("bad-parameters", "note")
    assert "cents" in headers["dead-letter-text"]


async def test_retry_of_a_function_precedes_that_of_its_service(heard: Heard) -> None:
    app = Responder("meters", retry=Retry(attempts=9, first=60.0))

    @app.on("/queue/readings", retry=Retry(attempts=4, first=0.0))
    async def note(meter: Meter, request: Request) -> None:
        heard(request.attempt)
        raise RuntimeError("no room")

    with anyio.fail_after(_DEADLINE):
        async with TestClient(app) as client, client.subscribe("/queue/DLQ", as_=Meter) as dead:
            await client.publish("/queue/readings", Meter(cents=7))
            await anext(dead)

    assert heard.all == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("destination", "options"), [("/topic/a", {}), ("X/a", {}), ("/queue/a", {"ack": "early"})]
)
def test_retry_of_what_never_comes_again_is_refused(destination: str, options: dict[str, Any]) -> None:
    app = Responder("meters")

    with pytest.raises(ValueError, match="leave retry out"):
        app.on(destination, retry=Retry(), **options)(one)


# --- what else goes wrong ---


@pytest.mark.parametrize("destination", ["/topic/readings", "X/reading"])
async def test_failure_over_a_topic_or_value_is_counted_and_the_next_one_is_handled(
    app: Responder, heard: Heard, destination: str
) -> None:
    @app.on(destination)
    async def note(meter: Meter) -> None:
        heard(meter.cents)
        if meter.cents == 1:
            raise SystemExit(2)

    async with TestClient(app) as client:
        await client.publish(destination, Meter(cents=1))
        await heard.until(1)
        await client.publish(destination, Meter(cents=2))
        await heard.until(2)
        told = await counts(client)

    assert heard.all == [1, 2]
    assert (told["messages"], told["errors"], told["given_up"]) == (2, 1, 0)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b"{"),
        ("application/json", b'{"cents": "many"}'),
        ("avro/binary", b"\x00\x01 no envelope"),
        ("text/plain", b"\xff"),
        ("text/plain", b""),
    ],
)
async def test_garbage_in_a_queue_is_dead_lettered_at_once_and_the_service_goes_on(
    app: Responder, heard: Heard, content_type: str, body: bytes
) -> None:
    @app.on("/queue/readings")
    async def note(meter: Meter) -> None:
        heard(meter.cents)

    with anyio.fail_after(_DEADLINE):
        async with TestClient(app) as client, client.subscribe("/queue/DLQ") as dead:
            await client.publish("/queue/readings", body, content_type=content_type)
            buried = await anext(dead)
            await client.publish("/queue/readings", Meter(cents=2))
            await heard.until(1)
            told = await counts(client)

    assert buried.headers["dead-letter-reason"] == "rejected"
    assert heard.all == [2]
    assert (told["messages"], told["errors"], told["given_up"], told["unreadable"]) == (1, 0, 1, 1)


@pytest.mark.parametrize("destination", ["/topic/readings", "X/reading"])
async def test_garbage_over_a_topic_or_value_is_counted_and_the_next_one_is_handled(
    app: Responder, heard: Heard, destination: str
) -> None:
    @app.on(destination)
    async def note(meter: Meter) -> None:
        heard(meter.cents)

    async with TestClient(app) as client:
        await client.publish(destination, b"garbage", content_type="avro/binary")
        # Answered after it: a value may be overwritten before it is read.
        await client.call("meters", "ping")
        await client.publish(destination, Meter(cents=2))
        await heard.until(1)
        told = await counts(client)

    assert (told["messages"], told["unreadable"], told["given_up"]) == (1, 1, 0)


async def test_service_listens_again_after_a_lost_connection(
    app: Responder, heard: Heard, nebula_client: Client, nebula_faults: Faults
) -> None:
    @app.on("/topic/readings")
    async def note(meter: Meter) -> None:
        heard(meter.cents)

    @app.on("X/reading", eager=True)
    async def see(meter: Meter) -> None:
        heard(-meter.cents)

    await nebula_client.publish("X/reading", Meter(cents=1))
    started = anyio.Event()
    serve = partial(app.run, link=nebula_faults, reconnect=True, grace=0.05, started=started)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        await started.wait()
        await heard.until(1)
        nebula_faults.drop_connection()
        await heard.until(2)  # what is there comes with each connection, and behind the topic
        await nebula_client.publish("/topic/readings", Meter(cents=2))
        await heard.until(3)
        tasks.cancel_scope.cancel()

    assert heard.all == [-1, -1, 2]


async def test_messages_of_a_queue_that_were_handled_or_waited_at_the_loss_come_again_once(
    app: Responder, heard: Heard, nebula_client: Client, nebula_faults: Faults
) -> None:
    again = anyio.Event()

    @app.on("/queue/readings")
    async def note(meter: Meter, request: Request) -> None:
        heard((meter.cents, request.attempt))
        if (meter.cents, request.attempt) == (5, 1):
            await again.wait()

    @app.on("X/reading", eager=True)
    async def see(meter: Meter) -> None:
        if not heard.all:
            return
        again.set()

    await nebula_client.publish("X/reading", Meter(cents=1))
    started = anyio.Event()
    serve = partial(app.run, link=nebula_faults, reconnect=True, grace=0.05, started=started)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        await started.wait()
        await nebula_client.publish("/queue/readings", Meter(cents=5))
        await nebula_client.publish("/queue/readings", Meter(cents=6))
        await nebula_client.call("meters", "ping")  # answered behind them: both are there
        await heard.until(1)
        nebula_faults.drop_connection()
        await heard.until(3)
        tasks.cancel_scope.cancel()

    assert heard.all == [(5, 1), (5, 2), (6, 2)]


@pytest.mark.parametrize("destination", ["/queue/readings", "/topic/readings"])
async def test_slow_handler_has_no_more_messages_than_its_credit(
    app: Responder, heard: Heard, destination: str
) -> None:
    go = anyio.Event()

    @app.on(destination)
    async def note(meter: Meter) -> None:
        heard(meter.cents)
        await go.wait()

    async with TestClient(app) as client:
        for cents in range(50):
            await client.publish(destination, Meter(cents=cents))
        await heard.until(1)
        told = await counts(client)  # asked over the connection that the messages came by, behind them
        go.set()
        await heard.until(50)

    assert told["waiting"] == 1
    assert heard.all == list(range(50))


async def test_slow_handler_of_a_value_gets_the_newest_only(app: Responder, heard: Heard) -> None:
    go = anyio.Event()

    @app.on("X/reading")
    async def note(meter: Meter) -> None:
        heard(meter.cents)
        await go.wait()

    async with TestClient(app) as client:
        for cents in range(1, 10):
            await client.publish("X/reading", Meter(cents=cents))
            await heard.until(1)
        go.set()
        await heard.until(2)

    assert heard.all == [1, 9]


async def test_acked_early_a_message_comes_once_whatever_becomes_of_it(app: Responder, heard: Heard) -> None:
    @app.on("/queue/readings", ack="early")
    async def note(meter: Meter) -> None:
        heard(meter.cents)
        raise RuntimeError("no room")

    async with TestClient(app) as client:
        for cents in range(4):  # more than the credit that acks have to give back
            await client.publish("/queue/readings", Meter(cents=cents))
        await heard.until(4)
        told = await counts(client)

    assert heard.all == [0, 1, 2, 3]
    assert (told["errors"], told["given_up"]) == (4, 0)


async def test_broker_without_last_values_is_reported_at_the_start(app: Responder) -> None:
    @app.on("X/reading")
    async def note(meter: Meter) -> None: ...

    async def other(peer: Peer) -> None:
        await peer.accept("1.2", "server:RabbitMQ/4\n")
        while (frame := await peer.hear()).startswith("SUBSCRIBE\n"):
            await peer.say(f"RECEIPT\nreceipt-id:{header(frame, 'receipt')}\n\n^@")

    async with brokers(other) as url:
        with pytest.raises(Refused, match="X/reading: RabbitMQ/4 keeps none"):
            await app.run(url)


@pytest.mark.parametrize("server", ["RabbitMQ/4", "ActiveMQ/5.17"])
async def test_service_keeps_the_message_until_its_next_attempt_if_the_broker_knows_no_delay(
    heard: Heard, server: str
) -> None:
    app = Responder("meters", retry=Retry(attempts=3, first=0.05))
    settled: list[str] = []

    @app.on("/queue/readings")
    async def note(meter: Meter, request: Request) -> None:
        heard((meter.cents, request.attempt))
        if meter.cents == 1:
            raise RuntimeError("no room")

    def message(frame: str, cents: int) -> str:
        return (
            f"MESSAGE\nsubscription:{header(frame, 'id')}\nmessage-id:{cents}\nack:m{cents}\n"
            f'destination:/queue/readings\ncontent-type:application/json\n\n{{"cents":{cents}}}^@'
        )

    async def other(peer: Peer) -> None:
        await peer.accept("1.2", f"server:{server}\n")
        while len(settled) < 2:
            frame = await peer.hear()
            if frame.startswith(("NACK\n", "ACK\n")):
                settled.append(frame)
            elif frame.startswith("SUBSCRIBE\n"):
                await peer.say(f"RECEIPT\nreceipt-id:{header(frame, 'receipt')}\n\n^@")
                if header(frame, "destination") == "/queue/readings":
                    await peer.say(message(frame, 1) + message(frame, 2))
        tasks.cancel_scope.cancel()

    async with brokers(other) as url, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(app.run, url, grace=0.05))

    assert heard.all == [(1, 1), (2, 1), (1, 2), (1, 3)]
    assert [(one.partition("\n")[0], header(one, "id")) for one in settled] == [("ACK", "m2"), ("NACK", "m1")]
    assert header(settled[1], "requeue") == "false"
    assert "dead-letter-" not in settled[1]


# --- what can be declared ---


def one(meter: Meter) -> None: ...
def none() -> None: ...
def two(meter: Meter, more: int = 1) -> None: ...
def yields(meter: Meter) -> Iterator[int]:
    yield 1


async def streams(meter: Meter) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("destination", "options", "function", "error", "text"),
    [
        ("queue/readings", {}, one, ValueError, "did you mean"),
        ("/queue/meters", {}, one, ValueError, "take from itself"),
        ("/queue/readings", {"durable": "a"}, one, ValueError, "leave durable out"),
        ("/queue/readings", {"eager": True}, one, ValueError, "leave eager out"),
        ("/topic/readings", {"eager": True}, one, ValueError, "leave eager out"),
        ("/topic/readings", {"durable": "7"}, one, ValueError, "no number"),
        ("/topic/readings", {"ack": "auto"}, one, ValueError, "'late' or 'early'"),
        ("/topic/readings", {"concurrency": 0}, one, ValueError, "1 or more"),
        ("/topic/readings", {}, none, TypeError, "one parameter"),
        ("/topic/readings", {}, two, TypeError, "one parameter"),
        ("/topic/readings", {}, yields, TypeError, "yields"),
        ("/topic/readings", {}, streams, TypeError, "yields"),
    ],
)
def test_what_cannot_be_listened_to_says_so(
    app: Responder,
    destination: str,
    options: dict[str, Any],
    function: Callable[..., Any],
    error: type[Exception],
    text: str,
) -> None:
    with pytest.raises(error, match=text):
        app.on(destination, **options)(function)


def test_queue_is_read_by_one_function_and_a_topic_by_any_number(app: Responder) -> None:
    app.on("/topic/readings")(one)
    app.on("/topic/readings")(one)
    app.on("/queue/readings")(one)
    with pytest.raises(ValueError, match="take from itself"):
        app.on("/queue/readings")(one)


def test_durable_wants_a_session_and_a_name_of_its_own(app: Responder) -> None:
    with pytest.raises(ValueError, match="client_id"):
        Responder("meters").on("/topic/readings", durable="notes")(one)
    app.on("/topic/readings", durable="notes")(one)
    with pytest.raises(ValueError, match="two subscriptions"):
        app.on("/topic/others", durable="notes")(one)


# --- what handlers are told ---


async def test_handler_is_told_where_by_whom_and_with_which_headers(
    heard: Heard, nebula_broker: RunningBroker, nebula_serve: Any
) -> None:
    app = Responder("meters")

    @app.on("X/EGM.*")
    async def note(meter: Meter, request: Request) -> None:
        heard((request.destination, request.principal, request.headers["colour"], meter.cents))

    url = nebula_broker.url.replace("memory://", "memory://alice@")
    async with nebula_serve(app), Client(url) as client:
        await client.publish("X/EGM.7", Meter(cents=3), headers={"colour": "red"})
        await heard.until(1)

    assert heard.all == [("X/EGM.7", "alice", "red", 3)]


@pytest.mark.parametrize(
    ("kind", "content_type", "body", "value"),
    [
        (str, "text/plain", "07", "07"),
        (int, "text/plain", "07", 7),
        (int, "application/json", 7, 7),
        (Meter, "text/plain", '{"cents": 7}', Meter(cents=7)),
        (list[int], "application/json", [7, 8], [7, 8]),
        (bytes, "application/octet-stream", b"\x00\xff", b"\x00\xff"),
        (dict[str, int], "application/json", {"a": 1}, {"a": 1}),
        (Meter | None, "application/json", b"", None),
    ],
)
async def test_bodies_of_all_kinds_come_as_the_annotated_type(
    app: Responder, heard: Heard, kind: Any, content_type: str, body: Any, value: Any
) -> None:
    async def note(body: Any) -> None:
        heard(body)

    note.__annotations__["body"] = kind
    app.on("/queue/readings")(note)
    async with TestClient(app) as client:
        await client.publish("/queue/readings", body, content_type=content_type)
        assert await heard.until(1) == [value]


async def test_deletions_come_as_none_where_the_annotation_allows_it(app: Responder, heard: Heard) -> None:
    @app.on("X/m.*")
    async def note(meter: Meter | None) -> None:
        heard(meter)

    @app.on("X/m.*")
    async def strict(meter: Meter) -> None:
        heard(meter.cents)

    async with TestClient(app) as client:
        await client.publish("X/m.a", Meter(cents=1))
        await heard.until(2)
        await client.publish("X/m.a", b"")
        await heard.until(3)
        await client.publish("X/m.b", Meter(cents=2))
        await heard.until(5)
        told = await counts(client, 1)

    assert heard.all[2] is None
    assert sorted(map(str, heard.all[:2])) == ["1", "cents=1"]
    assert (told["messages"], told["unreadable"], told["errors"]) == (2, 0, 0)


async def test_avro_is_read_with_the_schema_that_the_broker_knows(
    app: Responder, heard: Heard, tmp_path: Path
) -> None:
    @app.on("X/a")
    async def note(meter: Meter | None) -> None:
        heard(meter)

    (tmp_path / "meter.avsc").write_text(json.dumps(READING.definition))
    with anyio.fail_after(_DEADLINE):
        async with TestClient(app, settings={"schemas": tmp_path}) as client:
            await client.send_avro("X/a", Meter(cents=5), READING)
            await heard.until(1)
            await client.send_avro("X/a", None, READING)
            await heard.until(2)

    assert heard.all == [Meter(cents=5), None]


async def test_avro_of_an_unknown_schema_is_counted_and_the_service_goes_on(
    app: Responder, heard: Heard
) -> None:
    @app.on("/topic/a")
    async def note(meter: Meter) -> None:
        heard(meter)

    with anyio.fail_after(_DEADLINE):
        async with TestClient(app) as client:
            await client.send_avro("/topic/a", Meter(cents=5), READING)
            await client.publish("/topic/a", Meter(cents=6))
            await heard.until(1)
            told = await counts(client)

    assert heard.all == [Meter(cents=6)]
    assert told["unreadable"] == 1


async def test_messages_are_handled_in_order_unless_more_run_at_once(app: Responder, heard: Heard) -> None:
    go = anyio.Event()

    @app.on("/topic/readings", concurrency=3)
    async def note(meter: Meter) -> None:
        heard(meter.cents)
        await go.wait()

    async with TestClient(app) as client:
        for cents in range(9):
            await client.publish("/topic/readings", Meter(cents=cents))
        await heard.until(3)
        told = await counts(client)
        at_once = len(heard.all)
        go.set()
        await heard.until(9)

    assert at_once == 3
    assert told["waiting"] == 3


async def test_durable_subscription_gets_what_came_while_the_service_was_away(
    app: Responder, heard: Heard, nebula_client: Client, nebula_serve: Any
) -> None:
    @app.on("/topic/readings", durable="notes")
    async def note(meter: Meter) -> None:
        heard(meter.cents)

    async with nebula_serve(app):
        await nebula_client.publish("/topic/readings", Meter(cents=1))
        await heard.until(1)
    await nebula_client.publish("/topic/readings", Meter(cents=2))
    async with nebula_serve(app):
        assert await heard.until(2) == [1, 2]


async def test_handler_publishes_over_its_services_connection_also_from_a_thread(
    app: Responder, heard: Heard
) -> None:
    @app.on("/queue/readings")
    async def note(meter: Meter) -> None:
        await app.publish("/topic/doubled", Meter(cents=2 * meter.cents))

    @app.on("/topic/doubled")
    def plain(meter: Meter) -> None:
        anyio.from_thread.run(app.publish, "X/last", {"cents": meter.cents + 1})

    @app.on("X/last")
    async def see(meter: Meter) -> None:
        heard(meter.cents)

    with pytest.raises(LocalProtocolError, match="not connected"):
        await app.publish("/topic/doubled", Meter(cents=1))
    async with TestClient(app) as client:
        await client.publish("/queue/readings", Meter(cents=5))

        assert await heard.until(1) == [11]


async def test_handler_is_given_what_providers_make_and_it_is_closed_behind_it(
    app: Responder, heard: Heard
) -> None:
    async def place(request: Request) -> AsyncIterator[str]:
        yield request.destination
        heard("closed")

    @app.on("/topic/readings")
    async def note(meter: Meter, *, where: str = Depends(place)) -> None:
        heard((meter.cents, where))

    async with TestClient(app) as client:
        await client.publish("/topic/readings", Meter(cents=5))

        assert await heard.until(2) == [(5, "/topic/readings"), "closed"]


async def test_what_is_listened_to_is_described_and_in_the_asyncapi_document(app: Responder) -> None:
    @app.on("X/EGM.*", eager=True)
    async def note(meter: Meter | None) -> None:
        """Note a meter.

        All of them.
        """

    @app.on("/topic/readings", durable="notes")
    async def count(cents: int) -> None: ...

    async with TestClient(app) as client:
        described = await client.call("meters", "describe")
    document = asyncapi_document(described)

    first, second = described["listens"]
    assert (first["destination"], first["handler"], first["eager"]) == ("X/EGM.*", "note", True)
    assert first["message"]["$defs"]["Meter"]["properties"]["cents"]["type"] == "integer"
    assert (second["durable"], second["message"]["type"]) == ("notes", "integer")
    assert faults(OFFICIAL, document) == []
    operation = document["operations"]["on.note"]
    channel = document["channels"][operation["channel"]["$ref"].rpartition("/")[2]]
    assert channel["address"] == "X/EGM.*"
    assert (operation["summary"], operation["description"]) == ("Note a meter.", "All of them.")


async def test_service_that_listens_to_nothing_describes_no_subscriptions() -> None:
    async with TestClient(Responder("plain")) as client:
        assert "listens" not in await client.call("plain", "describe")
        assert "listens" not in await client.call("plain", "stats")


# --- middleware ---


async def test_middleware_stands_around_each_call_of_its_function(app: Responder, heard: Heard) -> None:
    async def outer(request: Request, call_next: CallNext) -> ReplyBody:
        heard(("outer", request.verb, request.destination, request.parameters))
        return await call_next(request)

    async def inner(request: Request, call_next: CallNext) -> ReplyBody:
        try:
            return await call_next(request)
        finally:
            heard("after")

    @app.on("/topic/readings", middleware=[outer, inner])
    async def note(meter: Meter) -> None:
        heard(meter.cents)

    @app.on("/topic/others")
    async def other(meter: Meter) -> None:
        heard(meter.cents)

    async with TestClient(app) as client:
        await client.publish("/topic/readings", {"cents": 5})
        await heard.until(3)
        await client.publish("/topic/others", {"cents": 6})
        await heard.until(4)

    assert heard.all == [("outer", "note", "/topic/readings", {"cents": 5}), 5, "after", 6]


async def test_result_or_exception_of_middleware_counts_as_the_functions(
    app: Responder, heard: Heard
) -> None:
    async def guard(request: Request, call_next: CallNext) -> ReplyBody:
        heard(request.parameters)
        if request.parameters == {"cents": 1}:
            raise RuntimeError("not now")
        if request.parameters == {"cents": 2}:
            return success()
        return await call_next(request)

    async def forgetful(request: Request, call_next: CallNext) -> ReplyBody:
        if request.parameters == {"cents": 3}:
            return None  # type: ignore[return-value] # the mistake that is made
        return await call_next(request)

    @app.on("/topic/readings", middleware=[guard, forgetful])
    async def note(meter: Meter) -> None:
        heard("called")

    async with TestClient(app) as client:
        for cents in (1, 2, 3, 4):
            await client.publish("/topic/readings", {"cents": cents})
        await heard.until(5)
        told = await counts(client)

    assert heard.all[-1] == "called"
    assert heard.all.count("called") == 1
    assert (told["messages"], told["errors"]) == (4, 2)


def test_bare_name_is_a_queue() -> None:
    app = Responder("meters")

    @app.on("readings")
    async def note(reading: int) -> None: ...

    assert [one.destination for one in app._subscribers] == ["/queue/readings"]
