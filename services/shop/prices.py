"""What items cost. Each price is a last value, which the broker keeps and anybody may follow."""

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
    """What one of an item costs."""

    item: Item
    cents: Cents


class NotForSale(VerbError):
    """There is no price for that item."""

    code = "not-for-sale"


@app.verb(idempotent=True)
async def mark(item: Item, cents: Cents, *, client: Client = Depends(app.client)) -> None:
    """Set what an item costs from now on."""
    await client.value(f"X/price.{item}", as_=Price).put(Price(item=item, cents=cents))


@app.verb(errors=[NotForSale], idempotent=True)
async def quote(item: Item, count: Count = 1, *, client: Client = Depends(app.client)) -> int:
    """What so many of an item cost now, in cents."""
    price = await client.value(f"X/price.{item}", as_=Price).get()
    if price is None:
        raise NotForSale(f"nobody sells {item}")
    return price.cents * count


@app.verb(idempotent=True)
async def catalogue(*, client: Client = Depends(app.client)) -> list[Price]:
    """What there is, by name."""
    prices = await client.values("X/price.*", as_=Price)
    return sorted(prices.values(), key=lambda price: price.item)
