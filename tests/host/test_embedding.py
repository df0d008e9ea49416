"""`nebula.embedded`: a broker and its apps for as long as a block runs, from asyncio and from trio."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator

import anyio
import pytest

import nebula
from nebula.broker.core.limits import Limits
from nebula.errors import NoResponder, RemoteError, ServerError
from nebula.host.pipe import HIGH_WATER_BYTES, AppEnd
from nebula.stomp.client import StompClient
from nebula.stomp.client.link import Link
from tests.host.raw_app import RawApp
from tests.own_logs import all_logs
from tests.ports import free_port

pytestmark = pytest.mark.anyio

DEADLINE = 15.0


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    """No test leaves a thread of a broker or an app behind, nor the interpreter's setting changed."""
    _of_others.update(threading.enumerate())
    before = sys.getswitchinterval()
    yield
    assert hosting_threads() == []
    assert sys.getswitchinterval() == before


# A broker that a fixture of another folder keeps for the whole session is none of ours.
_of_others: set[threading.Thread] = set()


def hosting_threads() -> list[str]:
    ours = [one.name for one in threading.enumerate() if one not in _of_others]
    return [name for name in ours if name == "broker" or name.startswith("app ")]


def prices(name: str = "prices") -> nebula.Responder:
    app = nebula.Responder(name)

    @app.verb
    async def quote(symbol: str, qty: int = 1) -> str:
        return f"{symbol}*{qty}"

    @app.verb
    async def who(request: nebula.Request) -> str | None:
        return request.principal

    @app.verb
    def thread() -> str:
        return threading.current_thread().name

    @app.verb
    async def echo(text: str) -> str:
        return text

    @app.verb
    async def sleep(seconds: float) -> str:
        await anyio.sleep(seconds)
        return "awake"

    return app


async def test_verbs_answer_over_tcp() -> None:
    with anyio.fail_after(DEADLINE):
        async with nebula.embedded(prices()) as url, nebula.Client(url) as client:
            assert await client.call("prices", "quote", {"symbol": "ABC", "qty": 2}) == "ABC*2"


async def test_several_apps_share_one_broker_and_call_each_other() -> None:
    front = nebula.Responder("front")
    address: list[str] = []

    @front.verb
    async def ask(symbol: str) -> str:
        async with nebula.Client(address[0]) as inner:
            return await inner.call("prices", "quote", {"symbol": symbol}, result=str)

    with anyio.fail_after(DEADLINE):
        async with nebula.embedded(prices(), front) as url, nebula.Client(url) as client:
            address.append(url)
            assert await client.call("front", "ask", {"symbol": "X"}) == "X*1"
            assert await client.call("prices", "ping") is None


async def test_broker_without_apps_leaves_the_interpreter_as_it_is() -> None:
    before = sys.getswitchinterval()
    with anyio.fail_after(DEADLINE):
        async with nebula.embedded() as url, nebula.Client(url) as client:
            assert sys.getswitchinterval() == before
            with pytest.raises(NoResponder):
                await client.call("prices", "ping")


async def test_apps_answers_bear_its_principal_and_its_requests_their_senders() -> None:
    with anyio.fail_after(DEADLINE):
        async with nebula.embedded(prices()) as url:
            async with nebula.Client(url) as client:
                assert await client.call("prices", "who") == "anonymous"
            async with StompClient(url) as stomp, stomp.subscribe("/queue/answers") as answers:
                headers = {"neb-reply-to": "/queue/answers", "content-type": "application/json"}
                stomp.post("/queue/prices", b'{"verb": "ping"}', headers)
                answer = await anext(aiter(answers))

    assert answer.headers["sender"] == "app:prices"


async def test_plain_functions_run_in_threads_that_are_neither_the_apps_nor_the_brokers() -> None:
    with anyio.fail_after(DEADLINE):
        async with nebula.embedded(prices()) as url, nebula.Client(url) as client:
            name = await client.call("prices", "thread", result=str)

    assert name not in ("broker", "app prices", "MainThread")


