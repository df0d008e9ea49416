"""What the pictures of the terminal show at work: a small service, and messages that come and wait."""

from __future__ import annotations

import time
from datetime import date

from pydantic import BaseModel

from nebula import Job, Responder, VerbError

app = Responder("warehouse")


class Line(BaseModel):
    """One line of an order."""

    item: str
    pieces: int = 1


class SoldOut(VerbError):
    """Fewer pieces are left than were ordered."""

    code = "sold-out"


@app.verb(idempotent=True)
async def price(item: str, pieces: int = 1) -> float:
    """Price of some pieces, in euros."""
    return 1.25 * pieces * len(item)


@app.verb(errors=[SoldOut])
async def order(lines: list[Line], due: date | None = None) -> int:  # noqa: ARG001
    """Order some lines; return how many pieces are reserved."""
    if any(line.item == "unicorn" for line in lines):
        raise SoldOut("the unicorns are sold out")
    return sum(line.pieces for line in lines)


@app.job(engine=None)
def stocktaking(ctx: Job, shelves: int = 4) -> list[dict[str, int]]:
    """Count all shelves."""
    rows = []
    with ctx.step(1, 2, "count"):
        for shelf in range(1, shelves + 1):
            ctx.progress(shelf, shelves, f"shelf {shelf}")
            ctx.log(f"shelf {shelf} counted")
            rows.append({"shelf": shelf, "pieces": 120 * shelf % 347})
            time.sleep(0.2)
    with ctx.step(2, 2, "sum up"):
        time.sleep(0.1)
    return rows
