"""Clients and job handles against services and brokers that reply with nonsense."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from anyio import to_thread

from nebula import sync
from nebula.errors import (
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    NebulaError,
    Refused,
    Rejected,
    RemoteError,
    ServerError,
)
from nebula.rpc.client.client import Client
from nebula.rpc.errors import UnexpectedReply
from nebula.rpc.service.responder import Responder
from tests.own_logs import own_logs
from tests.stomp.faulty import FaultyPeer, mad_broker, quiet
from tests.stomp.peer import receipt_of

pytestmark = pytest.mark.anyio

_ULID = "01JDB3QK6M0000000000000000"


def reply(request: str, body: str | bytes, headers: str = "content-type:application/json\n") -> bytes:
    """A MESSAGE to the inbox, which is subscription 1, that answers the request."""
    found = re.search("^neb-reply-id:(.*)$", request, re.MULTILINE)
    assert found, request
    return message(f"neb-in-reply-to:{found[1]}\n{headers}", body)


def message(headers: str, body: str | bytes) -> bytes:
    octets = body.encode() if isinstance(body, str) else body
    head = f"MESSAGE\nsubscription:1\nmessage-id:1\ndestination:/queue/inbox\ncontent-length:{len(octets)}\n"
    return f"{head}{headers}\n".encode() + octets + b"\0"


Answer = Callable[[FaultyPeer, str], Awaitable[None]]


def answering(answer: Answer) -> Callable[[FaultyPeer], Awaitable[None]]:
    """A broker that opens an inbox, then has `answer` reply to each SEND until the client leaves."""

    async def script(peer: FaultyPeer) -> None:
        await peer.accept("1.2", "server:RabbitMQ/4\n")
        await peer.confirm()
        while (frame := await peer.hear()).startswith("SEND\n"):
            await answer(peer, frame)
        if frame.startswith("DISCONNECT\n"):
            await peer.say(f"RECEIPT\nreceipt-id:{receipt_of(frame)}\n\n^@")
        await peer.wait_closed()

    return script


async def failure_of(work: Callable[[Client], Awaitable[object]], answer: Answer) -> NebulaError:
    """The error that `work` raises with a client whose requests all get this reply."""
    async with mad_broker(answering(answer)) as url, Client(url, timeout=5) as client:
        with pytest.raises(NebulaError) as caught:
            await work(client)
    return caught.value


async def call(client: Client) -> Any:
    return await client.call("shop", "quote", result=int)


# --- calls ---


async def test_replies_to_unknown_calls_and_second_replies_change_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def answer(peer: FaultyPeer, request: str) -> None:
        await peer.say(message("", "boo"))
        await peer.say(message("neb-in-reply-to:\n", "{}"))
        await peer.say(message("neb-in-reply-to:somebody-else\n", '{"verb":"success","parameters":1}'))
        await peer.say(reply(request, '{"verb":"quoteresponse","parameters":5}'))
        await peer.say(reply(request, '{"verb":"quoteresponse","parameters":6}'))
        await peer.say(reply(request, '{"verb":"error","description":"changed my mind"}'))

    with quiet(caplog):
        async with mad_broker(answering(answer)) as url, Client(url, timeout=5) as client:
            assert [await call(client) for _ in range(3)] == [5, 5, 5]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ("", ""),
        ("not JSON", "content-type:application/json\n"),
        (b"\xff\xfe\x00", "content-type:application/json\n"),
        (b"\xff\xfe\x00", "content-type:text/plain;charset=undefined\n"),
        (b"\xff\xfe\x00", "content-type:text/plain;charset=zip\n"),
        ("[" * 5000, "content-type:application/json\n"),
        ("{}", "content-type:application/json\n"),
        ("null", "content-type:application/json\n"),
        ('{"verb":"quoteresponse"}', "content-type:application/json\n"),
        ('{"verb":7,"parameters":{"verb":[]}}', "content-type:application/json\n"),
        ('{"verb":"quoteresponse","parameters":"five"}', "content-type:application/json\n"),
        ('{"verb":"quoteresponse","parameters":1e999}', "content-type:application/json\n"),
        ("verb: quoteresponse\nparameters: a: b", "content-type:text/plain\n"),
        (b"\0" * 100, "content-type:avro/binary\n"),
    ],
)
async def test_answer_that_is_no_value_is_an_unexpected_reply(body: str | bytes, headers: str) -> None:
    async def answer(peer: FaultyPeer, request: str) -> None:
        await peer.say(reply(request, body, headers))

    assert isinstance(await failure_of(call, answer), UnexpectedReply)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('{"verb":"error"}', "error"),
        ('{"verb":"error","parameters":{"code":7,"message":[],"retryable":"yes"}}', "error"),
        ('{"verb":"error","parameters":[1],"description":{"a":1}}', "error"),
        ('{"verb":"error","parameters":{"code":"sold-out","message":null}}', "sold-out"),
    ],
)
async def test_error_of_any_shape_is_a_remote_error(body: str, code: str) -> None:
    async def answer(peer: FaultyPeer, request: str) -> None:
        await peer.say(reply(request, body))

    error = await failure_of(call, answer)

    assert isinstance(error, RemoteError)
    assert (error.code, error.retryable) == (code, False)


async def test_silence_is_a_call_timeout_and_the_late_reply_does_no_harm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    requests: list[str] = []

    async def answer(peer: FaultyPeer, request: str) -> None:
        requests.append(request)
        if len(requests) == 2:
            await peer.say(reply(requests[0], "1"))
            await peer.say(reply(requests[1], "2"))

    with quiet(caplog):
        async with mad_broker(answering(answer)) as url, Client(url) as client:
            with pytest.raises(CallTimeout):
                await client.call("shop", "quote", timeout=0.02)
            assert await client.call("shop", "quote") == 2


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (b"ERROR\nmessage:no\n\n\0", ServerError),
        (b"RECEIPT\nreceipt-id:made-up\n\n\0", ConnectionLost),
        (b"MESSAGE\n\n\0", ConnectionLost),
        (b"\xff\xff\n", ConnectionLost),
    ],
)
async def test_fault_of_the_broker_ends_every_call_in_flight_and_each_later_one(
    said: bytes, kind: type[NebulaError], caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []
    told: list[type[BaseException]] = []

    async def answer(peer: FaultyPeer, request: str) -> None:
        heard.append(request)
        if len(heard) == 3:
            await peer.say(said)
            await peer.wait_closed()

    async def script(peer: FaultyPeer) -> None:
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await answering(answer)(peer)

    async def fail(client: Client) -> None:
        with pytest.raises(NebulaError) as caught:
            await call(client)
        told.append(type(caught.value))

    with quiet(caplog):
        async with mad_broker(script) as url, Client(url, reconnect=False) as client:
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(fail, client)
            for _ in range(2):
                await fail(client)

    assert told == [kind] * 5


async def test_verdict_of_no_sense_is_a_rejection() -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.accept("1.2", "server:nebula/0\n")
        await peer.confirm()
        await peer.confirm("disposition:perhaps\n")
        await peer.part()

    async with mad_broker(script) as url, Client(url) as client:
        with pytest.raises(Rejected, match="perhaps"):
            await client.call("shop", "quote")


# --- the inbox ---


async def test_broker_that_never_gives_an_inbox_is_refused_in_time(caplog: pytest.LogCaptureFixture) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.accept()
        assert (await peer.hear()).startswith("SUBSCRIBE\n")
        assert (await peer.hear()).startswith("UNSUBSCRIBE\n")
        await peer.part()

    with quiet(caplog):
        async with mad_broker(script) as url:
            with pytest.raises(Refused, match="unanswered"):
                async with Client(url, timeout=0.05):
                    raise AssertionError


async def test_service_whose_queue_the_broker_never_gives_ends_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("nebula.rpc.service.request_consumer._LISTEN_SECONDS", 0.05)

    async def script(peer: FaultyPeer) -> None:
        await peer.accept()
        assert (await peer.hear()).startswith("SUBSCRIBE\n")
        assert (await peer.hear()).startswith("UNSUBSCRIBE\n")
        await peer.part()

    with quiet(caplog):
        async with mad_broker(script) as url:
            with pytest.raises(Refused, match="unanswered: SUBSCRIBE to /queue/shop"):
                await Responder("shop").run(url)


# --- jobs ---


async def start(client: Client) -> Any:
    return await client.start("shop", "report")


async def status(client: Client) -> Any:
    return await client.job(f"shop/{_ULID}").status()


async def log(client: Client) -> Any:
    return await client.job(f"shop/{_ULID}").log()


async def cancel(client: Client) -> Any:
    return await client.job(f"shop/{_ULID}").cancel()


@pytest.mark.parametrize("work", [start, status, log, cancel])
@pytest.mark.parametrize(
    "value",
    [
        "null",
        "7",
        '"done"',
        "[1]",
        "{}",
        '{"job":7,"seq":[],"state":"done","lines":7}',
        '{"job":"no id","lines":[7],"seq":"x"}',
        '{"job":"no id","lines":[{}],"seq":1e999,"state":[]}',
        '{"job":null,"via":7,"lines":null,"seq":null,"state":null}',
    ],
)
async def test_reply_without_a_job_is_an_unexpected_reply(
    work: Callable[[Client], Awaitable[Any]], value: str
) -> None:
    async def answer(peer: FaultyPeer, request: str) -> None:
        await peer.say(reply(request, f'{{"verb":"response","parameters":{value}}}'))

    assert isinstance(await failure_of(work, answer), UnexpectedReply)


async def test_elsewhere_without_a_place_is_an_unexpected_reply() -> None:
    async def answer(peer: FaultyPeer, request: str) -> None:
        await peer.say(
            reply(request, '{"verb":"error","parameters":{"code":"elsewhere","details":{"at":"home"}}}')
        )

    assert isinstance(await failure_of(status, answer), UnexpectedReply)


async def test_watcher_whose_subscription_is_never_answered_is_refused_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nebula.rpc.jobs.handle._LISTEN_SECONDS", 0.05)

    async def script(peer: FaultyPeer) -> None:
        await peer.accept()
        await peer.confirm()
        assert (await peer.hear()).startswith("SUBSCRIBE\n")
        assert (await peer.hear()).startswith("UNSUBSCRIBE\n")
        await peer.part()

    async with mad_broker(script) as url, Client(url) as client:
        with pytest.raises(Refused, match="unanswered"):
            await client.job(f"shop/{_ULID}").wait()


# --- without await ---


async def test_sync_client_raises_the_same_errors() -> None:
    async def answer(peer: FaultyPeer, request: str) -> None:
        await peer.say(reply(request, '{"verb":"quoteresponse","parameters":"five"}'))
        await peer.say(b"\0")

    def use(url: str) -> list[type[BaseException]]:
        told: list[type[BaseException]] = []
        with sync.Client(url, timeout=5) as client:
            for _ in range(2):
                try:
                    client.call("shop", "quote", result=int)
                except NebulaError as error:
                    told.append(type(error))
        return told

    async def script(peer: FaultyPeer) -> None:
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await answering(answer)(peer)

    async with mad_broker(script) as url:
        assert await to_thread.run_sync(use, url) == [UnexpectedReply, ConnectionLost]


async def test_sync_client_of_a_broker_that_is_absent_says_so_and_ends_its_thread() -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.hear()
        await peer.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await peer.wait_closed()

    def use(url: str) -> None:
        with pytest.raises(ConnectFailed, match="unknown command"), sync.Client(url):
            raise AssertionError

    with own_logs() as logged:
        async with mad_broker(script) as url:
            await to_thread.run_sync(use, url)

    assert logged == []
