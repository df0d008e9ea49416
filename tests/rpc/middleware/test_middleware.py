"""Middleware around requests and calls, including Nebula's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import anyio
import pytest
from prometheus_client import CollectorRegistry
from structlog.contextvars import bound_contextvars, get_contextvars

from nebula.errors import NoResponder, RemoteError
from nebula.logs import get_logger
from nebula.rpc.contract.context import Request
from nebula.rpc.errors import VerbError
from nebula.rpc.middleware.chain import Call, CallMiddleware, CallNext, MakeCall, Middleware
from nebula.rpc.middleware.limits import limit_requests
from nebula.rpc.middleware.logs import log_calls, log_requests
from nebula.rpc.middleware.metrics import MeasureCalls, MeasureRequests
from nebula.rpc.service.responder import Responder
from nebula.rpc.wire.reply_body import ReplyBody, success
from nebula.testing import TestClient
from nebula.trace_context import is_traceparent
from tests.own_logs import all_logs

pytestmark = pytest.mark.anyio


def fresh(*middleware: Middleware) -> Responder:
    app = Responder(f"service-{uuid4().hex}", middleware=middleware)

    @app.verb
    async def quote(symbol: str, qty: int = 1) -> str:
        if symbol == "none":
            raise VerbError("sold-out", "none left")
        if symbol == "bug":
            raise KeyError("secret")
        return symbol * qty

    @app.verb
    async def letters(word: str) -> AsyncIterator[str]:
        for one in word:
            yield one

    @app.verb
    async def headers(request: Request) -> dict[str, str]:
        return dict(request.headers)

    return app


def noting(lines: list[str], name: str) -> Middleware:
    async def note(request: Request, call_next: CallNext) -> ReplyBody:
        lines.append(f"{name} before {request.verb}")
        try:
            return await call_next(request)
        finally:
            lines.append(f"{name} after")

    return note


# --- of services ---


async def test_first_middleware_is_outermost() -> None:
    lines: list[str] = []
    app = fresh(noting(lines, "a"), noting(lines, "b"))
    async with TestClient(app) as client:
        with anyio.fail_after(5):
            assert await client.call(app.name, "quote", ["x", 2]) == "xx"
    assert lines == ["a before quote", "b before quote", "b after", "a after"]


async def test_middleware_sees_what_is_refused_before_the_handler() -> None:
    codes: list[str] = []

    async def note(request: Request, call_next: CallNext) -> ReplyBody:
        try:
            return await call_next(request)
        except VerbError as error:
            codes.append(error.code)
            raise

    app = fresh(note)
    async with TestClient(app) as client:
        with anyio.fail_after(5):
            with pytest.raises(RemoteError, match="bad-parameters"):
                await client.call(app.name, "quote")
            with pytest.raises(RemoteError, match="sold-out"):
                await client.call(app.name, "quote", "none")
    assert codes == ["bad-parameters", "sold-out"]


async def test_middleware_may_answer_by_itself_or_refuse() -> None:
    async def guard(request: Request, call_next: CallNext) -> ReplyBody:
        if request.headers.get("x-token") == "none":
            raise VerbError("not-today", "come back tomorrow")
        return success() if request.verb == "quote" else await call_next(request)

    async def with_token(call: Call, call_next: MakeCall) -> Any:
        call.headers["x-token"] = "none"
        return await call_next(call)

    app = fresh(guard)
    async with TestClient(app) as client:
        with anyio.fail_after(5):
            assert await client.call(app.name, "quote", "x") is None
    async with TestClient(app, middleware=[with_token]) as client:
        with anyio.fail_after(5), pytest.raises(RemoteError, match="not-today: come back tomorrow"):
            await client.call(app.name, "quote", "x")


async def test_middleware_that_forgets_the_reply_leaves_no_caller_waiting() -> None:
    async def forgetful(request: Request, call_next: CallNext) -> ReplyBody:
        await call_next(request)
        return None  # type: ignore[return-value]

    app = fresh(forgetful)
    async with TestClient(app) as client:
        with anyio.fail_after(5):
            with pytest.raises(RemoteError, match="internal"):
                await client.call(app.name, "quote", "x")


async def test_middleware_is_around_all_of_a_stream() -> None:
    lines: list[str] = []
    app = fresh(noting(lines, "a"))
    async with TestClient(app) as client:
        with anyio.fail_after(5):
            assert [one async for one in client.stream(app.name, "letters", "abc")] == list("abc")
            assert await client.call(app.name, "letters", "ab") == ["a", "b"]
    assert lines == ["a before letters", "a after"] * 2


async def test_middleware_may_try_again() -> None:
    async def stubborn(request: Request, call_next: CallNext) -> ReplyBody:
        try:
            return await call_next(request)
        except VerbError:
            request.parameters = "left"
            return await call_next(request)

    app = fresh(stubborn)
    async with TestClient(app) as client:
        with anyio.fail_after(5):
            assert await client.call(app.name, "quote", "none") == "left"


async def test_limit_ends_a_handler_that_takes_longer() -> None:
    app = Responder(f"service-{uuid4().hex}", middleware=[limit_requests(0.05)])
    ended = anyio.Event()

    @app.verb
    async def endless() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    @app.verb
    async def endless_stream() -> AsyncIterator[int]:
        yield 1
        await anyio.sleep_forever()

    async with TestClient(app) as client:
        with anyio.fail_after(5):
            with pytest.raises(RemoteError, match=r"deadline-exceeded: the service gives a request 0\.05 s"):
                await client.call(endless)
            assert ended.is_set()
            with pytest.raises(RemoteError, match="deadline-exceeded"):
                _ = [one async for one in client.stream(endless_stream)]


# --- of clients ---


def noting_calls(lines: list[str]) -> CallMiddleware:
    async def note(call: Call, call_next: MakeCall) -> Any:
        lines.append(f"{call.kind} {call.verb}")
        call.headers["x-note"] = "noted"
        return await call_next(call)

    return note


async def test_clients_middleware_is_around_all_that_asks_a_verb(tmp_path: Any) -> None:
    lines: list[str] = []
    app = Responder(f"service-{uuid4().hex}", state=tmp_path)
    seen: list[str | None] = []

    @app.verb
    async def quote(request: Request) -> str | None:
        seen.append(request.headers.get("x-note"))
        return request.headers.get("x-note")

    @app.verb
    async def letters(request: Request) -> AsyncIterator[str | None]:
        yield request.headers.get("x-note")

    @app.job(engine=None)
    async def report() -> int:
        return 1

    async with TestClient(app, middleware=[noting_calls(lines)]) as client:
        with anyio.fail_after(10):
            assert await client.call(quote) == "noted"
            assert await client.with_options(retry=None, idempotency_key="k").call(quote) == "noted"
            assert await client.call(app.name, "quote") == "noted"
            assert [one async for one in client.stream(letters)] == ["noted"]
            await client.send(quote)
            assert await (await client.start(report)).result(int) == 1
            while len(seen) < 4:
                await anyio.sleep(0.01)
    assert seen == ["noted"] * 4
    assert lines[:6] == ["call quote"] * 3 + ["stream letters", "send quote", "start report"]


async def test_clients_middleware_may_give_a_call_less_time() -> None:
    async def hurry(call: Call, call_next: MakeCall) -> Any:
        call.timeout = 3.0
        return await call_next(call)

    app = fresh()
    async with TestClient(app, middleware=[hurry]) as client:
        with anyio.fail_after(5):
            headers = await client.call(app.name, "headers")
    assert 0 < int(headers["neb-timeout"]) <= 3000


# --- log ---


async def test_log_has_how_requests_ended_and_their_principal() -> None:
    app = Responder(f"service-{uuid4().hex}", middleware=[log_requests])

    @app.verb
    def plain(secret: str) -> None:
        get_logger("nebula.tests").info("handler ran")

    @app.verb
    async def failing(secret: str) -> None:
        raise VerbError("sold-out", secret)

    with all_logs() as lines:
        async with TestClient(app, middleware=[log_calls]) as client:
            with anyio.fail_after(5):
                await client.call(plain, "hush")
                with pytest.raises(RemoteError):
                    await client.call(failing, "hush")
    told = {line["event"]: line for line in lines}
    ran = told["handler ran"]
    assert (ran["service"], ran["verb"]) == (app.name, "plain")
    assert ran["request_id"] == told["request answered"]["request_id"]
    assert told["request failed"]["code"] == told["call failed"]["code"] == "sold-out"
    assert told["call answered"]["kind"] == "call"
    assert "principal" in ran
    assert ran["trace_id"] == told["request answered"]["trace_id"] == told["call answered"]["trace_id"]
    assert told["request failed"]["trace_id"] == told["call failed"]["trace_id"] != ran["trace_id"]
    assert "hush" not in str([line for line in lines if line["event"].startswith(("request", "call"))])
    assert get_contextvars() == {}


async def test_call_from_a_handler_belongs_to_the_trace_of_its_request() -> None:
    shop = Responder(f"shop-{uuid4().hex}", middleware=[log_requests])
    stock, clients = fresh(), list[TestClient]()

    @shop.verb
    async def order() -> Any:
        return await clients[0].call(stock.name, "headers")

    with all_logs() as lines, anyio.fail_after(5):
        async with TestClient(shop, stock, middleware=[log_calls]) as client:
            clients.append(client)
            headers = await client.call(shop.name, "order")

    (trace_id,) = {line["trace_id"] for line in lines if line["event"] == "call answered"}
    assert headers["traceparent"].split("-")[1] == trace_id


async def test_call_begins_a_trace_if_the_application_logs_something_else_as_trace_id() -> None:
    app = fresh()
    with bound_contextvars(trace_id="order-17"), anyio.fail_after(5):
        async with TestClient(app, middleware=[log_calls]) as client:
            headers = await client.call(app.name, "headers")

    assert is_traceparent(headers["traceparent"])


# --- metrics ---


async def test_metrics_count_requests_and_calls_by_verb_and_code() -> None:
    registry = CollectorRegistry()
    app = fresh(MeasureRequests(registry))
    async with TestClient(app, middleware=[MeasureCalls(registry)]) as client:
        with anyio.fail_after(5):
            await client.call(app.name, "quote", "x")
            for bad in ("none", "bug"):
                with pytest.raises(RemoteError):
                    await client.call(app.name, "quote", bad)
            with pytest.raises(NoResponder):
                await client.call("nobody", "quote")

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {"service": app.name, "verb": "quote", **labels})

    for what in ("request", "call"):
        assert value(f"nebula_{what}s_total") == 3
        assert value(f"nebula_{what}_seconds_count") == 3
        assert value(f"nebula_{what}_errors_total", code="sold-out") == 1
        assert value(f"nebula_{what}_errors_total", code="internal") == 1
    gone = {"service": "nobody", "verb": "quote", "code": "NoResponder"}
    assert registry.get_sample_value("nebula_call_errors_total", gone) == 1


async def test_made_up_names_make_no_endless_series() -> None:
    registry = CollectorRegistry()
    measure = MeasureCalls(registry)

    async def work(call: Call) -> None: ...

    for number in range(1000):
        await measure(Call("call", "/queue/x", f"verb-{number}", None, work=work), work)

    series = next(one for one in registry.collect() if one.name == "nebula_calls").samples
    assert len([one for one in series if one.name == "nebula_calls_total"]) == 501
    other = {"service": "other", "verb": "other"}
    assert registry.get_sample_value("nebula_calls_total", other) == 500