async def test_bodies_of_megabytes_pass_both_ways() -> None:
    text = "x" * (7 * 1024 * 1024)
    with anyio.fail_after(DEADLINE):
        async with nebula.embedded(prices()) as url, nebula.Client(url) as client:
            assert await client.call("prices", "echo", {"text": text}) == text


async def test_many_calls_in_flight_are_all_answered_with_their_own() -> None:
    answers: dict[int, str] = {}
    with anyio.fail_after(DEADLINE):
        async with nebula.embedded(prices()) as url, nebula.Client(url) as client:

            async def call(number: int) -> None:
                answers[number] = await client.call("prices", "echo", {"text": str(number) * 5_000})

            async with anyio.create_task_group() as tasks:
                for number in range(300):
                    tasks.start_soon(call, number)

    assert answers == {number: str(number) * 5_000 for number in range(300)}


async def test_environments_broker_is_not_the_embedded_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEBULA_BROKER", "nonsense://nowhere:x")
    with anyio.fail_after(DEADLINE):
        async with nebula.embedded(prices()) as url, nebula.Client(url) as client:
            assert await client.call("prices", "ping") is None


# --- failures ---


async def test_error_of_an_app_that_cannot_start_reaches_the_caller_as_it_was_raised() -> None:
    async def fail(link: object, started: anyio.Event) -> None:
        raise ZeroDivisionError("by design")

    with anyio.fail_after(DEADLINE):
        with pytest.raises(ZeroDivisionError, match="by design"):
            async with nebula.embedded(prices(), RawApp(fail)):
                pytest.fail("the block must not begin")
        assert hosting_threads() == []


async def test_broker_refusing_an_apps_queue_reaches_the_caller() -> None:
    with anyio.fail_after(DEADLINE):
        with pytest.raises(ServerError, match=r"/topic/bad\["):
            async with nebula.embedded(nebula.Responder("bad", queues=["/queue/good", "/topic/bad["])):
                pytest.fail("the block must not begin")
        assert hosting_threads() == []


async def test_app_that_ends_before_it_has_started_is_an_error() -> None:
    async def end(link: object, started: anyio.Event) -> None:
        return

    with anyio.fail_after(DEADLINE), pytest.raises(RuntimeError, match="before it had started"):
        async with nebula.embedded(RawApp(end)):
            pytest.fail("the block must not begin")


async def test_app_that_dies_later_is_logged_and_its_callers_find_nobody() -> None:
    may_die = threading.Event()

    async def die(link: Callable[[], Awaitable[Link]], started: anyio.Event) -> None:
        async with StompClient("stomp://localhost", link=link) as stomp, stomp.subscribe("/queue/raw"):
            started.set()
            await anyio.to_thread.run_sync(may_die.wait)
            raise ZeroDivisionError("by design")

    with anyio.fail_after(DEADLINE), all_logs() as logged:
        async with nebula.embedded(prices(), RawApp(die)) as url, nebula.Client(url) as client:
            may_die.set()
            while "app raw" in hosting_threads():
                await anyio.sleep(0.01)
            with pytest.raises(NoResponder):
                await client.call("raw", "ping")
            assert await client.call("prices", "ping") is None

    (entry,) = [one for one in logged if one["event"] == "app failed"]
    assert entry["app"] == "raw"
    assert isinstance(entry["exc_info"], ZeroDivisionError)


async def test_failed_start_is_raised_and_not_logged_as_well() -> None:
    async def fail(link: object, started: anyio.Event) -> None:
        raise ZeroDivisionError

    with (
        anyio.fail_after(DEADLINE),
        all_logs() as logged,
        pytest.raises(ZeroDivisionError),
    ):
        async with nebula.embedded(RawApp(fail)):
            pytest.fail("the block must not begin")

    assert [one for one in logged if one["event"] == "app failed"] == []


