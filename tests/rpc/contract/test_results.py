"""Results of handlers, which are checked like parameters before they are sent."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import InitVar, dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple

import anyio
import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    computed_field,
    field_serializer,
    field_validator,
)
from typing_extensions import TypedDict

from nebula import JobEnded, RemoteError, Responder, VerbError, in_avro, verb
from nebula.avro import Schema
from nebula.rpc.contract.results import BadResult, ResultContract
from nebula.rpc.contract.signature import Signature
from nebula.rpc.http_problems import status_of
from nebula.rpc.wire.json_types import Adapter
from nebula.testing import TestClient
from tests.own_logs import own_logs

pytestmark = pytest.mark.anyio
_DEADLINE = 20


@dataclass
class Trade:
    price: float
    qty: Annotated[int, Field(gt=0)] = 1


@dataclass
class Derived:
    gross: float
    net: float = field(init=False)
    share: InitVar[float] = 0.5

    def __post_init__(self, share: float) -> None:
        self.gross *= 2
        self.net = self.gross * share


class Plain(BaseModel):
    price: float


class Scalars(BaseModel):
    text: str = "x"
    number: Annotated[int, Field(gt=0)] = 1
    share: float = Field(0.5, alias="part")
    is_open: bool = True


class Written(Scalars):
    @field_serializer("number")
    def in_words(self, number: int) -> str:
        return f"{number} of them"


class Computed(Scalars):
    @computed_field
    def twice(self) -> int:
        return self.number * 2


class Open(Scalars):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, int]


class Quote(BaseModel):
    price: float
    trade: Trade | None = None
    note: str | None = None


class Colour(StrEnum):
    RED = "red"


class Painted(BaseModel):
    model_config = ConfigDict(use_enum_values=True)
    colour: Colour


class Doubling(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def double(cls, number: int) -> int:
        return number * 2


class OneWay(BaseModel):
    model_config = ConfigDict(extra="forbid")
    price: Decimal = Field(serialization_alias="preis")

    @field_serializer("price")
    def in_words(self, price: Decimal) -> str:
        return f"{price} EUR"

    @computed_field
    def twice(self) -> Decimal:
        return self.price * 2


class Endless(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="strings")
    price: float


class Pair(NamedTuple):
    a: int
    b: str


class Row(TypedDict):
    a: int


@pytest.mark.parametrize(
    ("kind", "result", "written"),
    [
        (int, "2", "2"),
        (Decimal, 1.5, '"1.5"'),
        (list[int], (1, 2), "[1,2]"),
        (Quote, {"price": "1.5"}, '{"price":1.5,"trade":null,"note":null}'),
        (Quote, Quote(price=1, trade=Trade(2)), '{"price":1.0,"trade":{"price":2.0,"qty":1},"note":null}'),
        (Trade, Trade(1), '{"price":1.0,"qty":1}'),
        (Pair, Pair(1, "x"), '[1,"x"]'),
        (Row, {"a": 1}, '{"a":1}'),
        (Iterable[int], [1, 2], "[1,2]"),
        (bytes, b"\xff", '"_w=="'),
        (Painted, Painted(colour=Colour.RED), '{"colour":"red"}'),
        (Doubling, Doubling(number=1), '{"number":2}'),
        (OneWay, OneWay(price=Decimal(1)), '{"preis":"1 EUR","twice":"2"}'),
        (Derived, Derived(1.0), '{"gross":2.0}'),
        (list[Derived], [Derived(1.0)], '[{"gross":2.0}]'),
        (Endless, Endless(price=math.nan), '{"price":"NaN"}'),
        (Any, {"text": "NaN and null", "none": None}, '{"text":"NaN and null","none":null}'),
        (float | None, None, "null"),
        (dict[str, bytes | None], {"a": b"\xff", "b": None}, '{"a":"_w==","b":null}'),
    ],
)
def test_result_that_is_allowed_is_converted_and_written(kind: Any, result: Any, written: str) -> None:
    assert ResultContract(kind).write(result).decode() == written


@pytest.mark.parametrize(
    ("kind", "result", "place"),
    [
        (int, "two", ""),
        (int, None, ""),
        (None, 1, ""),
        (Literal["a"], "b", ""),
        (list[int], [1, "x"], "1"),
        (Iterable[int], [1, "x"], "1"),
        (dict[str, Iterable[int]], {"a": [1, "x"]}, ""),
        (Annotated[int, Field(gt=0)], 0, ""),
        (Quote, {"price": "dear"}, "price"),
        (Quote, Trade(1), ""),
        (Quote, Quote.model_construct(price="dear"), "price"),
        (Plain, Plain.model_construct(price="dear"), "price"),
        (list[Quote], [Quote(price=1), Quote.model_construct(price="dear")], "1.price"),
        (Trade, Trade("dear"), "price"),  # type: ignore[arg-type]  # as it must not be
        (Trade, Trade(1, qty=-1), "qty"),
        (dict[str, list[Trade]], {"a": [Trade(1, qty=-1)]}, "a.0.qty"),
        (Row, {"b": 1}, "a"),
        (Any, object(), ""),
        (float, math.nan, ""),
        (float | None, math.inf, ""),
        (Quote, Quote(price=math.nan), "price"),
        (Any, {"rows": [1.0, -math.inf]}, "rows.1"),
        (dict[int, float], {1: math.nan}, "1"),
    ],
)
def test_result_that_is_not_allowed_is_bad_at_its_field(kind: Any, result: Any, place: str) -> None:
    with pytest.raises(BadResult) as caught:
        ResultContract(kind).write(result)

    assert caught.value.code == "bad-result"
    assert caught.value.field == place
    assert "dear" not in f"{caught.value.message}{caught.value.details}"


@pytest.mark.parametrize("kind", [Scalars, Written, Computed, Open])
@pytest.mark.parametrize("name", [*Scalars.model_fields, "other"])
@pytest.mark.parametrize("value", ["x", "1", 1, 0, 2.5, True, None, b"x", [1], Colour.RED, math.nan])
def test_model_of_scalars_is_written_as_pydantic_does_it(kind: type[Scalars], name: str, value: Any) -> None:
    model = kind.model_construct(**{name: value})
    adapter = Adapter(kind)

    def outcome(write: Callable[[], bytes]) -> bytes | None:
        try:
            return write()
        except ValueError:
            return None

    told = outcome(lambda: TypeAdapter(kind).dump_json(model, by_alias=True, warnings="error"))
    assert outcome(lambda: adapter.write(model, is_exact=True)) == told


class Revalidated(Plain):
    model_config = ConfigDict(revalidate_instances="always")


class Cheap(Plain):
    pass


def test_model_that_checked_itself_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    contract = ResultContract(Plain)
    taken: list[Any] = []
    take = contract.adapter.take

    def note(value: Any) -> Any:
        taken.append(value)
        return take(value)

    monkeypatch.setattr(contract.adapter, "take", note)

    assert contract.write(Plain(price=1)) == b'{"price":1.0}'
    assert not taken
    # Other classes may be anything.
    contract.write(Cheap(price=1))
    assert taken == [Cheap(price=1)]


@pytest.mark.parametrize("kind", [Plain, Revalidated])
def test_model_that_was_changed_is_refused(kind: type[Plain]) -> None:
    changed = kind(price=1)
    changed.price = "dear"  # type: ignore[assignment]  # the mistake that is tested

    with pytest.raises(BadResult) as refused:
        ResultContract(kind).write(changed)

    assert refused.value.field == "price"


def test_result_that_is_not_checked_goes_by_its_own_type() -> None:
    contract = ResultContract(int, checks=False)

    assert contract.write("not an int") == b'"not an int"'
    assert contract.write(math.nan) == b"null"


def test_avro_carries_what_json_cannot() -> None:
    schema = Schema("double")

    @in_avro(result=schema)
    def quote() -> float: ...  # type: ignore[empty-body]

    signature = Signature(quote)

    assert signature.dump_avro(math.nan)
    with pytest.raises(BadResult):
        signature.dump_avro("dear")


app = Responder("results")


@app.verb
async def price() -> float:
    return "dear"  # type: ignore[return-value]  # the bug that is looked for


@app.verb
def nothing() -> int:
    return None  # type: ignore[return-value]  # the bug that is looked for


@app.verb
async def endless() -> dict[str, float]:
    return {"mean": math.nan}


@app.verb(validate_results=False)
async def unchecked() -> int:
    return "dear"  # type: ignore[return-value]  # as it may


@app.verb
async def items() -> AsyncIterator[Trade]:
    yield Trade(1)
    yield Trade(2)
    yield Trade(3, qty=-1)


@app.verb
def plain_items() -> Iterator[int]:
    yield 1
    yield "dear"  # type: ignore[misc]  # the bug that is looked for


@pytest.mark.parametrize(
    ("function", "place", "problem"),
    [
        (price, "", "Input should be a valid number, unable to parse string as a number"),
        (nothing, "", "Input should be a valid integer"),
        (endless, "mean", "Input should be a finite number"),
    ],
)
async def test_bad_result_is_answered_logged_and_counted(
    function: Callable[..., Any], place: str, problem: str
) -> None:
    name = function.__name__
    with own_logs() as logged, anyio.fail_after(_DEADLINE):
        async with TestClient(app) as client:
            with pytest.raises(RemoteError) as caught:
                await client.call(function)
            stats = await client.call("results", "stats")

    assert caught.value.code == "bad-result"
    assert not caught.value.retryable
    (told,) = [one for one in logged if one["event"] == "bad result returned"]
    assert (told["verb"], told["field"], told["problem"]) == (name, place, problem)
    assert told["log_level"] == "error"
    assert (stats["verbs"][name]["errors"], stats["verbs"][name]["bad_results"]) == (1, 1)
    assert status_of("bad-result") == 500


async def test_verb_may_leave_its_results_unchecked() -> None:
    with anyio.fail_after(_DEADLINE):
        async with TestClient(app) as client:
            assert await client.call("results", "unchecked") == "dear"


async def test_items_before_a_bad_one_are_received() -> None:
    found = []
    with anyio.fail_after(_DEADLINE):
        async with TestClient(app) as client:
            with pytest.raises(RemoteError, match="bad-result"):  # noqa: PT012  # in which turn, nobody knows
                async with client.stream(items) as stream:
                    async for one in stream:
                        found.append(one)
            with pytest.raises(RemoteError, match="bad-result"):
                await client.call("results", "plain_items")

    assert found == [Trade(1), Trade(2)]


async def test_error_that_another_service_answered_is_not_this_services_own() -> None:
    front = Responder("front")

    @front.verb
    async def ask() -> float:
        raise RemoteError("bad-result", "of another service")

    with anyio.fail_after(_DEADLINE):
        async with TestClient(front) as client:
            with pytest.raises(RemoteError) as caught:
                await client.call(ask)

    assert caught.value.code == "upstream-error"


@verb(validate_results=False)
def collected() -> int:
    return "dear"  # type: ignore[return-value]  # as it may


async def test_collected_verb_may_leave_its_results_unchecked() -> None:
    class Holder:
        collected = staticmethod(collected)

    one = Responder("holders")
    one.include(Holder())
    with anyio.fail_after(_DEADLINE):
        async with TestClient(one) as client:
            assert await client.call("holders", "collected") == "dear"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_job_with_a_bad_result_fails_before_it_is_done(tmp_path: Any) -> None:
    jobs = Responder("reports", state=tmp_path)

    @jobs.job(engine=None)
    async def count() -> int:
        return "dear"  # type: ignore[return-value]  # the bug that is looked for

    @jobs.job(engine=None)
    def mean() -> dict[str, float]:
        return {"mean": math.nan}

    @jobs.job(engine=None, validate_results=False)
    def loose() -> int:
        return "dear"  # type: ignore[return-value]  # as it may

    with anyio.fail_after(_DEADLINE):
        async with TestClient(jobs) as client:
            for function, told in ((count, "valid integer"), (mean, "mean: Input should be a finite")):
                handle = await client.start(function)
                with pytest.raises(JobEnded) as caught:
                    await handle.result()
                assert caught.value.code == "bad-result"
                assert told in str(caught.value)
                status = await handle.status()
                assert status.state == "failed"
            handle = await client.start("reports", "loose")
            assert await handle.result() == "dear"


def test_bad_result_is_an_error_with_a_code() -> None:
    error = BadResult("price", "Input should be a valid number")

    assert isinstance(error, VerbError)
    assert json.dumps(error.details) == "null"
