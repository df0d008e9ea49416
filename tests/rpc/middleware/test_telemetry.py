"""Spans and metrics by OpenTelemetry's semantic conventions: calls, streams, messages, jobs, failures."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import opentelemetry.semconv._incubating.attributes as incubating_attributes
import opentelemetry.semconv._incubating.metrics as incubating_metrics
import opentelemetry.semconv.attributes as stable_attributes
import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.semconv.schemas import Schemas
from opentelemetry.trace import SpanKind, StatusCode, get_current_span, get_tracer

from nebula import embedded
from nebula.errors import NoResponder, RemoteError
from nebula.rpc.client.client import Client
from nebula.rpc.contract.context import Request
from nebula.rpc.errors import VerbError
from nebula.rpc.middleware import conventions
from nebula.rpc.middleware.chain import Call, MakeCall
from nebula.rpc.middleware.tracing import (
    resource_attributes,
    trace_calls,
    trace_message,
    trace_messages,
    trace_requests,
)
from nebula.rpc.service.responder import Responder
from nebula.testing import TestClient
from tests.rpc.middleware.telemetry import Telemetry, is_child, is_linked

pytestmark = pytest.mark.anyio

# What the conventions advise for durations in seconds.
BOUNDS: tuple[float, ...] = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


def service(telemetry: Telemetry) -> Responder:
    return Responder(f"service-{uuid4().hex}", middleware=[trace_requests(*telemetry.both)])


async def test_calls_and_requests_are_measured_as_the_conventions_say() -> None:
    telemetry = Telemetry()
    app = service(telemetry)

    @app.verb
    async def quote(symbol: str) -> int:
        if symbol == "none":
            raise VerbError("sold-out", "secret")
        return 1

    async with TestClient(app, middleware=[trace_calls(*telemetry.both)]) as client:
        with anyio.fail_after(5):
            await client.call(quote, "ABC")
            await client.call(quote, "ABC")
            with pytest.raises(RemoteError):
                await client.call(quote, "none")

    for metric in ("rpc.client.call.duration", "rpc.server.call.duration"):
        right, wrong = sorted(telemetry.points(metric), key=lambda one: -one.count)
        method = {"rpc.system.name": "nebula", "rpc.method": f"{app.name}/quote"}
        assert (right.attributes, right.count, right.unit) == (method, 2, "s")
        assert (wrong.attributes, wrong.count) == (method | {"error.type": "sold-out"}, 1)
        assert right.bounds == BOUNDS
        assert right.total > 0


async def test_duration_is_that_of_the_span() -> None:
    telemetry = Telemetry()
    app = service(telemetry)

    @app.verb
    async def slow() -> None:
        await anyio.sleep(0.05)

    async with TestClient(app, middleware=[trace_calls(*telemetry.both)]) as client:
        with anyio.fail_after(5):
            await client.call(slow)

    span = telemetry.span(f"{app.name}/slow", SpanKind.CLIENT)
    assert span.start_time is not None
    assert span.end_time is not None
    took = (span.end_time - span.start_time) / 1e9
    # They are read one after the other.
    assert telemetry.point("rpc.client.call.duration").total == pytest.approx(took, abs=0.02)


async def test_broker_is_the_server_of_calls_and_messages_that_reach_one_by_its_address() -> None:
    telemetry = Telemetry()
    app = service(telemetry)

    @app.verb
    async def look() -> None: ...

    tracing = [trace_calls(*telemetry.both)]
    async with embedded(app) as address, Client(address, middleware=tracing) as client:
        with anyio.fail_after(5):
            await client.call(app.name, "look")
            await client.publish("/topic/news", "hello")

    port = int(address.rpartition(":")[2])
    expected = {"server.address": "127.0.0.1", "server.port": port}
    called = telemetry.span(f"{app.name}/look", SpanKind.CLIENT).attributes
    published = telemetry.span("publish /topic/news", SpanKind.PRODUCER).attributes
    measured = telemetry.point("rpc.client.call.duration").attributes
    sent = telemetry.point("messaging.client.sent.messages").attributes
    for attributes in (called, published, measured, sent):
        assert expected.items() <= dict(attributes or {}).items()


@pytest.mark.parametrize("how", ["to its end", "left", "broken", "wrong"])
async def test_span_of_a_stream_lasts_until_it_is_over(how: str) -> None:
    telemetry = Telemetry()
    app = service(telemetry)

    @app.verb
    async def ticks() -> AsyncIterator[int]:
        if how == "wrong":
            raise VerbError("closed", "secret")
        yield 1
        yield 2
        if how == "broken":
            raise VerbError("sold-out", "secret")

    name = f"{app.name}/ticks"
    async with TestClient(app, middleware=[trace_calls(*telemetry.both)]) as client:
        with anyio.fail_after(5):
            async with client.stream(ticks) as items:
                try:
                    async for _ in items:
                        assert telemetry.spans(name, SpanKind.CLIENT) == []
                        if how == "left":
                            break
                except RemoteError:
                    pass
            span = telemetry.span(name, SpanKind.CLIENT)
            served = await telemetry.ended(name, SpanKind.SERVER)

    assert is_child(served, span)
    expected = {"broken": "sold-out", "wrong": "closed"}.get(how)
    assert (span.attributes or {}).get("error.type") == expected
    assert telemetry.point("rpc.client.call.duration").attributes.get("error.type") == expected
    if how != "left":
        assert (served.attributes or {}).get("error.type") == expected


@pytest.mark.parametrize("how", ["cancelled", "late"])
async def test_call_that_ends_before_its_reply_says_so_on_both_sides(how: str) -> None:
    telemetry = Telemetry()
    app = service(telemetry)
    begun = anyio.Event()

    @app.verb
    async def endless() -> None:
        begun.set()
        await anyio.sleep_forever()

    async with TestClient(app, middleware=[trace_calls(*telemetry.both)]) as client:
        with anyio.fail_after(5):
            if how == "late":
                with pytest.raises(TimeoutError):
                    await client.with_options(timeout=0.1).call(endless)
            else:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(client.call, app.name, "endless")
                    await begun.wait()
                    tasks.cancel_scope.cancel()
            served = await telemetry.ended(f"{app.name}/endless", SpanKind.SERVER)

    called = telemetry.span(f"{app.name}/endless", SpanKind.CLIENT)
    assert {called.status.status_code, served.status.status_code} == {StatusCode.ERROR}
    assert (called.attributes or {})["error.type"] == ("CallTimeout" if how == "late" else "cancelled")
    # The caller withdraws what it does not wait for any more, and says its deadline to begin with.
    assert (served.attributes or {})["error.type"] in ("cancelled", "deadline-exceeded")
    assert "rpc.response.status_code" not in (called.attributes or {})


async def test_verb_that_no_service_knows_makes_no_series_of_its_own() -> None:
    telemetry = Telemetry()
    app = service(telemetry)
    async with TestClient(app, middleware=[trace_calls(*telemetry.both)]) as client:
        with anyio.fail_after(5), pytest.raises(RemoteError):
            await client.call(app.name, "nonsense")
        with anyio.fail_after(5), pytest.raises(NoResponder):
            await client.call("nobody", "ping")

    unknown = telemetry.span(f"{app.name}/nonsense", SpanKind.CLIENT)
    assert unknown.attributes is not None
    assert unknown.attributes["rpc.method"] == "_OTHER"
    assert unknown.attributes["rpc.method_original"] == f"{app.name}/nonsense"
    points = telemetry.points("rpc.client.call.duration")
    assert sorted((one.attributes["rpc.method"], one.attributes["error.type"]) for one in points) == [
        ("_OTHER", "unknown-verb"),
        ("nobody/ping", "NoResponder"),
    ]


async def test_made_up_names_make_no_endless_series() -> None:
    telemetry = Telemetry()
    trace = trace_calls(*telemetry.both)

    async def work(call: Call) -> None: ...

    for number in range(600):
        await trace(Call("call", "/queue/x", f"verb-{number}", None, work=work), work)

    points = telemetry.points("rpc.client.call.duration")
    assert len(points) == 501
    assert next(one for one in points if one.attributes["rpc.method"] == "_OTHER").count == 100


async def test_message_that_is_published_is_joined_to_the_function_that_listens() -> None:
    telemetry = Telemetry()
    app = service(telemetry)
    done = anyio.Event()

    @app.on("/queue/orders", middleware=[trace_messages(*telemetry.both)])
    async def order(text: str) -> None:
        with get_tracer("test", tracer_provider=telemetry.provider).start_as_current_span("within"):
            done.set()

    async with TestClient(app, middleware=[trace_calls(*telemetry.both)]) as client:
        with anyio.fail_after(5):
            await client.publish("/queue/orders", "hello", content_type="text/plain")
            await done.wait()
            handled = await telemetry.ended("process /queue/orders", SpanKind.CONSUMER)

    sent = telemetry.span("publish /queue/orders", SpanKind.PRODUCER)
    assert is_child(handled, sent)
    assert is_linked(handled, sent)
    assert is_child(telemetry.span("within", SpanKind.INTERNAL), handled)
    destination = {"messaging.system": "nebula", "messaging.destination.name": "/queue/orders"}
    assert dict(sent.attributes or {}) == destination | {
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.message.body.size": 5,
    }
    attributes = dict(handled.attributes or {})
    assert attributes.pop("messaging.message.id")
    assert attributes == destination | {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.body.size": 5,
    }
    published = destination | {"messaging.operation.name": "publish"}
    processed = destination | {"messaging.operation.name": "process"}
    for metric, shown in {
        "messaging.client.sent.messages": published,
        "messaging.client.operation.duration": published,
        "messaging.client.consumed.messages": processed,
        "messaging.process.duration": processed,
    }.items():
        point = telemetry.point(metric)
        assert (point.attributes, point.count) == (shown, 1)
        assert point.unit == ("s" if "duration" in metric else "{message}")


async def test_function_that_fails_at_a_message_has_its_code_in_span_and_metrics() -> None:
    telemetry = Telemetry()
    app = service(telemetry)

    @app.on("/topic/news", middleware=[trace_messages(*telemetry.both)])
    async def hear(text: str) -> None:
        raise ValueError("secret")

    async with TestClient(app, middleware=[trace_calls(*telemetry.both)]) as client:
        await client.publish("/topic/news", "hello", content_type="text/plain")
        handled = await telemetry.ended("process /topic/news", SpanKind.CONSUMER)

    assert handled.status.status_code is StatusCode.ERROR
    assert "secret" not in handled.to_json()
    assert telemetry.point("messaging.process.duration").attributes["error.type"] == "internal"


async def test_block_that_processes_a_message_of_a_subscription_is_a_child_or_linked() -> None:
    telemetry = Telemetry()
    tracer = get_tracer("test", tracer_provider=telemetry.provider)
    async with TestClient(middleware=[trace_calls(*telemetry.both)]) as client:
        with anyio.fail_after(5):
            async with client.subscribe("/topic/news") as news:
                await client.publish("/topic/news", b"one")
                await client.publish("/topic/news", b"two")
                with trace_message(await anext(news), *telemetry.both) as span:
                    assert get_current_span() is span
                with tracer.start_as_current_span("round"), trace_message(await anext(news), *telemetry.both):
                    pass

    sent = telemetry.spans("publish /topic/news", SpanKind.PRODUCER)
    first, second = telemetry.spans("process /topic/news", SpanKind.CONSUMER)
    assert is_child(first, sent[0])
    assert is_linked(first, sent[0])
    assert is_child(second, telemetry.span("round", SpanKind.INTERNAL))
    assert is_linked(second, sent[1])
    assert (second.attributes or {})["messaging.message.body.size"] == 3
    assert telemetry.point("messaging.client.consumed.messages").count == 2


async def test_trace_that_a_message_has_already_is_kept_and_linked() -> None:
    telemetry = Telemetry()
    own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with TestClient(middleware=[trace_calls(*telemetry.both)]) as client:
        with anyio.fail_after(5):
            async with client.subscribe("/topic/news") as news:
                await client.publish("/topic/news", b"one", headers={"traceparent": own})
                message = await anext(news)

    span = telemetry.span("publish /topic/news", SpanKind.CLIENT)
    assert message.headers["traceparent"] == own
    assert [f"{one.context.span_id:016x}" for one in span.links] == ["b7ad6b7169203331"]


async def test_last_value_that_is_set_is_published() -> None:
    telemetry = Telemetry()
    async with TestClient(middleware=[trace_calls(*telemetry.both)]) as client:
        with anyio.fail_after(5):
            await client.value("X/meter", as_=int).put(7)

    sent = telemetry.span("publish X/meter", SpanKind.PRODUCER)
    assert (sent.attributes or {})["messaging.destination.name"] == "X/meter"


async def test_request_without_a_reply_is_a_message_on_both_sides() -> None:
    telemetry = Telemetry()
    app = service(telemetry)
    seen: list[Request] = []

    @app.verb
    async def note(request: Request) -> None:
        seen.append(request)

    queue = f"/queue/{app.name}"
    async with TestClient(app, middleware=[trace_calls(*telemetry.both)]) as client:
        await client.send(note)
        handled = await telemetry.ended(f"process {queue}", SpanKind.CONSUMER)

    sent = telemetry.span(f"send {queue}", SpanKind.PRODUCER)
    assert is_child(handled, sent)
    for span in (sent, handled):
        assert (span.attributes or {})["rpc.method"] == f"{app.name}/note"
        assert (span.attributes or {})["messaging.destination.name"] == queue
    assert telemetry.points("rpc.server.call.duration") == []
    assert telemetry.point("messaging.process.duration").count == 1


async def test_run_of_a_job_is_measured(tmp_path: Path) -> None:
    telemetry = Telemetry()
    app = Responder(f"service-{uuid4().hex}", state=tmp_path, middleware=[trace_requests(*telemetry.both)])

    @app.job(engine=None)
    async def report() -> None:
        return None

    async with TestClient(app) as client:
        with anyio.fail_after(10):
            await (await client.start(report)).result()

    point = telemetry.point("nebula.job.run.duration")
    assert point.attributes == {"rpc.system.name": "nebula", "rpc.method": f"{app.name}/report"}
    assert (point.count, point.bounds[-1]) == (1, 43200)


def test_each_name_is_one_of_the_conventions_of_that_version() -> None:
    known: set[str] = set()
    for package in (incubating_attributes, incubating_metrics, stable_attributes):
        for module in pkgutil.iter_modules(package.__path__):
            found = importlib.import_module(f"{package.__name__}.{module.name}")
            known |= {value for value in vars(found).values() if isinstance(value, str)}

    names = {
        value
        for name, value in vars(conventions).items()
        if name.isupper() and isinstance(value, str) and "." in value and not name.startswith("_")
    } - {conventions.SCHEMA_URL}
    assert names - known == {"nebula.job.id", "nebula.job.attempt", "nebula.job.run.duration"}
    assert conventions.SCHEMA_URL in {one.value for one in Schemas}


def test_resource_says_which_service_version_and_instance_it_is() -> None:
    app = Responder("prices", version="1.2")

    first, second = (Resource.create(resource_attributes(app.name, app.version)).attributes for _ in range(2))

    assert (first["service.name"], first["service.version"]) == ("prices", "1.2")
    assert first["service.instance.id"] != second["service.instance.id"]
    assert "service.version" not in resource_attributes("prices", Responder("prices").version)


async def test_without_an_sdk_the_trace_is_handed_on_as_it_came() -> None:
    app = Responder(f"service-{uuid4().hex}", middleware=[trace_requests()])
    own: list[Client] = []
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    @app.verb
    async def outer() -> str:
        answer: str = await own[0].call(app.name, "inner")
        return answer

    @app.verb
    async def inner(request: Request) -> str:
        return request.headers.get("traceparent", "")

    async def with_trace(call: Call, call_next: MakeCall) -> Any:
        if call.verb == "outer":
            call.headers["traceparent"] = given
        return await call_next(call)

    async with TestClient(app, middleware=[trace_calls(), with_trace]) as client:
        own.append(client)
        with anyio.fail_after(5):
            assert await client.call(outer) == given
            # The worker has kept nothing of it.
            assert await client.call(inner) == ""


def test_sdk_that_is_set_after_the_middleware_was_made_is_used() -> None:
    program = """
