"""What is posted: what is read of its head, and how its body is taken in."""

from __future__ import annotations

import asyncio
import ssl
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import h11
import pytest
import uvloop

from nebula.broker.core.limits import Limits
from nebula.broker.operations.certificates import make_authority
from nebula.broker.server import linger as parting
from nebula.broker.server.authenticator import Authenticator, users_line
from nebula.broker.server.http_posts import Post, Posted, Response, credentials_of, is_json, is_ours
from nebula.broker.server.server import Listener, Server
from tests.broker.browser import HEAD, TIMEOUT, Browser, HttpServed, serve_http

on_each_loop = pytest.mark.parametrize("run_loop", [uvloop.run, asyncio.run], ids=["uvloop", "asyncio"])
ELSEWHERE = "127.0.0.2"


async def echo(posted: Posted) -> Response:
    return Response(HTTPStatus.OK, posted.body, "application/json")


async def fail(posted: Posted) -> Response:
    raise ZeroDivisionError


def post(browser: Browser, body: bytes, path: str = "/echo/", **headers: str) -> int:
    """Post it, and return the status."""
    browser.ask(path, HEAD | {"Content-Length": str(len(body))} | headers, "POST")
    browser.socket.sendall(body)
    return browser.answer()[0]


def begin(browser: Browser, **headers: str) -> None:
    """Post all but one octet."""
    browser.ask("/echo/", HEAD | {"Content-Length": "10"} | headers, "POST")
    browser.socket.sendall(b"x" * 9)


def wait_for(http: HttpServed, size: int) -> None:
    """Wait until so many octets of bodies are held."""
    http.until(lambda: http.listener.posted_bytes == size)


# --- bodies ---


@on_each_loop
def test_body_is_handed_on_however_it_is_cut(run_loop: Callable[..., None]) -> None:
    with serve_http(posts={"/echo/": echo}, run_loop=run_loop) as http:
        browser = Browser(http.port)
        browser.ask("/echo/x", HEAD | {"Content-Length": "5"}, "POST")
        for octet in (b"1", b"2", b"3", b"4", b"5"):
            browser.socket.sendall(octet)

        assert browser.answer()[0] == 200
        assert browser.rest() == b"12345"
        assert http.served.ask(lambda: http.listener.posted_bytes) == 0


@on_each_loop
def test_body_that_never_comes_ends_with_its_time(run_loop: Callable[..., None]) -> None:
    with serve_http(Limits(connect_timeout=0.2), posts={"/echo/": echo}, run_loop=run_loop) as http:
        browser = Browser(http.port)
        browser.ask("/echo/x", HEAD | {"Content-Length": "5"}, "POST")

        assert browser.answer()[0] == 408


def test_only_so_many_bodies_are_taken_in_at_once() -> None:
    with serve_http(Limits(max_http_body_bytes=10), posts={"/echo/": echo}) as http:
        # 64 of the largest: 71 of these have 639 octets of 640.
        waiting = [Browser(http.port, source=f"127.0.0.{number % 3 + 1}") for number in range(71)]
        for browser in waiting:
            begin(browser)
        wait_for(http, 639)
        assert post(Browser(http.port), b"xx") == 503

        waiting[0].socket.sendall(b"x")
        assert waiting[0].answer()[0] == 200
        assert post(Browser(http.port), b"xx") == 200


def test_half_of_the_room_for_bodies_is_for_others() -> None:
    with serve_http(Limits(max_http_body_bytes=10), posts={"/echo/": echo}) as http:
        waiting = [Browser(http.port) for _ in range(35)]
        for browser in waiting:
            begin(browser)
        wait_for(http, 315)

        assert post(Browser(http.port), b"x" * 6) == 503
        assert post(Browser(http.port, source=ELSEWHERE), b"x" * 6) == 200
        waiting[0].socket.sendall(b"x")
        assert waiting[0].answer()[0] == 200
        assert post(Browser(http.port), b"x" * 6) == 200


