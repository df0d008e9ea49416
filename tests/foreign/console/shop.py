"""A service for the console's tests: a verb for each kind of field, a stream, and a job without Spark.

The broker of the tests hosts it: `nebula broker --app shop:app`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import date
from enum import StrEnum
from typing import Annotated

import anyio
from pydantic import BaseModel, Field

from nebula import Job, JobError, Responder, VerbError

app = Responder("shop", version="1.4.0")


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


class Item(BaseModel):
    """A line of an order."""

    name: str
    amount: Annotated[int, Field(ge=1, le=99)] = 1
    size: Size = Size.SMALL


class Order(BaseModel):
    """What somebody wants to have."""

    customer: str
    items: list[Item]
    due: date | None = None
    express: bool = False
    note: str = ""


@app.verb
async def quote(symbol: str, qty: Annotated[int, Field(ge=1)] = 1) -> float:
    """The price of some units of a symbol."""
    if symbol != "ABC":
        raise VerbError("unknown-symbol", f"there is no price of {symbol}", details={"symbol": symbol})
    return 1.25 * qty


@app.verb
async def place(order: Order) -> dict[str, int | str]:
    """Take an order."""
    return {"customer": order.customer, "units": sum(item.amount for item in order.items)}


@app.verb
async def ticks(count: Annotated[int, Field(ge=0, le=10_000)] = 5, delay: float = 0.0) -> AsyncIterator[int]:
    """Count, an item at a time."""
    for number in range(count):
        yield number
        await anyio.sleep(delay)


@app.verb
async def refuse() -> None:
    """Always refuses."""
    raise VerbError("sold-out", "none left", details={"left": 0}, retryable=True)


@app.job(engine=None)
def count(ctx: Job, up_to: int = 3, seconds: float = 0.0) -> list[dict[str, int]]:
    """Count up in a job, with progress; a negative number fails."""
    if up_to < 0:
        raise JobError("cannot count down", code="backwards")
    for number in range(up_to):
        ctx.progress(number, up_to, f"counting: {number}")
        time.sleep(seconds / max(1, up_to))
        ctx.raise_if_cancelled()
    return [{"number": number, "square": number * number} for number in range(up_to)]
