"""Prices, kept by the broker as last values that any client can follow."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from nebula import Client, Depends, Responder, VerbError

# A part of a destination's name.
Item = Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
Cents = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]

app = Responder("prices")


class Price(BaseModel):
    """The price of one piece."""

    item: Item
    cents: Cents


class NotForSale(VerbError):
    """The item has no price."""

    code = "not-for-sale"


@app.verb(idempotent=True)
async def mark(item: Item, cents: Cents, *, client: Client = Depends(app.client)) -> None:
    """Set the price of an item."""
    await client.value(f"X/price.{item}", as_=Price).put(Price(item=item, cents=cents))


@app.verb(errors=[NotForSale], idempotent=True)
async def quote(item: Item, count: Count = 1, *, client: Client = Depends(app.client)) -> int:
    """The current price of `count` pieces, in cents."""
    price = await client.value(f"X/price.{item}", as_=Price).get()
    if price is None:
        raise NotForSale(f"nobody sells {item}")
    return price.cents * count


@app.verb(idempotent=True)
async def catalogue(*, client: Client = Depends(app.client)) -> list[Price]:
    """All prices by item."""
    prices = await client.values("X/price.*", as_=Price)
    return sorted(prices.values(), key=lambda price: price.item)
