"""FastStream on RabbitMQ. `python -m benchmarks.rpc.with_faststream AMQP_PORT [IN_FLIGHT SECONDS]`.

Without a number in flight it is the service, else the caller.
"""

from __future__ import annotations

import logging
import sys

import uvloop
from faststream import FastStream
from faststream.rabbit import RabbitBroker

from benchmarks.rpc.caller import report
from benchmarks.rpc.shop import ORDER, Quote, price

_QUEUE = "shop-quote"


def _broker(port: int) -> RabbitBroker:
    # Its access log writes a line per message, which a fast service would turn off.
    return RabbitBroker(f"amqp://guest:guest@127.0.0.1:{port}/", logger=None, log_level=logging.CRITICAL)


async def serve(port: int) -> None:
    """Answer on its queue until the process is ended."""
    broker = _broker(port)

    @broker.subscriber(_QUEUE)
    async def quote(symbol: str, qty: int) -> Quote:
        return price(symbol, qty)

    await FastStream(broker).run()


async def call(port: int, in_flight: int, seconds: float) -> None:
    """Ask the service. Its `request` holds a lock: one is under way at a time, whatever we want."""
    async with _broker(port) as broker:

        async def ask() -> Quote:
            reply = await broker.request(ORDER, _QUEUE, timeout=10)
            return Quote.model_validate_json(reply.body)

        await report(ask, in_flight, seconds)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        uvloop.run(serve(int(sys.argv[1])))
    else:
        uvloop.run(call(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
