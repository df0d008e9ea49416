"""Verbs as people read them: signatures from schemas, and examples of calls that are valid."""

from __future__ import annotations

import datetime as dt
import enum
import json
import shlex
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, Field
from typing_extensions import deprecated

from nebula.cli.arguments import parse_parameters
from nebula.cli.signatures import call_line, curl_line, parameters_of, signature_of
from nebula.rpc.contract.verbs import Verb


class Color(enum.StrEnum):
    RED = "red"


class Item(BaseModel):
    name: str
    color: Color
    qty: int = 1


def quote(symbol: str, qty: int = 1, limit: Decimal | None = None) -> Decimal:
    raise NotImplementedError


def place(item: Item) -> dict[str, list[Item]]:
    raise NotImplementedError


def total(items: list[int]) -> None: ...
def nothing() -> None: ...


def times(day: dt.date, at: dt.datetime, took: dt.timedelta, who: UUID, body: bytes) -> None: ...


def limits(
    side: Literal["buy", "sell"],
    qty: Annotated[int, Field(ge=5, description="How many.")],
    old: Annotated[int, Field(deprecated="no use")] = 0,
) -> None: ...


def orders(first: Item, others: list[Item], by: dict[str, float], price: Decimal, is_on: bool) -> None: ...


def described(function: Any) -> dict[str, Any]:
    return Verb(function).describe()


@pytest.mark.parametrize(
    ("function", "signature"),
    [
        (quote, "quote(symbol: str, qty: int = 1, limit: Decimal | None = None) -> Decimal"),
        (place, "place(item: Item) -> dict[str, list[Item]]"),
        (total, "total(items: list[int]) -> None"),
        (nothing, "nothing() -> None"),
        (limits, "limits(side: 'buy' | 'sell', qty: int) -> None"),
    ],
)
def test_signature_is_that_of_the_function(function: Any, signature: str) -> None:
    assert signature_of(described(function)) == signature


def test_long_signature_has_a_line_for_each_parameter() -> None:
    lines = signature_of(described(orders)).splitlines()

    assert lines[0] == "orders("
    assert lines[1] == "    first: Item,"
    assert lines[-1] == ") -> None"
    assert max(map(len, lines)) < 80


def test_parameters_have_limits_and_descriptions() -> None:
    notes = {one.name: one.note for one in parameters_of(described(limits))}

    assert notes == {"side": "", "qty": ">= 5; How many.", "old": "deprecated: no use"}


@pytest.mark.parametrize("function", [quote, place, total, nothing, times, limits, orders])
def test_example_is_a_call_that_the_verb_takes(function: Any) -> None:
    verb = Verb(function)

    command = shlex.split(call_line("shop", verb.describe()))
    curl = shlex.split(curl_line("shop", verb.describe(), "http://127.0.0.1:61680"))

    assert command[:4] == ["nebula", "call", "shop", function.__name__]
    given = parse_parameters(command[4:])
    verb.signature.bind(given)
    url = f"http://127.0.0.1:61680/call/shop/{function.__name__}"
    assert curl == ["curl", "--json", json.dumps(given) if given else "", url]


def test_example_of_a_stream_reads_it_as_it_comes() -> None:
    async def ticks(symbol: str) -> AsyncIterator[int]:
        yield 1

    verb = Verb(ticks).describe()

    assert call_line("shop", verb) == "nebula stream shop ticks symbol=text"
    assert shlex.split(curl_line("shop", verb, "http://h")) == [
        "curl", "-N", "-H", "Accept: application/x-ndjson", "--json", '{"symbol": "text"}',
        "http://h/call/shop/ticks",
    ]  # fmt: skip


def test_words_that_a_shell_would_obey_are_quoted() -> None:
    line = call_line("shop", {"verb": "a; rm -rf ~", "parameters": {"type": "object"}, "result": {}})

    assert line == "nebula call shop 'a; rm -rf ~'"


def test_deprecated_verb_is_still_described() -> None:
    @deprecated("use `place`")
    def put(item: Item) -> None: ...

    assert signature_of(described(put)) == "put(item: Item) -> None"


@pytest.mark.parametrize("schema", [True, {}, {"type": "object", "properties": {"x": True}}])
def test_schema_that_says_little_is_any(schema: Any) -> None:
    verb = {"verb": "v", "parameters": schema if isinstance(schema, dict) else {}, "result": True}

    assert signature_of(verb) in ("v()", "v(x: Any = …)")
