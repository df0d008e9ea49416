"""FastStream over STOMP. `python -m benchmarks.rpc.with_faststream_stomp STOMP_PORT [IN_FLIGHT SECONDS]`.

Without a number in flight it is the service, else the caller.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Annotated, Any
from uuid import uuid4

import stompman
import uvloop
from faststream import Context, FastStream, StreamMessage
from faststream_stomp import StompBroker

from benchmarks.rpc.caller import report
from benchmarks.rpc.shop import ORDER, Quote, price

_QUEUE = "/queue/shop-quote"


def _broker(port: int) -> StompBroker:
    server = stompman.ConnectionParameters(host="127.0.0.1", port=port, login="guest", passcode="guest")
    # Its access log writes a line per message, which a fast service would turn off.
    return StompBroker(stompman.Client([server]), logger=None, log_level=logging.CRITICAL)


async def serve(port: int) -> None:
    """Answer on its queue until the process is ended. What a handler returns goes nowhere: it publishes."""
    broker = _broker(port)

    @broker.subscriber(_QUEUE)
    async def quote(
        symbol: str, qty: int, message: Annotated[StreamMessage[Any], Context("message")]
    ) -> None:
        reply_to, correlation_id = message.headers["reply-to"], message.correlation_id
        await broker.publish(price(symbol, qty), reply_to, correlation_id=correlation_id)

    await FastStream(broker).run()


async def call(port: int, in_flight: int, seconds: float) -> None:
    """Ask the service. It has no `request` over STOMP: callers match the replies themselves, as here."""
    broker = _broker(port)
    replies = f"/queue/shop-replies-{uuid4().hex}"
    waiting: dict[str, asyncio.Future[Quote]] = {}

    @broker.subscriber(replies)
    async def take(quote: Quote, correlation_id: Annotated[str, Context("message.correlation_id")]) -> None:
        waiting.pop(correlation_id).set_result(quote)

    async def ask() -> Quote:
        correlation_id = uuid4().hex
        reply: asyncio.Future[Quote] = asyncio.get_running_loop().create_future()
        waiting[correlation_id] = reply
        await broker.publish(ORDER, _QUEUE, correlation_id=correlation_id, headers={"reply-to": replies})
        async with asyncio.timeout(10):
            return await reply

    await broker.start()
    try:
        await report(ask, in_flight, seconds)
    finally:
        await broker.stop()


if __name__ == "__main__":
    if len(sys.argv) == 2:
        uvloop.run(serve(int(sys.argv[1])))
    else:
        uvloop.run(call(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
