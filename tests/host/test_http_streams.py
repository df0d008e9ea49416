"""`POST /call/SERVICE/VERB` for lines of JSON or server-sent events, and readers of all kinds."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from nebula.broker.server.http_posts import Posted, Response, Streamed
from nebula.broker.server.server import Server
from nebula.host import http_streams
from nebula.host.http_calls import HttpCalls
from nebula.host.http_streams import EVENTS, LINES, Form, form_of
from nebula.host.pipe import AppEnd, join
from nebula.rpc.service.responder import Responder
from tests.broker.browser import Browser
from tests.cli.programs import running
from tests.host.http_house import DEADLINE, JSON, post

NDJSON = JSON | {"Accept": "application/x-ndjson"}
SSE = JSON | {"Accept": "text/event-stream"}

SHOP = """
import threading
from collections.abc import AsyncIterator, Iterator

import anyio

from nebula import Responder, VerbError

app = Responder("shop", concurrency=32)
yielded = 0
closed = threading.Event()


@app.verb
async def count(up_to: int) -> AsyncIterator[int]:
    for number in range(up_to):
        yield number


@app.verb
def words() -> Iterator[str]:
    yield "two\\nlines"
    yield "é\\u2028"


@app.verb
async def failing(after: int) -> AsyncIterator[int]:
    for number in range(after):
        yield number
    raise VerbError("sold-out", "none left", details={"left": 0}, retryable=True)


@app.verb
async def broken() -> AsyncIterator[int]:
    yield 1
    raise ZeroDivisionError


@app.verb
async def endless(size: int = 1) -> AsyncIterator[str]:
    global yielded
    yielded = 0
    try:
        while True:
            yielded += 1
            yield "x" * size
    finally:
        closed.set()


@app.verb
async def quiet() -> AsyncIterator[int]:
    try:
        yield 1
        await anyio.sleep_forever()
    finally:
        closed.set()


@app.verb
def was_closed() -> int:
    if not closed.wait(10):
        raise VerbError("open", "it is still open")
    closed.clear()
    return yielded


@app.verb
async def one() -> dict[str, int]:
    return {"a": 1}


@app.verb
async def three() -> list[int]:
    return [1, 2, 3]
"""

CONFIG = """
store = "memory"
app = ["shop:app"]

[limits]
connect_timeout = 1.0
max_http_calls = 4

[[listener]]
port = 0
http = true
calls = true
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a broker with a service whose verbs yield."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(SHOP)
    (folder / "nebula.toml").write_text(CONFIG)
    with running("broker", cwd=folder) as (_, http):
        yield urlsplit(http["url"]).port or 0


