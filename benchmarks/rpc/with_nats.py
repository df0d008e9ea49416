"""NATS micro with nats-py. `python -m benchmarks.rpc.with_nats PORT [IN_FLIGHT SECONDS bytes|pydantic]`.

Without a number in flight it is the service, else the caller.
"""

from __future__ import annotations

import asyncio
import json
import sys

import nats
import uvloop
from nats.micro import add_service
from nats.micro.request import Request

from benchmarks.rpc.caller import report
from benchmarks.rpc.shop import ORDER, Order, Quote, price

_ORDER_BYTES = json.dumps(ORDER).encode()


async def _quote_bytes(request: Request) -> None:
    await request.respond(request.data)


async def _quote_pydantic(request: Request) -> None:
    order = Order.model_validate_json(request.data)
    await request.respond(price(order.symbol, order.qty).model_dump_json().encode())


async def serve(port: int) -> None:
    """Answer on `shop.bytes` and `shop.pydantic` until the process is ended."""
    client = await nats.connect(f"nats://127.0.0.1:{port}")
    service = await add_service(client, name="shop", version="1.0.0")
    group = service.add_group(name="shop")
    await group.add_endpoint(name="bytes", handler=_quote_bytes)
    await group.add_endpoint(name="pydantic", handler=_quote_pydantic)
    await asyncio.Event().wait()


async def call(port: int, in_flight: int, seconds: float, kind: str) -> None:
    """Ask the service of that kind."""
    client = await nats.connect(f"nats://127.0.0.1:{port}")

    async def ask_bytes() -> bytes:
        return (await client.request("shop.bytes", _ORDER_BYTES, timeout=10)).data

    async def ask_pydantic() -> Quote:
        reply = await client.request("shop.pydantic", json.dumps(ORDER).encode(), timeout=10)
        return Quote.model_validate_json(reply.data)

    await report(ask_bytes if kind == "bytes" else ask_pydantic, in_flight, seconds)
    await client.close()


if __name__ == "__main__":
    if len(sys.argv) == 2:
        uvloop.run(serve(int(sys.argv[1])))
    else:
        uvloop.run(call(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]))
