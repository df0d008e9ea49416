"""What the examples in docstrings use and do not make themselves, by place; EXAMPLE is where they stand."""

from __future__ import annotations

IMPORTS = """
import asyncio
from decimal import Decimal
from pathlib import Path
from time import monotonic
from typing import Annotated

import anyio
import pytest
from fastapi import FastAPI
from opentelemetry.sdk.resources import Resource
from pydantic import BaseModel
from starlette.responses import JSONResponse

from nebula import Client, Depends, Job, Request, Responder
from nebula.broker.operations.certificates import make_authority
from nebula.broker.server.connection import Connection
from nebula.broker.server.http import HttpListener
from nebula.broker.server.http_connection import HttpConnection
from nebula.broker.server.listener import Listener
from nebula.broker.server.runtime import Runtime
from nebula.broker.server.server import Server
from nebula.errors import CallTimeout, NebulaError
from nebula.rpc.errors import VerbError
from nebula.rpc.middleware.chain import CallNext
from nebula.rpc.middleware.tracing import (
    resource_attributes,
    trace_calls,
    trace_job,
    trace_message,
    trace_messages,
    trace_requests,
)
from nebula.rpc.http_problems import problem_of
from nebula.rpc.wire.reply_body import ReplyBody
from nebula.shown import Shown, Unit
from nebula.testing import (
    Faults,
    RunningBroker,
    TestClient,
    check_store,
    handled,
    store_promises,
    virtual_clock,
)
from tests.broker.log_store import LogStore


def MyStore(folder: Path) -> LogStore:
    return LogStore(folder / "log")


class Price(BaseModel):
    cents: int


class Meter(BaseModel):
    cents: int


class Delivery(BaseModel):
    item: str
    count: int


class Db:
    pass


def get_db() -> Db:
    return Db()


app = Responder("prices")


@app.verb
async def quote(symbol: str, qty: int = 1) -> Decimal:
    return 10 * Decimal(qty)


@app.verb
async def reload() -> int:
    return 1


@app.job(engine=None)
def delays(ctx: Job, month: int) -> int:
    return month


shop = Responder("shop")
stock: dict[str, int] = {}


@shop.on("/queue/deliveries")
async def put_away(delivery: Delivery) -> None:
    stock[delivery.item] = delivery.count


@shop.verb
async def left(item: str) -> int:
    return stock[item]


@shop.verb
async def reserve(item: str) -> None:
    pass
"""

CLIENT = """
async with TestClient(app) as client:
    EXAMPLE
"""
NEW_APP = """
app = Responder("new")
EXAMPLE
async with TestClient(app) as client:
    {}
"""
VALUES = """
async with TestClient(app) as client:
    await client.value("X/price.hat", as_=Price).put(Price(cents=3))
    EXAMPLE
"""
# It goes on until it is left.
ENDLESS = """
async with TestClient(app) as client:
    with anyio.move_on_after(0.5):
        EXAMPLE
"""

SURROUNDINGS: dict[str, str] = {
    "nebula.broker.server.http:": "runtime: Runtime\nloop = asyncio.get_running_loop()\nEXAMPLE",
    "nebula.rpc.client.client:with_options": CLIENT,
    "nebula.rpc.client.client:values": VALUES,
    "nebula.rpc.client.client:watch_services": ENDLESS,
    "nebula.rpc.client.values:LastValue": ENDLESS,
    "nebula.rpc.contract.injection:Depends": "app = Responder('new')\nEXAMPLE",
    "nebula.rpc.discovery.scatter:Scatter": CLIENT,
    "nebula.rpc.errors:VerbError": NEW_APP.format(
        "try:\n        await client.call(order, 'hat', 3)\n    except OutOfStock as error:\n"
        "        assert error.details == {'left': 2}\n    else:\n        raise AssertionError"
    ),
    "nebula.rpc.middleware.chain:": (
        "EXAMPLE\napp = Responder('new', middleware=[timed])\nasync with TestClient(app) as client:\n"
        "    await client.call('new', 'ping')"
    ),
    "nebula.rpc.middleware.tracing:trace_message": CLIENT,
    "nebula.rpc.middleware.tracing:trace_job": NEW_APP.format(
        "await (await client.start(report, 3)).result()"
    ),
    "nebula.rpc.http_problems:problem_of": (
        "from starlette.requests import Request\n\nweb = FastAPI()\nEXAMPLE\n"
        "told = await tell(Request({'type': 'http'}), CallTimeout('late'))\nassert told.status_code == 504"
    ),
    "nebula.testing.stores:check_store": "EXAMPLE\ntest_my_store('new_store_is_empty_and_clean')",
    "nebula.rpc.service.responder:client": (
        "app = Responder('new')\nEXAMPLE\n"
        "async with TestClient(app, shop) as caller:\n    await caller.call('new', 'place', {'item': 'hat'})"
    ),
    "nebula.rpc.service.subscribers:on": NEW_APP.format(
        "async with handled(note):\n        await client.value('X/EGM.7', as_=Meter).put(Meter(cents=1))"
    ),
    "nebula.testing.app_client:TestClient#2": "def without_await() -> None:\n    EXAMPLE\n"
    "await asyncio.to_thread(without_await)",
    "nebula.testing.faults:Faults": "with RunningBroker() as running:\n    url = running.url\n    EXAMPLE",
    "nebula.testing.hearing:handled": "async with TestClient(shop) as client:\n    EXAMPLE",
}

# One takes a fixed port, and the other has no end.
CHECKED_ONLY = {"nebula.broker.server.http:", "nebula.rpc.middleware.tracing:trace_message"}

# Pictures of parts and of what passes between them.
DIAGRAMS = {
    "nebula.broker.core.broker:",
    "nebula.broker.core.destinations.paging:",
    "nebula.broker.core.receipts:",
    "nebula.rpc.client.calls:",
    "nebula.rpc.client.client:",
    "nebula.rpc.jobs.results.types:",
    "nebula.spark.lines:",
    "nebula.spark.lines:#2",
    "nebula.stomp.heartbeat:",
}