@contextmanager
def reading(
    port: int, verb: str, body: str = "", headers: Mapping[str, str] = NDJSON
) -> Iterator[http.client.HTTPResponse]:
    """The answer to a request, to be read as it comes."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
    try:
        connection.request("POST", f"/call/shop/{verb}", body, dict(headers))
        # The answer holds the socket, too.
        with connection.getresponse() as response:
            yield response
    finally:
        connection.close()


def lines_of(port: int, verb: str, body: str = "") -> list[Any]:
    with reading(port, verb, body) as response:
        assert response.status == 200
        return [json.loads(line) for line in response]


def text_of(port: int, verb: str, body: str = "") -> str:
    with reading(port, verb, body, SSE) as response:
        assert response.status == 200
        return response.read().decode()


# --- what is answered ---


def test_each_item_is_a_line(shop: int) -> None:
    assert lines_of(shop, "count", '{"up_to": 1000}') == list(range(1000))
    assert lines_of(shop, "count", '{"up_to": 0}') == []
    assert lines_of(shop, "words") == ["two\nlines", "é\u2028"]


def test_lines_say_what_they_are(shop: int) -> None:
    with reading(shop, "count", "[1]") as response:
        assert response.headers["content-type"] == "application/x-ndjson"
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["transfer-encoding"] == "chunked"


def test_each_item_is_an_event_and_so_is_the_end(shop: int) -> None:
    assert text_of(shop, "count", "[2]") == "data: 0\n\ndata: 1\n\nevent: nebula-end\ndata: null\n\n"
    assert text_of(shop, "words").startswith('data: "two\\nlines"\n\n')
    with reading(shop, "count", "[0]", SSE) as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"


def test_items_come_as_they_are_yielded(shop: int) -> None:
    with reading(shop, "quiet") as response:
        assert response.readline() == b"1\n"
    post(shop, "/call/shop/was_closed", "")


def test_http_1_0_reads_until_the_connection_ends(shop: int) -> None:
    browser = Browser(shop)
    head = "POST /call/shop/count HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    browser.socket.sendall(f"{head}Accept: application/x-ndjson\r\nContent-Length: 3\r\n\r\n[2]".encode())

    assert browser.answer()[0] == 200
    assert browser.rest() == b"0\n1\n"


def test_without_accept_it_is_one_answer(shop: int) -> None:
    assert post(shop, "/call/shop/count", "[3]") == (200, [0, 1, 2])
    assert post(shop, "/call/shop/count", "[300]")[0] == 406


def test_verb_that_does_not_stream_has_its_one_value_as_item(shop: int) -> None:
    assert lines_of(shop, "one") == [{"a": 1}]
    assert lines_of(shop, "three") == [1, 2, 3]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/call/shop/failing", "[0]", 503, "sold-out"),
        ("/call/shop/count", "{}", 422, "bad-parameters"),
        ("/call/shop/nope", "", 404, "unknown-verb"),
        ("/call/nobody/count", "", 404, "no-responder"),
        ("/call/shop", "", 400, "bad-request"),
    ],
)
@pytest.mark.parametrize("headers", [NDJSON, SSE], ids=["lines", "events"])
def test_what_fails_before_the_first_item_has_a_status_of_its_own(
    shop: int, headers: Mapping[str, str], path: str, body: str, status: int, code: str
) -> None:
    found, error = post(shop, path, body, headers)

    assert (found, error["code"]) == (status, code)


# --- errors amid a stream ---

SOLD_OUT = {"code": "sold-out", "message": "none left", "retryable": True, "details": {"left": 0}}


def test_error_amid_the_stream_is_the_last_line(shop: int) -> None:
    assert lines_of(shop, "failing", "[2]") == [0, 1, {"nebula-error": SOLD_OUT}]


def test_error_amid_the_stream_is_the_last_event(shop: int) -> None:
    *items, name, data = text_of(shop, "failing", "[2]").strip().split("\n")

    assert items == ["data: 0", "", "data: 1", ""]
    assert name == "event: nebula-error"
    assert json.loads(data.removeprefix("data: ")) == SOLD_OUT


def test_bug_of_a_handler_tells_nothing_of_it(shop: int) -> None:
    first, error = lines_of(shop, "broken")

    assert (first, error["nebula-error"]["code"]) == (1, "internal")
    assert "Zero" not in error["nebula-error"]["message"]


def test_stream_ends_with_the_time_that_was_given_for_it(shop: int) -> None:
    with reading(shop, "quiet", "", NDJSON | {"Neb-Timeout": "300"}) as response:
        first, last = [json.loads(line) for line in response]

    assert (first, last["nebula-error"]["code"]) == (1, "timeout")
    assert post(shop, "/call/shop/was_closed", "")[0] == 200


def test_service_that_is_killed_amid_is_told_when_another_one_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    words = ("broker", "--port", "0", "--http", "0", "--http-calls", "--store", "memory")
    with running(*words, cwd=tmp_path) as (process, tcp):
        assert process.stdout is not None
        port = urlsplit(json.loads(process.stdout.readline())["url"]).port or 0
        service = ("run", "shop:app", "--broker", tcp["url"])
        with running(*service, cwd=tmp_path) as (first, _), reading(port, "quiet") as response:
            assert response.readline() == b"1\n"
            first.send_signal(signal.SIGKILL)
            with running(*service, cwd=tmp_path):
                error = json.loads(response.readline())["nebula-error"]

                assert (error["code"], error["retryable"]) == ("stream-broken", True)
                assert response.read() == b""


def test_broker_that_stops_tells_the_readers(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    words = ("broker", "--port", "0", "--http", "0", "--http-calls", "--store", "memory", "--app", "shop:app")
    with running(*words, cwd=tmp_path) as (process, _):
        assert process.stdout is not None
        port = urlsplit(json.loads(process.stdout.readline())["url"]).port or 0
        with reading(port, "quiet") as response:
            assert response.readline() == b"1\n"
            process.terminate()

            # Whichever of the two is first: the service, or what answers by HTTP.
            assert json.loads(response.readline())["nebula-error"]["code"] in ("stopping", "busy")
        assert process.wait(DEADLINE) == 0


# --- readers ---


def test_reader_that_goes_closes_the_handler(shop: int) -> None:
    with reading(shop, "endless") as response:
        assert response.readline() == b'"x"\n'
    assert post(shop, "/call/shop/was_closed", "")[0] == 200
    with reading(shop, "quiet") as response:
        assert response.readline() == b"1\n"

    assert post(shop, "/call/shop/was_closed", "")[0] == 200


def test_reader_that_reads_nothing_slows_the_handler_and_is_cut_off(shop: int) -> None:
    browser = Browser(shop, receive_buffer_bytes=64 * 1024)
    body = b'{"size": 65536}'
    browser.ask(
        "/call/shop/endless", NDJSON | {"Host": "127.0.0.1", "Content-Length": str(len(body))}, "POST"
    )
    browser.socket.sendall(body)

    status, yielded = post(shop, "/call/shop/was_closed", "")

    # Credit, a piece or two, and what the system's buffers hold.
    assert (status, yielded < 250) == (200, True)


def test_reader_that_is_slow_gets_everything(shop: int) -> None:
    browser = Browser(shop, receive_buffer_bytes=4096)
    body = b"[100000]"
    browser.ask("/call/shop/count", NDJSON | {"Host": "127.0.0.1", "Content-Length": str(len(body))}, "POST")
    browser.socket.sendall(body)
    assert browser.answer()[0] == 200

    assert browser.rest().endswith(b"99999\n\r\n0\r\n\r\n")


def test_streams_count_as_calls_that_wait(shop: int) -> None:
    with reading(shop, "quiet") as first, reading(shop, "quiet") as second:
        assert (first.readline(), second.readline()) == (b"1\n", b"1\n")

        # Half of max_http_calls of one address.
        assert post(shop, "/call/shop/one", "")[0] == 503


# --- what the form is chosen by ---


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", None),
        ("*/*", None),
        ("application/json", None),
        ("text/html", None),
        ("application/x-ndjson", LINES),
        ("Application/X-NDJSON; q=0.5", LINES),
        ("text/event-stream", EVENTS),
        ("application/json, text/event-stream", None),
        ("text/event-stream, application/json", EVENTS),
        ("application/json;q=0.5, text/event-stream", EVENTS),
        ("text/event-stream;q=0, */*;q=0.1", None),
        ("text/event-stream;q=x", None),
        ("application/x-ndjson;q=0.1, text/event-stream;q=0.2, */*;q=0.1", EVENTS),
        (",;,", None),
    ],
)
def test_form_is_the_one_that_is_wanted_most(accept: str, form: Form | None) -> None:
    assert form_of(accept) is form


# --- time, in one process ---


@asynccontextmanager
async def served(app: Responder) -> AsyncIterator[HttpCalls]:
    """A broker, a service, and what answers calls by HTTP."""
    server = Server([])
    await server.start()
    calls = HttpCalls(server)
    up = [anyio.Event(), anyio.Event()]

    async def open_link() -> AppEnd:
        return join(server, "app:shop")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: app.run("stomp://localhost", link=open_link, started=up[0], grace=0))
        tasks.start_soon(lambda: calls.run(started=up[1]))
        for one in up:
            await one.wait()
        yield calls
        tasks.cancel_scope.cancel()
    await server.stop()


def asked(verb: str, accept: str) -> Posted:
    return Posted("anonymous", f"/call/shop/{verb}", "", "", b"", accept)


async def _quiet_stream(monkeypatch: pytest.MonkeyPatch, accept: str) -> tuple[bytes, bool]:
    """The first piece of a stream that says nothing, and whether its handler is closed then."""
    monkeypatch.setattr(http_streams, "_STATUS_SECONDS", 0.05)
    monkeypatch.setattr(http_streams, "_BEAT_SECONDS", 0.05)
    app = Responder("shop")
    go_on, closed = asyncio.Event(), asyncio.Event()

    @app.verb
    async def slow() -> AsyncIterator[int]:
        try:
            await go_on.wait()
            yield 1
            await anyio.sleep_forever()
        finally:
            closed.set()

    async with asyncio.timeout(DEADLINE), served(app) as calls:
        answer = await calls.reply(asked("slow", accept))
        assert isinstance(answer, Streamed)
        pieces = answer.pieces
        loop = asyncio.get_running_loop()
        loop.call_later(0.2, go_on.set)
        found = b""
        while b"1" not in found:
            found += await pieces.next()
        pieces.close()
        await closed.wait()
        return found, closed.is_set()


def test_events_have_comments_while_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    found, is_closed = asyncio.run(_quiet_stream(monkeypatch, "text/event-stream"))

    assert found.startswith(b":\n\n:\n\n")
    assert found.endswith(b"data: 1\n\n")
    assert is_closed


def test_lines_have_nothing_but_items(monkeypatch: pytest.MonkeyPatch) -> None:
    found, is_closed = asyncio.run(_quiet_stream(monkeypatch, "application/x-ndjson"))

    assert (found, is_closed) == (b"1\n", True)


def test_reader_that_goes_before_the_first_item_closes_the_handler() -> None:
    app = Responder("shop")
    begun, closed = asyncio.Event(), asyncio.Event()

    @app.verb
    async def slow() -> AsyncIterator[int]:
        begun.set()
        try:
            await anyio.sleep_forever()
            yield 1
        finally:
            closed.set()

    async def go() -> Response | Streamed | None:
        async with asyncio.timeout(DEADLINE), served(app) as calls:
            asking = asyncio.create_task(calls.reply(asked("slow", "application/x-ndjson")))
            await begun.wait()
            asking.cancel()
            await closed.wait()
            return None

    assert asyncio.run(go()) is None
