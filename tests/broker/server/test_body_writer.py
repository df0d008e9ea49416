"""Answers that come piece by piece: how they end, and who is told of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
import uvloop

from nebula.broker.core.limits import Limits
from nebula.broker.server.http import HttpListener
from nebula.broker.server.http_connection import HttpConnection
from nebula.broker.server.http_posts import Post, Posted, Response, Streamed
from tests.broker.browser import TIMEOUT, Browser, HttpServed, serve_http

on_each_loop = pytest.mark.parametrize("run_loop", [uvloop.run, asyncio.run], ids=["uvloop", "asyncio"])
HEAD = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": "0"}


class Source:
    """Pieces of one size, without end or so many; then perhaps a bug, or nothing for ever."""

    def __init__(self, size: int = 1, count: int | None = None, then: str = "end") -> None:
        self.piece = b"x" * size
        self.left = count
        self.then = then
        self.made = 0
        self.closed = threading.Event()

    async def next(self) -> bytes:
        await asyncio.sleep(0)
        if self.left is None or self.made < self.left:
            self.made += 1
            return self.piece
        if self.then == "bug":
            raise ZeroDivisionError
        if self.then == "wait":
            await asyncio.Event().wait()
        return b""

    def failed(self, error: Response) -> bytes:
        return b"failed: " + error.body

    def close(self) -> None:
        self.closed.set()

    def post(self) -> Post:
        async def answer(posted: Posted) -> Streamed:
            return Streamed("text/plain", self)

        return answer


def ask(http: HttpServed, *, receive_buffer_bytes: int | None = None) -> Browser:
    browser = Browser(http.port, receive_buffer_bytes=receive_buffer_bytes)
    browser.ask("/s/", HEAD, "POST")
    return browser


def body_of(browser: Browser) -> bytes:
    """The body, without the frames of its chunks; empty if the end is missing."""
    assert browser.answer()[0] == 200
    parts = browser.rest().split(b"\r\n")
    return b"".join(parts[1::2]) if parts[-3:] == [b"0", b"", b""] else b""


@on_each_loop
def test_pieces_come_in_order_and_have_an_end(run_loop: Callable[..., None]) -> None:
    source = Source(size=200_000, count=30)
    with serve_http(posts={"/s/": source.post()}, run_loop=run_loop) as http:
        assert body_of(ask(http)) == source.piece * 30
        assert source.closed.wait(TIMEOUT)


def test_reader_that_keeps_up_has_nobody_else_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []
    relieve = HttpListener.relieve

    def counted(listener: HttpListener) -> None:
        looks.append(listener)
        relieve(listener)

    monkeypatch.setattr(HttpListener, "relieve", counted)
    source = Source(count=1000)
    with serve_http(posts={"/s/": source.post()}) as http:
        assert body_of(ask(http)) == b"x" * 1000

    assert len(looks) < 10


def test_bug_in_the_midst_is_the_last_piece() -> None:
    source = Source(count=2, then="bug")
    with serve_http(posts={"/s/": source.post()}) as http:
        body = body_of(ask(http))

    assert body.startswith(b"xxfailed: ")
    assert b'"internal"' in body


@pytest.mark.parametrize("size", [1, 8_000_000], ids=["between two pieces", "amid a piece"])
@on_each_loop
def test_reader_whose_proof_ends_is_told_so_last(run_loop: Callable[..., None], size: int) -> None:
    source = Source(size, 1, then="wait")
    with serve_http(posts={"/s/": source.post()}, run_loop=run_loop) as http:
        browser = ask(http, receive_buffer_bytes=4096)
        assert browser.answer()[0] == 200
        http.until(lambda: source.made == 1)

        def end() -> None:
            (connection,) = http.listener._asking
            assert isinstance(connection, HttpConnection)
            connection.end_for("expired")
            connection.end_for("again")

        http.served.ask(end)
        rest = browser.rest()

        assert rest.count(b"x") == size
        assert rest.count(b"not-admitted") == 1
        assert rest.endswith(b"\r\n0\r\n\r\n")
        assert source.closed.wait(TIMEOUT)


@on_each_loop
def test_reader_that_goes_closes_the_source(run_loop: Callable[..., None]) -> None:
    source = Source(count=1, then="wait")
    with serve_http(posts={"/s/": source.post()}, run_loop=run_loop) as http:
        browser = ask(http)
        assert browser.answer()[0] == 200
        browser.socket.close()

        assert source.closed.wait(TIMEOUT)
        http.until(lambda: not http.listener._asking)


@on_each_loop
def test_reader_that_reads_nothing_holds_one_piece_and_is_cut_off(run_loop: Callable[..., None]) -> None:
    source = Source(size=100_000)
    with serve_http(Limits(connect_timeout=0.3), posts={"/s/": source.post()}, run_loop=run_loop) as http:
        ask(http, receive_buffer_bytes=4096)

        assert source.closed.wait(TIMEOUT)
        # The rest is in the system's buffers.
        assert source.made < 100
        http.until(lambda: not http.listener._asking)


def test_readers_that_hold_too_much_together_give_way() -> None:
    source = Source(size=5_000_000)
    with serve_http(Limits(max_http_unread_bytes=8_000_000), posts={"/s/": source.post()}) as http:
        ask(http, receive_buffer_bytes=4096)
        ask(http, receive_buffer_bytes=4096)

        assert source.closed.wait(TIMEOUT)
        assert http.served.ask(lambda: http.listener.unread_bytes) <= 8_000_000
