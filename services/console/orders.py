"""A service that takes orders from a queue. What it cannot take becomes a dead letter."""

from __future__ import annotations

import anyio
from pydantic import BaseModel

from nebula import Responder, Retry, VerbError

app = Responder("orders")

STOCK = ("lamp", "chair", "table", "shelf")
"""What can be ordered."""


class Order(BaseModel):
    """An order that was sent to the queue."""

    number: int
    item: str
    amount: int


@app.on("/queue/new-orders", retry=Retry(first=1.0, attempts=2))
async def take(order: Order) -> None:
    """Take an order, which needs a moment."""
    await anyio.sleep(0.2)
    if order.item not in STOCK:
        raise VerbError("unknown-item", f"order {order.number}: nobody sells a {order.item}")
