"""Every type that a handler may take and return: called by function, by name, and through a stub."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from types import ModuleType
from typing import Any, Literal, NamedTuple
from uuid import UUID

import anyio
import pytest
from pydantic_core import from_json

from nebula.codegen.module import write_stubs
from nebula.rpc.client.client import Client
from nebula.rpc.contract.signature import PARAMETER_NAME, Signature
from nebula.rpc.service.responder import Responder
from nebula.rpc.wire.envelope import dump_json
from tests.rpc.conftest import Serving
from tests.rpc.depot import Card, Cash, Level, Mixed, Options, Order, Payment, Point, Receipt, Scores, Side
from tests.rpc.described import described
from tests.rpc.stubs import imported

ORDER = Order(symbol="é", payment=Cash(coins=3), points=[Point(1, 2, ["a"], b"\xfe")], photo=b"\x00\xff")


class Pair(NamedTuple):
    left: int
    right: str


# A name, a type, and values of it.
TYPES: list[tuple[str, Any, list[Any]]] = [
    ("text", str, ["", "é", "[1]"]),
    ("number", int, [0, -(2**70)]),
    ("real", float, [1.5]),
    ("flag", bool, [True, False]),
    ("octets", bytes, [b"", b"plain", b"\x00\xff\xfe"]),
    ("exact", Decimal, [Decimal("1.50"), Decimal("-0.1")]),
    ("moment", datetime, [datetime(2026, 11, 21, 12, tzinfo=UTC), datetime(2026, 11, 21)]),  # noqa: DTZ001
    ("day", date, [date(2026, 11, 21)]),
    ("hour", time, [time(12, 30)]),
    ("span", timedelta, [timedelta(days=1, microseconds=3), timedelta(seconds=-1)]),
    ("ident", UUID, [UUID(int=9)]),
    ("word", Literal["a", 1], ["a", 1]),
    ("side", Side, list(Side)),
    ("level", Level, list(Level)),
    ("mixed", Mixed, list(Mixed)),
    ("maybe", int | None, [1]),
    ("either", int | str, [1, "one"]),
    ("numbers", list[int], [[], [1, 2]]),
    ("chunks", list[bytes], [[b"\xff", b""]]),
    ("names", set[str], [{"a"}]),
    ("pair", tuple[int, str], [(1, "a")]),
    ("named_pair", Pair, [Pair(1, "a")]),
    ("by_name", dict[str, Decimal], [{"a": Decimal(1)}]),
    ("by_day", dict[date, int], [{date(2026, 11, 21): 1}]),
    ("anything", Any, [{"a": [1, None]}, 7]),
    ("point", Point, [Point(1), Point(1, 2, ["a"], b"\xfe")]),
    ("points", list[Point], [[Point(1)]]),
    ("options", Options, [{"fast": True}, {"fast": False, "note": "n"}]),
    ("order", Order, [ORDER, ORDER.model_copy(update={"parts": [ORDER], "place": Point(5)})]),
    ("receipt", Receipt, [Receipt(order=ORDER, total=Decimal(20))]),
    ("payment", Payment, [Card(number="1"), Cash(coins=2)]),
    ("payments", list[Payment | None], [[Card(number="1"), None]]),
    ("scores", Scores, [Scores({"a": 1})]),
]
CASES = [
    pytest.param(name, value, id=f"{name}-{at}")
    for name, _, values in TYPES
    for at, value in enumerate(values)
]


def echo_of(kind: Any) -> Callable[..., Any]:
    """A handler that takes one value of a type and returns it."""

    def echo(value: Any) -> Any:
        return value

    echo.__annotations__ = {"value": kind, "return": kind}
    return echo


@pytest.fixture(scope="module")
def app() -> Responder:
    app = Responder("echoes")
    for name, function in FUNCTIONS.items():
        app.verb(name=name)(function)
    return app


FUNCTIONS = {name: echo_of(kind) for name, kind, _ in TYPES}
KINDS = {name: kind for name, kind, _ in TYPES}


def named(name: str, value: Any) -> Any:
    """The parameters of a call by name: a single model or list is sent as it is."""
    schema = Signature(FUNCTIONS[name]).parameters_schema()
    return value if PARAMETER_NAME in schema else {"value": value}


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "value"), CASES)
async def test_value_comes_back_from_a_call_by_function_and_by_name(
    name: str, value: Any, app: Responder, serving: Serving, client: Client
) -> None:
    with anyio.fail_after(10):
        async with serving(app):
            by_function = await client.call(FUNCTIONS[name], value)
            by_name = await client.call("echoes", name, named(name, value), result=KINDS[name])

    assert by_function == by_name == value
    assert type(by_function) is type(value)


@pytest.fixture(scope="module")
def stub(app: Responder, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The stub of that service, imported."""
    verbs = described(app)["verbs"]
    text = write_stubs({"service": "echoes", "queues": ["/queue/echoes"], "verbs": verbs})
    path = tmp_path_factory.mktemp("stub") / "echoes_client.py"
    path.write_text(text)
    return imported(path)


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "value"), CASES)
async def test_value_comes_back_through_a_stub(
    name: str, value: Any, app: Responder, stub: ModuleType, serving: Serving, client: Client
) -> None:
    function = getattr(stub, name)
    # As the stub's own types have it: its models are not the service's.
    given = Signature(function).load(from_json(Signature(FUNCTIONS[name]).dump(value)))

    with anyio.fail_after(10):
        async with serving(app):
            answer = await client.call(function, given)

    assert answer == given
    assert from_json(dump_json(answer)) == from_json(Signature(FUNCTIONS[name]).dump(value))