def test_room_for_bodies_is_shared_out_by_login(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text(f"[users]\n{users_line('alice', 'a')}\n{users_line('hog', 'h')}\n")
    alice, hog = ({"Authorization": f"Basic {b64encode(who).decode()}"} for who in (b"alice:a", b"hog:h"))
    authenticator = Authenticator(users=users)
    limits = Limits(max_http_body_bytes=10)
    with serve_http(limits, posts={"/echo/": echo}, authenticator=authenticator) as http:
        waiting = [Browser(http.port, source=f"127.0.0.{number + 1}") for number in range(35)]
        for browser in waiting:
            begin(browser, **hog)
        wait_for(http, 315)

        assert post(Browser(http.port), b"x" * 6, **hog) == 503
        assert post(Browser(http.port), b"x" * 6, **alice) == 200


@pytest.mark.parametrize(("size", "status"), [(9, 200), (10, 200), (11, 413)])
def test_largest_body_that_may_be_is_taken(size: int, status: int) -> None:
    with serve_http(Limits(max_http_body_bytes=10), posts={"/echo/": echo}) as http:
        assert post(Browser(http.port), b"x" * size) == status


def test_bug_behind_a_post_is_an_internal_error() -> None:
    with serve_http(posts={"/fail/": fail}) as http:
        assert post(Browser(http.port), b"1", "/fail/") == 500


def test_who_goes_before_it_is_answered_leaves_nothing() -> None:
    with serve_http(posts={"/echo/": echo}) as http:
        browser = Browser(http.port)
        begin(browser)
        wait_for(http, 9)
        browser.socket.close()

        wait_for(http, 0)


class Waiting:
    """What is posted waits for ever, or until who has posted it goes."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.withdrawn = threading.Event()

    async def __call__(self, posted: Posted) -> Response:
        self.began.release()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.withdrawn.set()
        raise AssertionError("it waits for ever")


def wait_at(http: HttpServed, waiting: Waiting, source: str = "", **headers: str) -> Browser:
    """Who has posted, and waits."""
    browser = Browser(http.port, source=source)
    browser.ask("/wait/", HEAD | {"Content-Length": "4"} | headers, "POST")
    browser.socket.sendall(b"body")
    assert waiting.began.acquire(timeout=TIMEOUT)
    return browser


@on_each_loop
def test_octets_behind_a_body_are_dropped_and_a_hang_up_is_noticed(run_loop: Callable[..., None]) -> None:
    waiting = Waiting()
    with serve_http(posts={"/wait/": waiting}, run_loop=run_loop) as http:
        browser = wait_at(http, waiting)
        browser.socket.sendall(bytes(20 << 20))
        connection: Any
        (connection,) = http.listener._asking

        assert http.served.ask(lambda: len(connection._http.trailing_data[0])) <= 256 * 1024
        browser.socket.close()
        assert waiting.withdrawn.wait(TIMEOUT)


def test_calls_that_wait_keep_nobody_out_but_other_calls() -> None:
    waiting = Waiting()
    limits = Limits(max_http_requests=2, max_http_calls=4)  # half of them of one address
    with serve_http(limits, posts={"/wait/": waiting, "/echo/": echo}) as http:
        held = [wait_at(http, waiting) for _ in range(2)]
        assert post(Browser(http.port), b"1") == 503
        http.until(lambda: not http.listener.admission)
        probe = Browser(http.port)
        probe.ask("/", HEAD)
        assert probe.answer()[0] == 404
        probe.socket.close()

        held += [wait_at(http, waiting, source="127.0.0.2")]
        held.pop(0).socket.close()
        http.until(lambda: len(http.listener.calling) == 2 and not http.listener.admission)
        assert post(Browser(http.port), b"1") == 200


def test_principal_has_half_of_the_places_for_calls_from_wherever_it_comes(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text(f"[users]\n{users_line('alice', 'a')}\n{users_line('hog', 'h')}\n")
    alice, hog = ({"Authorization": f"Basic {b64encode(who).decode()}"} for who in (b"alice:a", b"hog:h"))
    waiting, authenticator = Waiting(), Authenticator(users=users)
    posts: dict[str, Post] = {"/wait/": waiting, "/echo/": echo}
    with serve_http(Limits(max_http_calls=4), posts=posts, authenticator=authenticator) as http:
        held = [wait_at(http, waiting, f"127.0.0.{number}", **hog) for number in (2, 3)]
        assert post(Browser(http.port, source="127.0.0.4"), b"1", **hog) == 503
        assert post(Browser(http.port), b"1", **alice) == 200

        held.pop().socket.close()
        http.until(lambda: len(http.listener.calling) == 1)
        assert post(Browser(http.port), b"1", **hog) == 200


CHUNKS = 20_000
HEAD_OF_CHUNKS = (
    b"POST /echo/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


class Reading:
    """Counts what h11 makes of what comes, by turns of the loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: Counter[int] = Counter()
        self._turn = 0
        next_event = h11.Connection.next_event

        def counted(connection: h11.Connection) -> object:
            self.events[self._turn] += 1
            return next_event(connection)

        monkeypatch.setattr(h11.Connection, "next_event", counted)

    async def count_turns(self) -> None:
        while True:
            self._turn += 1
            await asyncio.sleep(0)


def test_very_many_chunks_of_one_read_take_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    with serve_http(posts={"/echo/": echo}) as http:
        counting = asyncio.run_coroutine_threadsafe(reading.count_turns(), http.served.server.runtime.loop)
        browser = Browser(http.port)
        browser.socket.sendall(HEAD_OF_CHUNKS + b"1\r\nx\r\n" * CHUNKS + b"0\r\n\r\n")

        assert browser.answer()[0] == 200
        assert browser.rest() == b"x" * CHUNKS
        counting.cancel()
    # What is left of one read and the beginning of the next one may fall into one turn.
    assert max(reading.events.values()) <= 2 * 400


def test_body_of_a_stranger_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    with serve_http(posts={"/echo/": echo}, authenticator=Authenticator()) as http:
        browser = Browser(http.port)
        browser.socket.sendall(HEAD_OF_CHUNKS + b"1\r\nx\r\n" * 1000)

        assert browser.answer()[0] == 401
    assert reading.events.total() == 1


def test_chunks_that_are_none_are_refused() -> None:
    with serve_http(posts={"/echo/": echo}) as http:
        browser = Browser(http.port)
        browser.socket.sendall(HEAD_OF_CHUNKS + b"1\r\nx\r\nnonsense\r\n")

        assert browser.answer()[0] == 400
        assert http.served.ask(lambda: http.listener.posted_bytes) == 0


# --- answers ---


async def repeat(posted: Posted) -> Response:
    """As many megabytes as it says."""
    return Response(HTTPStatus.OK, bytes(int(posted.body) << 20))


def ask_for(
    http: HttpServed, megabytes: int, tls: ssl.SSLContext | None = None, *, source: str = ""
) -> Browser:
    """Who has asked for a large answer, and reads nothing yet."""
    browser = Browser(http.port, receive_buffer_bytes=4096, source=source)
    if tls is not None:
        browser.socket = tls.wrap_socket(browser.socket, server_hostname="127.0.0.1")
    browser.ask("/large/", HEAD | {"Content-Length": str(len(str(megabytes)))}, "POST")
    browser.socket.sendall(str(megabytes).encode())
    return browser


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server, and of its clients."""
    folder = tmp_path_factory.mktemp("tls")
    authority = make_authority("site", days=1)
    authority.certificate.write(folder, "ca")
    authority.issue_server(["127.0.0.1"], days=1).write(folder, "server")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.pem", folder / "server.key")
    return server, ssl.create_default_context(cafile=folder / "ca.pem")


@on_each_loop
@pytest.mark.parametrize("is_secure", [False, True], ids=["tcp", "tls"])
def test_answer_waits_for_who_reads_late(
    run_loop: Callable[..., None],
    is_secure: bool,
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parting, "LINGER_SECONDS", 0.01)
    monkeypatch.setattr(parting, "TLS_LINGER_SECONDS", 0.01)
    server, client = contexts if is_secure else (None, None)
    with serve_http(posts={"/large/": repeat}, tls=server, run_loop=run_loop) as http:
        late = ask_for(http, 16, client)
        http.until(lambda: http.listener.unread_bytes > 0)
        # Who has all, and does not go, is parted from: meanwhile so would be who has not.
        other = ask_for(http, 0, client)
        assert other.answer()[0] == 200
        http.until(lambda: len(http.listener._asking) == 1)

        # The end of its answer may wait in a TLS transport that we do not see.
        monkeypatch.setattr(parting, "TLS_LINGER_SECONDS", 60.0)
        assert late.answer()[0] == 200
        assert len(late.rest()) == 16 << 20


@on_each_loop
def test_who_reads_nothing_of_an_answer_is_cut_off(run_loop: Callable[..., None]) -> None:
    with serve_http(Limits(connect_timeout=0.7), posts={"/large/": repeat}, run_loop=run_loop) as http:
        late = ask_for(http, 16)
        http.until(lambda: http.listener.unread_bytes > 0)

        http.until(lambda: not http.listener._asking)
        assert len(late.rest()) < 16 << 20


def test_who_holds_most_of_what_is_not_read_gives_way() -> None:
    with serve_http(Limits(max_http_unread_bytes=16 << 20), posts={"/large/": repeat}) as http:
        greedy = ask_for(http, 32)
        http.until(lambda: http.listener.unread_bytes > 16 << 20)  # alone it is in nobody's way
        modest = ask_for(http, 12)

        assert modest.answer()[0] == 200
        assert len(modest.rest()) == 12 << 20
        assert len(greedy.rest()) < 32 << 20


def test_many_small_answers_of_one_address_give_way_before_a_larger_one_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What was handed to the system is lost if it is not read in this time, and it is read late here.
    monkeypatch.setattr(parting, "LINGER_SECONDS", 60.0)
    with serve_http(Limits(max_http_unread_bytes=16 << 20), posts={"/large/": repeat}) as http:
        greedy = [ask_for(http, 5) for _ in range(3)]
        http.until(lambda: http.listener.unread_bytes > 15 << 20)
        modest = ask_for(http, 8, source=ELSEWHERE)

        assert modest.answer()[0] == 200
        assert len(modest.rest()) == 8 << 20
        assert sum(len(each.rest()) < 5 << 20 for each in greedy) == 2


# --- heads ---


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        ("Basic YTpi", ("a", "b")),
        ("basic YTpiOmM=", ("a", "b:c")),
        ("Basic w6k6w6k=", ("é", "é")),
        ("Bearer a.b.c", (None, "a.b.c")),
        ("Basic YQ==", None),
        ("Basic /////w==", None),
        ("Basic YTpi!", None),
        ("Bearer", None),
        ("Bearer ", None),
        ("", None),
    ],
)
def test_authorization_is_read(authorization: str, expected: tuple[str | None, str] | None) -> None:
    assert credentials_of(authorization) == expected


@pytest.mark.parametrize(
    ("host", "is_so"),
    [
        ("localhost", True),
        ("LOCALHOST:80", True),
        ("127.0.0.1:61680", True),
        ("192.0.2.1", True),
        ("[::1]:61680", True),
        ("inside.example", True),
        ("api.example", True),
        ("shop.example", True),
        ("shop.example.evil.example", False),
        ("evil.example", False),
        ("", False),
        ("[", False),
    ],
)
def test_host_is_ours_by_address_or_by_a_name_that_is_listed(host: str, is_so: bool) -> None:
    listener = Listener(
        "localhost", http=True, hosts=("API.example", "inside.example"), origins=("https://shop.example",)
    )

    assert is_ours(host, listener) == is_so


@pytest.mark.parametrize(
    ("content_type", "is_so"),
    [
        ("application/json", True),
        ('Application/JSON ; charset="utf-8"', True),
        ("application/json;", True),
        ("application/json; charset=utf-16", False),
        ("application/jsonp", False),
        ("text/json", False),
        ("", False),
    ],
)
def test_content_type_is_json(content_type: str, is_so: bool) -> None:
    assert is_json(content_type) == is_so


@pytest.mark.timeout(20)
def test_refused_login_of_a_request_is_counted() -> None:
    async def ask() -> tuple[bytes, int]:
        listener = Listener("127.0.0.1", 0, http=True, calls=True, authenticator=Authenticator())
        server = Server([listener])
        server.posts["/echo/"] = echo
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.urls[0].rpartition(":")[2]))
        head = b"POST /echo/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        writer.write(head + b"Content-Length: 1\r\n\r\n1")
        status = await reader.readline()
        writer.close()
        await server.stop()
        return status, server.runtime.events.counts["login refused"]

    status, count = asyncio.run(ask())

    assert b" 401 " in status
    assert count == 1