import anyio
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import set_tracer_provider

from nebula import Responder
from nebula.rpc.middleware import conventions
from nebula.rpc.middleware.tracing import trace_calls, trace_requests
from nebula.testing import TestClient

conventions._SECONDS_BETWEEN_LOOKS = 0
app = Responder("prices", middleware=[trace_requests()])


@app.verb
async def quote() -> None: ...


async def main() -> None:
    async with TestClient(app, middleware=[trace_calls()]) as client:
        await client.call(quote)
        provider, exporter = TracerProvider(), InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        set_tracer_provider(provider)
        await client.call(quote)
    print([(one.name, one.kind.name) for one in exporter.get_finished_spans()])

anyio.run(main)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.stdout.strip() == "[('prices/quote', 'SERVER'), ('prices/quote', 'CLIENT')]"


async def test_nothing_is_counted_twice_by_a_service_and_its_own_client() -> None:
    telemetry = Telemetry()
    app = service(telemetry)

    @app.verb
    async def outer() -> None:
        await (await app.client()).call(app.name, "inner")

    @app.verb
    async def inner() -> None: ...

    async with TestClient(app) as client:
        with anyio.fail_after(5):
            await client.call(outer)

    assert telemetry.point("rpc.client.call.duration").attributes["rpc.method"] == f"{app.name}/inner"
    assert sum(one.count for one in telemetry.points("rpc.server.call.duration")) == 2
