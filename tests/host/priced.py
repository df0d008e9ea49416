"""A broker whose HTTP listener serves calls of a service with verbs of all kinds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.cli.programs import running

PRICES = '''
from collections.abc import AsyncIterator
from datetime import date
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from nebula import Responder, VerbError


class OutOfStock(VerbError):
    "There are fewer left."

    code = "out-of-stock"
    retryable = True


class Order(BaseModel):
    """What to bring."""

    symbol: Annotated[str, Field(min_length=1, examples=["ABC"])]
    side: Literal["buy", "sell"] = "buy"
    day: date | None = None


class Receipt(BaseModel):
    order: Order
    price: float


app = Responder("prices", version="1.2")


@app.verb
async def quote(symbol: str, qty: Annotated[int, Field(ge=1)] = 1) -> float:
    """Price of `qty` units of `symbol`."""
    return 1.25 * qty


@app.verb(errors=[OutOfStock])
async def place(order: Order) -> Receipt:
    if order.symbol == "XYZ":
        raise OutOfStock("none is left", details={"left": 0})
    return Receipt(order=order, price=1.25)


@app.verb
async def broken() -> int:
    raise ValueError("secret")


@app.verb
async def nothing() -> None: ...


@app.verb
async def ticks(count: Annotated[int, Field(ge=0, le=5)]) -> AsyncIterator[float]:
    """Prices as they change."""
    for number in range(count):
        yield 1.25 + number


@app.job(engine=None)
async def report(month: int) -> list[dict[str, int]]:
    """The month's prices."""
    return [{"month": month}]
'''


@contextmanager
def running_prices(folder: Path) -> Iterator[int]:
    """The port of the listener, for a block."""
    (folder / "prices.py").write_text(PRICES)
    words = ["--port", "0", "--http", "0", "--http-calls", "--store", "memory", "--app", "prices:app"]
    with running("broker", *words, cwd=folder) as (process, first):
        assert process.stdout is not None
        lines = [first, json.loads(process.stdout.readline())]
        yield next(urlsplit(line["url"]).port or 0 for line in lines if line["url"].startswith("ws"))
