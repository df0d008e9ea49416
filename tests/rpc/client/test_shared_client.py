"""The client of a service's handlers: `Depends(app.client)` and `app.call` (G.on-behalf)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from nebula import embedded
from nebula import headers as names
from nebula.errors import LocalProtocolError, RemoteError
from nebula.rpc.client.client import Client
from nebula.rpc.contract.context import HANDLED_PRINCIPAL, Request
from nebula.rpc.contract.injection import Depends
from nebula.rpc.contract.retry import Retry
from nebula.rpc.middleware.chain import Call, MakeCall, call_chain
from nebula.rpc.middleware.tracing import trace_requests
from nebula.rpc.service.responder import Responder
from nebula.rpc.service.shared_client import call_middleware
from nebula.rpc.wire.envelope import Envelope
from nebula.testing import RunningBroker, TestClient, fake
from nebula.testing import serving as serving_at
from tests.rpc.conftest import RunningBroker as MortalBroker
from tests.rpc.conftest import Serving

pytestmark = pytest.mark.anyio

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Shop:
    """A service that calls another one, which keeps its requests."""

    def __init__(self, **options: Any) -> None:
        self.stock = Responder(f"stock-{uuid4().hex}")
        self.app = app = Responder(f"shop-{uuid4().hex}", **options)
        self.requests: list[Request] = []
        self.clients: list[Client] = []

        @self.stock.verb
        async def reserve(request: Request, item: str) -> str:
            self.requests.append(request)
            return f"{item} is reserved"

        @app.verb
        async def place(item: str, *, client: Client = Depends(app.client)) -> str:
            self.clients.append(client)
            return await client.call(reserve, item)

        @app.verb
        async def order(item: str) -> str:
            return await app.call(reserve, item)

        @app.verb
        def buy(item: str, *, client: Client = Depends(app.client)) -> str:
            answer: str = anyio.from_thread.run(partial(client.call, reserve, item))
            return answer

        self.place, self.order, self.buy = place, order, buy


@pytest.mark.parametrize("verb", ["place", "order", "buy"])
async def test_handler_calls_another_service(verb: str, client: Client, serving: Serving) -> None:
    shop = Shop()
    with anyio.fail_after(5):
        async with serving(shop.app, shop.stock):
            answer = await client.call(shop.app.name, verb, {"item": "hat"})

    assert answer == "hat is reserved"


async def test_all_handlers_share_one_client_that_is_closed_with_the_service(
    client: Client, serving: Serving
) -> None:
    shop = Shop()
    with anyio.fail_after(5):
        async with serving(shop.app, shop.stock):
            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(client.call, shop.place, "hat")
            (one,) = set(shop.clients)
            assert one.state == "connected"

        assert one.state == "closed"
        with pytest.raises(LocalProtocolError, match="has ended"):
            await shop.app.client()


async def test_connection_that_is_not_wanted_is_not_opened(mortal_broker: MortalBroker) -> None:
    shop = Shop()
    async with Client(mortal_broker.url) as client:
        with anyio.fail_after(5):
            async with serving_at(mortal_broker.url, shop.app, shop.stock):
                before = len(mortal_broker.server.runtime.connections)
                await client.call(shop.place, "hat")
                await client.call(shop.order, "hat")

                assert len(mortal_broker.server.runtime.connections) == before + 1


async def test_client_comes_back_with_the_broker() -> None:
    shop = Shop()
    with anyio.fail_after(20):
        with RunningBroker(transport="tcp") as broker:
            async with Client(broker.url) as client, serving_at(broker.url, shop.app, shop.stock):
                await client.call(shop.place, "hat")
                await anyio.to_thread.run_sync(broker.stop)
                await anyio.to_thread.run_sync(broker.start)
                # The stock may come back after the shop: that may pass, and is told so.
                patient = client.with_options(
                    retry=Retry(attempts=50), wait_for_responder=10, idempotency_key="cap"
                )
                answer = await patient.call(shop.order, "cap")

    assert answer == "cap is reserved"


async def test_call_ends_with_the_request_whose_handler_makes_it(client: Client, serving: Serving) -> None:
    shop = Shop()
    with anyio.fail_after(5):
        async with serving(shop.app, shop.stock):
            await client.with_options(timeout=3).call(shop.place, "hat")

    (request,) = shop.requests
    assert 0 < int(request.headers["neb-timeout"]) <= 3000


@pytest.mark.parametrize("verb", ["place", "order", "buy"])
async def test_trace_of_the_request_goes_on(verb: str, serving: Serving, broker_url: str) -> None:
    shop = Shop()

    async def traced(call: Any, call_next: Any) -> Any:
        call.headers |= {"traceparent": TRACE, "tracestate": "vendor=abc"}
        return await call_next(call)

    with anyio.fail_after(5):
        async with serving(shop.app, shop.stock), Client(broker_url, middleware=[traced]) as client:
            await client.call(shop.app.name, verb, {"item": "hat"})

    (request,) = shop.requests
    assert request.headers["traceparent"] == TRACE
    assert request.headers["tracestate"] == "vendor=abc"


async def test_traced_service_has_spans_for_its_calls(client: Client, serving: Serving) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    shop = Shop(middleware=[trace_requests(provider)])
    with anyio.fail_after(5):
        async with serving(shop.app, shop.stock):
            await client.call(shop.place, "hat")

    called, served = sorted(exporter.get_finished_spans(), key=lambda one: one.kind is SpanKind.SERVER)
    assert called.kind is SpanKind.CLIENT
    assert called.parent is not None
    assert served.context is not None
    assert called.parent.span_id == served.context.span_id
    assert format(called.context.span_id, "016x") in shop.requests[0].headers["traceparent"]


async def test_calls_have_the_principal_of_the_service() -> None:
    shop = Shop()
    with anyio.fail_after(10):
        async with embedded(shop.app, shop.stock) as url, Client(url) as client:
            await client.call(shop.place, "hat")

    assert shop.requests[0].principal == f"app:{shop.app.name}"


async def claim_another(call: Call, call_next: MakeCall) -> Any:
    """Claim another principal, as any client may."""
    call.headers[names.ON_BEHALF_OF] = "the queen"
    return await call_next(call)


@pytest.mark.parametrize("verb", ["place", "order", "buy"])
async def test_callee_learns_on_whose_behalf_a_service_calls_and_claims_go_no_further(verb: str) -> None:
    shop, front = Shop(), Responder(f"front-{uuid4().hex}")

    @front.verb
    async def forward() -> str:
        answer: str = await front.call(shop.app.name, verb, {"item": "hat"})
        return answer

    with anyio.fail_after(10):
        async with (
            embedded(front, shop.app, shop.stock) as url,
            Client(url, middleware=[claim_another]) as client,
        ):
            await client.call(shop.app.name, verb, {"item": "hat"})
            await client.call(forward)

    assert [(one.principal, one.on_behalf_of) for one in shop.requests] == [
        (f"app:{shop.app.name}", "anonymous"),
        (f"app:{shop.app.name}", f"app:{front.name}"),
    ]


async def test_claim_gives_no_rights() -> None:
    app = Responder(f"till-{uuid4().hex}")

    @app.verb(allow=["the queen"])
    async def empty(request: Request) -> str | None:
        return request.on_behalf_of

    with anyio.fail_after(10):
        async with embedded(app) as url, Client(url, middleware=[claim_another]) as client:
            with pytest.raises(RemoteError, match="not-allowed"):
                await client.call(empty)


async def test_claim_is_neither_made_nor_read_without_a_vouching_broker() -> None:
    headers = {"sender": "alice", names.ON_BEHALF_OF: "the queen"}
    request = Request(Envelope("place"), headers, destination="/queue/shop", principal=None)
    sent: list[dict[str, str]] = []

    async def work(call: Call) -> None:
        sent.append(call.headers)

    HANDLED_PRINCIPAL.set(request.principal)
    call = Call("call", "/queue/stock", "reserve", None, {names.ON_BEHALF_OF: "the queen"}, work=work)
    await call_chain(call_middleware([]))(call)

    assert request.on_behalf_of is None
    assert sent == [{}]


async def test_job_calls_on_behalf_of_its_owner(tmp_path: Path) -> None:
    shop = Shop(state=tmp_path)

    @shop.app.job(engine=None)
    async def restock(*, client: Client = Depends(shop.app.client)) -> str:
        answer: str = await client.call(shop.stock.name, "reserve", {"item": "hat"})
        return answer

    async with TestClient(shop.app, shop.stock) as client:
        with anyio.fail_after(10):
            await (await client.start(restock)).result()

    assert [one.on_behalf_of for one in shop.requests] == ["anonymous"]


async def test_client_is_there_for_the_lifespan(client: Client, serving: Serving) -> None:
    stock = Responder(f"stock-{uuid4().hex}")
    told: list[int] = []

    @stock.verb
    async def count() -> int:
        return 3

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        told.append(await app.call(count))
        yield
        told.append(await app.call(count))

    app = Responder(f"shop-{uuid4().hex}", lifespan=lifespan)
    with anyio.fail_after(5):
        async with serving(stock), serving(app):
            pass

    assert told == [3, 3]


async def test_job_in_the_service_has_it(tmp_path: Path) -> None:
    app = Responder("nightly", state=tmp_path)

    @app.job(engine=None)
    async def total(*, client: Client = Depends(app.client)) -> int:
        amount: int = await client.call("stock", "count", result=int)
        return amount

    async with TestClient(app, fake("stock", "count", returns=3)) as client:
        with anyio.fail_after(10):
            assert await (await client.start(total)).result() == 3


async def test_fakes_are_what_handlers_reach_in_tests() -> None:
    shop = Shop()
    async with TestClient(shop.app, fake(shop.stock.name, "reserve", returns="faked")) as client:
        with anyio.fail_after(5):
            assert await client.call(shop.place, "hat") == "faked"


async def test_code_outside_of_a_running_service_has_no_client() -> None:
    app = Responder("shop")

    with pytest.raises(LocalProtocolError, match=r"does not run here.+async with Client"):
        await app.call("stock", "count")
