"""Answers to GETs that come in pieces: in order, as fast as they are read, and cut off where they fail."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus

import pytest
import uvloop

from nebula.broker.core.limits import Limits
from nebula.broker.server.http_posts import CutOff, Posted, Response, Streamed
from tests.broker.browser import TIMEOUT, serve_http

on_each_loop = pytest.mark.parametrize("run_loop", [uvloop.run, asyncio.run], ids=["uvloop", "asyncio"])


class Source:
    """So many pieces; the last of them may be an error."""

    def __init__(self, pieces: int, size: int, error: Exception | None = None) -> None:
        self.left, self._size, self._error = pieces, size, error
        self.made = 0
        self.closed = threading.Event()
        self.posted: Posted | None = None

    async def answer(self, posted: Posted) -> Streamed | Response:
        self.posted = posted
        if posted.query == "no":
            return Response(HTTPStatus.NOT_FOUND, b"no\n")
        return Streamed("text/csv", self, [("x-more", "1")])

    async def next(self) -> bytes:
        await asyncio.sleep(0)
        if not self.left:
            if self._error is not None:
                raise self._error
            return b""
        self.left -= 1
        self.made += 1
        return bytes([self.made % 256]) * self._size

    def failed(self, error: Response) -> None:
        pass

    def close(self) -> None:
        self.closed.set()


def _get(port: int, path: str = "/jobs/x", method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    connection.request(method, path, headers=headers)
    return connection.getresponse()


@on_each_loop
def test_pieces_come_in_order_and_have_an_end(run_loop: Callable[..., None]) -> None:
    source = Source(100, 100_000)
    with serve_http(reads={"/jobs/": source.answer}, run_loop=run_loop) as served:
        response = _get(served.port, "/jobs/x?a=b", Accept="text/csv")
        body = response.read()

        assert (response.status, response.headers["content-type"]) == (200, "text/csv")
        assert (response.headers["transfer-encoding"], response.headers["x-more"]) == ("chunked", "1")
        assert body == b"".join(bytes([number]) * 100_000 for number in range(1, 101))
        assert source.closed.wait(TIMEOUT)
    assert source.posted is not None
    assert (source.posted.path, source.posted.query, source.posted.accept) == ("/jobs/x", "a=b", "text/csv")


@on_each_loop
def test_nothing_is_made_that_nobody_reads(run_loop: Callable[..., None]) -> None:
    source = Source(1000, 100_000)
    limits = Limits(connect_timeout=1.0)
    with serve_http(limits, reads={"/jobs/": source.answer}, run_loop=run_loop) as served:
        raw = socket.create_connection(("127.0.0.1", served.port), TIMEOUT)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.sendall(b"GET /jobs/x HTTP/1.1\r\nHost: localhost\r\n\r\n")
        # Who does not read within its time is cut off.
        assert source.closed.wait(TIMEOUT)
        raw.close()

    assert source.made < 200


@on_each_loop
@pytest.mark.parametrize("error", [CutOff("the service is gone"), ZeroDivisionError("a")])
def test_error_in_the_midst_cuts_the_answer_off(error: Exception, run_loop: Callable[..., None]) -> None:
    source = Source(2, 10, error)
    with serve_http(reads={"/jobs/": source.answer}, run_loop=run_loop) as served:
        response = _get(served.port)
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            response.read()

        assert source.closed.wait(TIMEOUT)


@on_each_loop
def test_whoever_hangs_up_ends_it(run_loop: Callable[..., None]) -> None:
    source = Source(1_000_000, 1000)
    with serve_http(reads={"/jobs/": source.answer}, run_loop=run_loop) as served:
        raw = socket.create_connection(("127.0.0.1", served.port), TIMEOUT)
        raw.sendall(b"GET /jobs/x HTTP/1.1\r\nHost: localhost\r\n\r\n")
        raw.recv(1000)
        raw.close()

        assert source.closed.wait(TIMEOUT)
        served.until(lambda: not served.listener.calling)


def test_reader_of_http_1_0_gets_it_without_chunks() -> None:
    source = Source(2, 5)
    with serve_http(reads={"/jobs/": source.answer}) as served:
        raw = socket.create_connection(("127.0.0.1", served.port), TIMEOUT)
        raw.sendall(b"GET /jobs/x HTTP/1.0\r\nHost: localhost\r\n\r\n")
        octets = b"".join(iter(lambda: raw.recv(1000), b""))
        raw.close()

    assert octets.partition(b"\r\n\r\n")[2] == b"\1\1\1\1\1\2\2\2\2\2"


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", "/jobs/x", {}, 405),
        ("HEAD", "/jobs/x", {}, 405),
        ("GET", "/jobs/x?no", {}, 404),
        ("GET", "/jobs/x", {"Origin": "https://evil.example"}, 403),
        ("GET", "/jobs/x", {"Host": "evil.example"}, 421),
    ],
)
def test_what_may_not_be_got(method: str, path: str, headers: dict[str, str], status: int) -> None:
    with serve_http(reads={"/jobs/": Source(1, 1).answer}) as served:
        assert _get(served.port, path, method, **headers).status == status
