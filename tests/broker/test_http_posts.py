"""What is posted: what is read of its head, and how its body is taken in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus

import pytest
import uvloop

from nebula.broker.http_posts import Answer, Posted, credentials_of, is_json, is_ours
from nebula.broker.limits import Limits
from nebula.broker.listeners import Listener
from tests.broker.browser import Browser, HttpServed, serve_http

on_each_loop = pytest.mark.parametrize("run_loop", [uvloop.run, asyncio.run], ids=["uvloop", "asyncio"])
HEAD = {"Host": "127.0.0.1", "Content-Type": "application/json"}


async def echo(posted: Posted) -> Answer:
    return Answer(HTTPStatus.OK, posted.body, "application/json")


async def fail(posted: Posted) -> Answer:
    raise ZeroDivisionError


def post(browser: Browser, body: bytes, path: str = "/echo/", **headers: str) -> int:
    """Post it, and return the status."""
    browser.ask(path, HEAD | {"Content-Length": str(len(body))} | headers, "POST")
    browser.socket.sendall(body)
    return browser.answer()[0]


def begin(browser: Browser) -> None:
    """Post all but one octet."""
    browser.ask("/echo/", HEAD | {"Content-Length": "10"}, "POST")
    browser.socket.sendall(b"x" * 9)


def wait_for(http: HttpServed, size: int) -> None:
    """Wait until so many octets of bodies are held."""
    while http.served.ask(lambda: http.listener.posted_bytes) != size:
        pass


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
        waiting = [Browser(http.port) for _ in range(71)]
        for browser in waiting:
            begin(browser)
        wait_for(http, 639)
        assert post(Browser(http.port), b"xx") == 503

        waiting[0].socket.sendall(b"x")
        assert waiting[0].answer()[0] == 200
        assert post(Browser(http.port), b"xx") == 200


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