async def test_port_that_is_taken_is_an_oserror_and_leaves_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, anyio.fail_after(DEADLINE):
        with pytest.raises(OSError, match="in use"):
            async with nebula.embedded(prices(), port=taken.getsockname()[1]):
                pytest.fail("the block must not begin")
        assert hosting_threads() == []


async def test_exception_in_the_block_comes_out_as_it_is() -> None:
    with anyio.fail_after(DEADLINE):
        with pytest.raises(ZeroDivisionError):
            async with nebula.embedded(prices()):
                raise ZeroDivisionError
        assert hosting_threads() == []


async def test_cancelling_the_callers_scope_ends_all() -> None:
    with anyio.fail_after(DEADLINE):
        with anyio.CancelScope() as scope:
            async with nebula.embedded(prices()):
                scope.cancel()
                await anyio.sleep_forever()
        assert hosting_threads() == []


async def test_cancelling_while_an_app_hangs_as_it_starts_ends_all() -> None:
    is_hanging = threading.Event()

    async def hang(link: object, started: anyio.Event) -> None:
        is_hanging.set()
        await anyio.sleep_forever()

    async def embed() -> None:
        async with nebula.embedded(RawApp(hang)):
            pytest.fail("the block must not begin")

    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(embed)
            await anyio.to_thread.run_sync(is_hanging.wait)
            tasks.cancel_scope.cancel()
        assert hosting_threads() == []


@pytest.mark.parametrize("delay", [0.0, 0.0005, 0.001, 0.002, 0.004, 0.008])
async def test_cancelling_at_any_moment_of_the_start_ends_all_soon(delay: float) -> None:
    with anyio.fail_after(DEADLINE):
        for _ in range(5):
            with anyio.move_on_after(delay):
                async with nebula.embedded(prices()):
                    await anyio.sleep_forever()
            assert hosting_threads() == []


async def test_block_that_begins_cancelled_starts_nothing() -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with nebula.embedded(prices()):
            pytest.fail("the block must not begin")

    assert hosting_threads() == []


# --- the end ---


async def test_requests_under_way_are_answered_before_the_app_ends() -> None:
    is_begun = threading.Event()
    app = prices()

    @app.verb
    async def slow() -> str:
        is_begun.set()
        await anyio.sleep(0.3)
        return "answered"

    answers: list[str] = []

    async def call(url: str) -> None:
        async with StompClient(url) as stomp, stomp.subscribe("/queue/answers") as arriving:
            headers = {"neb-reply-to": "/queue/answers", "content-type": "application/json"}
            stomp.post("/queue/prices", b'{"verb": "slow"}', headers)
            async for answer in arriving:
                answers.append(answer.body.decode())
                return

    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as tasks, nebula.embedded(app) as url:
            tasks.start_soon(call, url)
            await anyio.to_thread.run_sync(is_begun.wait)

    assert "answered" in answers[0]


async def test_peers_are_told_that_the_broker_stops() -> None:
    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as tasks:
            is_connected = anyio.Event()
            reasons: list[str] = []

            async def stay(url: str) -> None:
                try:
                    async with StompClient(url) as stomp, stomp.subscribe("/topic/x") as nothing:
                        is_connected.set()
                        await anext(aiter(nothing))
                except ServerError as told:
                    reasons.append(told.message)

            async with nebula.embedded() as url:
                tasks.start_soon(stay, url)
                await is_connected.wait()

    assert reasons == ["the broker is shutting down"]


# --- sharing ---


async def test_app_counts_among_the_connections() -> None:
    with anyio.fail_after(DEADLINE):
        async with nebula.embedded(prices(), limits=Limits(max_connections=1)) as url:
            with pytest.raises(nebula.ConnectFailed, match="more than 1 connections"):
                async with nebula.Client(url):
                    pytest.fail("the app has the only place")


