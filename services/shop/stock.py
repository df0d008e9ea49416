"""How much there is of each item, in a database. What the warehouse delivers comes as messages."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

from pydantic import BaseModel

from nebula import Depends, Responder, Retry, VerbError, lifespan_state
from services.shop.prices import Count, Item

DELIVERIES = "/queue/shop.deliveries"
"""What comes into stock, each a `Delivery`."""

_TABLES = """
CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, count INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS deliveries (id TEXT PRIMARY KEY);
"""


class Delivery(BaseModel):
    """Some of an item that came into stock. The id is the sender's, the same however often it is sent."""

    id: str
    item: Item
    count: Count


class OutOfStock(VerbError):
    """There are not so many left."""

    code = "out-of-stock"


@asynccontextmanager
async def lifespan() -> AsyncIterator[sqlite3.Connection]:
    """The database that `SHOP_STOCK` names."""
    # Ours alone: where a backup holds it for a moment, a delivery comes again rather than block the loop.
    path = os.environ.get("SHOP_STOCK", "stock.sqlite")
    with closing(sqlite3.connect(path, timeout=0)) as database:
        database.executescript(_TABLES)
        yield database


app = Responder("stock", lifespan=lifespan)


@app.verb(errors=[OutOfStock])
async def take(
    item: Item, count: Count = 1, *, database: sqlite3.Connection = Depends(lifespan_state)
) -> int:
    """Take some away; how many are left."""
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
    """How many are left."""
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
