"""Orders: priced by one service, taken from the stock of another, and recorded."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

from pydantic import AwareDatetime, BaseModel

from nebula import Client, Depends, Rejected, Responder
from services.shop.prices import Count, Item, NotForSale, quote
from services.shop.stock import DELIVERIES, Delivery, OutOfStock, take

ORDERS = "/queue/shop.orders"
"""All orders; `nebula record` keeps them."""

app = Responder("orders")


class Order(BaseModel):
    """A placed order."""

    id: str
    placed_at: AwareDatetime
    item: Item
    count: Count
    cents: int


@app.verb(errors=[NotForSale, OutOfStock])
async def place(item: Item, count: Count = 1, *, client: Client = Depends(app.client)) -> Order:
    """Order an item."""
    cents = await client.call(quote, item, count)
    await client.call(take, item, count)
    order = Order(id=uuid4().hex, placed_at=datetime.now(UTC), item=item, count=count, cents=cents)
    try:
        await client.publish(ORDERS, order)
    except Rejected:
        await client.publish(DELIVERIES, Delivery(id=order.id, item=item, count=count))
        raise
    return order