async def test_app_that_computes_does_not_stop_the_broker_for_others() -> None:
    app = nebula.Responder("busy")
    is_begun, is_over = threading.Event(), threading.Event()

    @app.verb
    async def compute() -> int:
        is_begun.set()
        number = 0
        while not is_over.is_set():
            number += 1
        return number

    with anyio.fail_after(DEADLINE):
        async with nebula.embedded(app) as url, StompClient(url) as stomp:
            stomp.post("/queue/busy", b'{"verb": "compute"}', {})
            await anyio.to_thread.run_sync(is_begun.wait)
            try:
                for _ in range(50):
                    await stomp.send("/queue/nobody", b"x", receipt=True)
            finally:
                is_over.set()


async def test_flood_through_the_pipe_keeps_memory_bounded() -> None:
    most_bytes, count = 0, 100_000
    is_flooded = threading.Event()

    async def flood(link: Callable[[], Awaitable[Link]], started: anyio.Event) -> None:
        nonlocal most_bytes
        ends: list[Link] = []

        async def open_link() -> Link:
            ends.append(await link())
            return ends[0]

        async with StompClient("stomp://localhost", link=open_link) as stomp:
            started.set()
            (end,) = ends
            assert isinstance(end, AppEnd)
            for _ in range(count):
                stomp.post("/topic/nobody", b"x" * 500, {})
                most_bytes = max(most_bytes, end.peer.unread_bytes)
                await stomp.drain()
            await stomp.send("/topic/nobody", b"last", receipt=True)
            is_flooded.set()
            await anyio.sleep_forever()

    with anyio.fail_after(30):
        async with nebula.embedded(RawApp(flood)):
            await anyio.to_thread.run_sync(is_flooded.wait)

    assert most_bytes <= HIGH_WATER_BYTES + 1_000


async def test_app_that_takes_a_flood_gets_all_of_it_in_order() -> None:
    taken: list[int] = []
    app = nebula.Responder("sink")

    @app.verb
    async def take(number: int) -> None:
        taken.append(number)

    with anyio.fail_after(30):
        async with nebula.embedded(app) as url, nebula.Client(url) as client:
            for number in range(5_000):
                client.stomp.post(
                    "/queue/sink",
                    b'{"verb": "take", "parameters": {"number": %d}}' % number,
                    {"neb-no-reply": "true", "content-type": "application/json"},
                )
                await client.stomp.drain()
            await client.call("sink", "ping")

    assert taken == list(range(5_000))


async def test_two_blocks_at_once_restore_the_interpreters_interval_in_any_order() -> None:
    before = sys.getswitchinterval()
    first, second = nebula.embedded(prices()), nebula.embedded(prices())
    with anyio.fail_after(DEADLINE):
        await first.__aenter__()
        await second.__aenter__()
        await first.__aexit__(None, None, None)
        during = sys.getswitchinterval()
        await second.__aexit__(None, None, None)

    assert during < before
    assert sys.getswitchinterval() == before


async def test_app_may_be_embedded_again_after_its_block() -> None:
    app = prices()
    with anyio.fail_after(DEADLINE):
        for _ in range(3):
            async with nebula.embedded(app) as url, nebula.Client(url) as client:
                assert await client.call("prices", "echo", {"text": "x"}) == "x"


async def test_errors_of_verbs_cross_like_any_others() -> None:
    app = nebula.Responder("moody")

    @app.verb
    async def fail() -> None:
        raise nebula.VerbError("no-mood", "not today")

    with anyio.fail_after(DEADLINE):
        async with nebula.embedded(app) as url, nebula.Client(url) as client:
            with pytest.raises(RemoteError) as refused:
                await client.call("moody", "fail")

    assert refused.value.code == "no-mood"


async def test_address_is_where_it_was_asked_to_listen() -> None:
    port = free_port()
    with anyio.fail_after(DEADLINE):
        async with nebula.embedded(host="127.0.0.1", port=port) as url:
            assert url == f"stomp://127.0.0.1:{port}"
