"""Programs that run without some of the extras."""

from __future__ import annotations

PRICES = """\
from nebula import Responder

app = Responder("prices")


@app.verb
def quote(symbol: str, qty: int = 1) -> float:
    return 12.5 * qty
"""


# A service and both of its callers in one process.
ASK = """\
import anyio
import nebula.rpc
from nebula import Client, Responder, sync, verb
from prices import app, quote


async def main() -> None:
    started = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: app.run(started=started))
        await started.wait()
        async with Client() as client:
            print(await client.call(quote, "ABC", qty=2))
        print(await anyio.to_thread.run_sync(ask_without_await))
        tasks.cancel_scope.cancel()


def ask_without_await() -> float:
    with sync.Client() as client:
        return client.call(quote, "ABC", qty=3)


anyio.run(main)
"""
