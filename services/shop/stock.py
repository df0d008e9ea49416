"""The stock of each item, in a database, with deliveries as messages."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

from pydantic import BaseModel

from nebula import Depends, Responder, Retry, VerbError, lifespan_state
from services.shop.prices import Count, Item

DELIVERIES = "/queue/shop.deliveries"
"""Deliveries to the warehouse, each a `Delivery`."""

_TABLES = """
CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, count INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS deliveries (id TEXT PRIMARY KEY);
"""


class Delivery(BaseModel):
    """A delivery of an item. The sender chooses the id, and keeps it when it sends the message again."""

    id: str
    item: Item
    count: Count


class OutOfStock(VerbError):
    """Fewer items are left than were ordered."""

    code = "out-of-stock"


@asynccontextmanager
async def lifespan() -> AsyncIterator[sqlite3.Connection]:
    """The database that `SHOP_STOCK` names."""
    # No waiting for locks: during a backup a delivery is retried instead of blocking the event loop.
    path = os.environ.get("SHOP_STOCK", "stock.sqlite")
    with closing(sqlite3.connect(path, timeout=0)) as database:
        database.executescript(_TABLES)
        yield database


app = Responder("stock", lifespan=lifespan)


@app.verb(errors=[OutOfStock])
async def take(
    item: Item, count: Count = 1, *, database: sqlite3.Connection = Depends(lifespan_state)
) -> int:
    """Take items from stock; return how many are left."""
    with database:
        taken = database.execute(
            "UPDATE stock SET count = count - ? WHERE item = ? AND count >= ?", (count, item, count)
        )
    left = _count(database, item)
    if not taken.rowcount:
        raise OutOfStock(f"{left} of {item} are left", details={"left": left})
    return left


@app.verb(idempotent=True)
async def left(item: Item, *, database: sqlite3.Connection = Depends(lifespan_state)) -> int:
    """The number of items in stock."""
    return _count(database, item)


@app.on(DELIVERIES, retry=Retry(attempts=8, longest=60))
async def put_away(delivery: Delivery, *, database: sqlite3.Connection = Depends(lifespan_state)) -> None:
    """Add a delivery, once: a message may come twice."""
    with database:
        new = database.execute("INSERT OR IGNORE INTO deliveries VALUES (?)", (delivery.id,)).rowcount
        if new:
            database.execute(
                "INSERT INTO stock VALUES (?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count",
                (delivery.item, delivery.count),
            )


def _count(database: sqlite3.Connection, item: str) -> int:
    row = database.execute("SELECT count FROM stock WHERE item = ?", (item,)).fetchone()
    return int(row[0]) if row else 0
