"""What is asked for: the same data and the same work for every framework."""

from __future__ import annotations

from pydantic import BaseModel

# What callers send, and the one price there is.
ORDER = {"symbol": "ABC", "qty": 2}
_PRICE = 12.5


class Order(BaseModel):
    """The parameters of `quote`, for frameworks that do not take them from the signature."""

    symbol: str
    qty: int


class Quote(BaseModel):
    """The reply of `quote`."""

    symbol: str
    total: float


def price(symbol: str, qty: int) -> Quote:
    """The work of the verb: next to none, so that the framework's cost is what is measured."""
    return Quote(symbol=symbol, total=qty * _PRICE)
