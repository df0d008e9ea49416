"""An app's thread beside a broker: how it starts, what it leaves, and how it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future

import anyio
import pytest

from nebula.broker.core.limits import Limits
from nebula.errors import ConnectionLost, ServerError
from nebula.host.apps import AppThread
from nebula.rpc.service.responder import Responder
from nebula.stomp.client import StompClient
from nebula.stomp.client.link import Link
from nebula.sync import Client
from tests.faults.served import Served, serve
from tests.host.raw_app import RawApp
from tests.own_logs import all_logs

DEADLINE = 10.0


@pytest.fixture
def broker() -> Iterator[Served]:
    with serve() as served:
        yield served


def url_of(broker: Served) -> str:
    url: str = broker.server.urls[0]
    return url


def hosted(
    broker: Served, app: Responder, ends: Future[BaseException | None] | None = None
) -> tuple[AppThread, Future[None]]:
    thread = AppThread(app, broker.server, None if ends is None else ends.set_result)
    return thread, thread.start()


def test_stopped_app_leaves_no_connection_behind() -> None:
    with serve(Limits(max_connections=1)) as broker:
        for _ in range(3):
            thread, started = hosted(broker, Responder("one"))
            started.result(DEADLINE)
            thread.stop()
            broker.ask(lambda: None)  # its loop has come round

        with Client(url_of(broker)) as client:  # there is one place
            assert client is not None


def test_stopping_tells_of_an_end_without_an_error(broker: Served) -> None:
    ends: Future[BaseException | None] = Future()
    thread, started = hosted(broker, Responder("one"), ends)
    started.result(DEADLINE)

    thread.stop()

    assert ends.result(DEADLINE) is None


def test_stop_before_the_thread_has_begun_its_loop_is_not_missed(broker: Served) -> None:
    for _ in range(50):
        begun = time.monotonic()
        thread, started = hosted(broker, Responder("one"))
        thread.stop()

        assert started.done()
        assert time.monotonic() - begun < DEADLINE / 2


def test_end_of_the_broker_ends_the_app_with_its_reason(broker: Served) -> None:
    ends: Future[BaseException | None] = Future()
    thread, started = hosted(broker, Responder("one"), ends)
    started.result(DEADLINE)

    broker.stop()

    error = ends.result(DEADLINE)
    assert isinstance(error, ServerError | ConnectionLost)
    assert "shutting down" in str(error)
    thread.stop()


def test_start_that_nobody_waits_for_any_more_is_still_a_start(broker: Served) -> None:
    ends: Future[BaseException | None] = Future()
    thread, started = hosted(broker, Responder("one"), ends)

    assert not started.cancel()

    started.result(DEADLINE)
    thread.stop()
    assert ends.result(DEADLINE) is None


def test_app_that_does_not_start_tells_only_who_started_it(broker: Served) -> None:
    ends: Future[BaseException | None] = Future()
    thread, started = hosted(broker, Responder("bad", queues=["/topic/bad["]), ends)

    error = started.exception(DEADLINE)

    thread.stop()
    assert isinstance(error, ServerError)
    assert not ends.done()


def test_app_that_does_not_end_in_time_is_left_and_logged(broker: Served) -> None:
    app = Responder("stuck")
    is_begun, may_end = threading.Event(), threading.Event()

    @app.verb
    async def block() -> None:
        is_begun.set()
        may_end.wait(DEADLINE)  # what no handler should do: it blocks the app's loop

    thread, started = hosted(broker, app)
    started.result(DEADLINE)
    with Client(url_of(broker)) as client, all_logs() as logged:
        client.send("stuck", "block")
        assert is_begun.wait(DEADLINE)
        thread.stop(timeout=0.05)
        # The broker does not wait for it.
        client.publish("/queue/others", "x")
        may_end.set()
        thread.stop()

    left = [(one["app"], one["seconds"]) for one in logged if one["event"] == "app left running"]
    assert left == [("stuck", 0.05)]


def test_app_that_stops_reading_is_ended_as_too_slow_like_any_peer() -> None:
    limits = Limits(max_body_bytes=200_000, max_outbox_bytes=1_000_000)
    may_read, is_blocked = threading.Event(), threading.Event()
    ends: Future[BaseException | None] = Future()

    async def stop_reading(link: Callable[[], Awaitable[Link]], started: anyio.Event) -> None:
        async with StompClient("stomp://localhost", link=link) as stomp, stomp.subscribe("/topic/t") as news:
            started.set()
            await anyio.sleep(0)
            is_blocked.set()
            may_read.wait(DEADLINE)  # the loop stands still
            async for _ in news:
                pass

    with serve(limits) as broker:
        thread = AppThread(RawApp(stop_reading), broker.server, ends.set_result)
        thread.start().result(DEADLINE)
        assert is_blocked.wait(DEADLINE)
        with Client(url_of(broker)) as client:
            for _ in range(60):
                client.publish("/topic/t", b"x" * 100_000, content_type="application/octet-stream")
            may_read.set()
            error = ends.result(DEADLINE)
            client.publish("/topic/t", b"x")
        thread.stop()

    assert isinstance(error, ServerError | ConnectionLost)
    assert "too slow" in str(error)
