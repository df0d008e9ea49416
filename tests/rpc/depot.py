"""A service with every kind of type and declaration that a typed client supports."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, Literal, NotRequired
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, RootModel, computed_field
from typing_extensions import TypedDict, deprecated

from nebula import Job, Request, Responder, VerbError


class Side(StrEnum):
    """Buy or sell."""

    BUY = "buy"
    SELL = "sell"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(Enum):
    NUMBER = 7
    WORD = "seven"


class Card(BaseModel):
    kind: Literal["card"] = "card"
    number: str


class Cash(BaseModel):
    kind: Literal["cash"] = "cash"
    coins: int = 0


Payment = Annotated[Card | Cash, Field(discriminator="kind")]


@dataclass
class Point:
    """A place on the floor."""

    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list)
    digest: bytes = b"\xff\x00"


class Options(TypedDict):
    fast: bool
    note: NotRequired[str]


class Order(BaseModel):
    """The things to bring.

    A text with \\ and \"\"\" in it.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", populate_by_name=True)

    symbol: Annotated[str, Field(min_length=1, description='Its "name".')]
    side: Side = Side.BUY
    level: Level = Level.LOW
    price: Decimal = Decimal("1.50")
    weight: float = 1.0
    when: dt.datetime | None = None
    day: dt.date = dt.date(2026, 11, 21)
    hour: dt.time = dt.time(12, 30)
    patience: dt.timedelta = dt.timedelta(seconds=3)
    photo: bytes = b"\xff"
    payment: Payment
    points: list[Point] = Field(default_factory=list)
    options: Options = {"fast": True}
    pair: tuple[int, str] = (1, "a")
    ident: UUID = UUID(int=1)
    labels: dict[str, list[int]] = {}
    marks: set[int] = {1}
    place: Point = Point(1)
    parts: list[Order] = []
    anything: Any = None
    class_: Annotated[str, Field(alias="class")] = "x"
    date: dt.date | None = None
    copies: Annotated[int, Field(ge=1, le=9)] = 1
    old: Annotated[int | None, Field(deprecated="use `copies`")] = None


class Receipt(BaseModel):
    order: Order
    total: Decimal

    @computed_field  # type: ignore[prop-decorator]  # mypy knows no property under a decorator
    @property
    def tax(self) -> Decimal:
        return self.total / 10


class Scores(RootModel[dict[str, int]]):
    """Points by name."""


class OutOfStock(VerbError):
    """There are not so many left."""

    code = "out-of-stock"
    retryable = True


class GhostsOnly(VerbError):
    code = "ghosts-only"


app = Responder("depot")


@app.verb(errors=[OutOfStock, GhostsOnly], idempotent=True)
async def price(
    item: str,
    qty: Annotated[int, Field(ge=1)] = 1,
    side: Side = Side.BUY,
    limit: Decimal | None = None,
    day: dt.date = dt.date(2026, 11, 21),
    tags: list[str] = [],  # noqa: B006  # never changed
    *,
    colour: Annotated[str | None, Field(deprecated="all are grey")] = None,
) -> Decimal:
    """Price of `qty` pieces.

    The day's.
    """
    if item == "ghost":
        raise GhostsOnly("no ghosts left")
    if qty > 100:
        raise OutOfStock(details={"left": 100})
    return (limit or Decimal("1.25")) * qty * (-1 if side is Side.SELL else 1)


@app.verb
def place(order: Order) -> Receipt:
    """Take an order."""
    return Receipt(order=order, total=order.price * order.copies)


@app.verb
async def pay(request: Request, payment: Payment, then: Mixed = Mixed.WORD) -> Payment | None:
    return payment if then is Mixed.WORD else None


@app.verb(name="price.list")
def listed(rows: list[Point]) -> list[Point]:
    return rows[::-1]


@app.verb
def scores(scores: Scores) -> Scores:
    return scores


@app.verb(name="list")
def everything(options: Options, *, ident: UUID) -> tuple[Options, UUID]:
    return options, ident


@app.verb
def echo(data: bytes, chunks: list[bytes] = []) -> bytes:  # noqa: B006  # never changed
    return data + b"".join(chunks)


@app.verb
@deprecated("ask `price` instead")
async def cost(item: str) -> float:
    """What it costs."""
    return 1.5


@app.verb
async def ticks(start: Point, count: int = 3) -> AsyncIterator[Point]:
    """Points in a row."""
    for number in range(count):
        yield Point(start.x + number)


@app.verb
def close() -> None:
    """Nothing to report."""


@app.job(engine=None)
@deprecated("take `stock`")
async def count(items: int = 2) -> int:
    """Count."""
    return items


@app.job(engine=None)
def stock(ctx: Job, items: int = 2) -> list[dict[str, int]]:
    """Take stock."""
    return [{"item": item} for item in range(items)]
