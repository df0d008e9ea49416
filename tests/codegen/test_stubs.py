"""Stubs: what `nebula stubs` writes, and that it works as the handler's own code would."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import warnings
from collections.abc import AsyncGenerator, Iterator
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar
from uuid import UUID

import anyio
import pytest
from pydantic import BaseModel

from nebula.codegen.module import write_stubs
from nebula.rpc.client.client import Client
from nebula.rpc.contract.verbs import Verb
from nebula.rpc.errors import VerbError
from tests.rpc import depot
from tests.rpc.conftest import Serving
from tests.rpc.described import described
from tests.rpc.stubs import imported

T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    value: T


class Tree(BaseModel):
    branches: list[Tree] = []


def description(**verb: Any) -> dict[str, Any]:
    """What a service with one verb says of itself."""
    told = {"verb": "look", "description": "", "parameters": {}, "result": {}, "response": "looked"}
    return {"service": "shop", "queues": ["/queue/shop"], "verbs": [told | verb]}


def parameters(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    verbs = described(depot.app)["verbs"]
    return {"service": "depot", "queues": ["/queue/depot"], "verbs": verbs}


@pytest.fixture(scope="module")
def path(told: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stub") / "depot_client.py"
    path.write_text(write_stubs(told))
    return path


@pytest.fixture(scope="module")
def stub(path: Path) -> ModuleType:
    return imported(path)


@pytest.fixture
async def calling(serving: Serving, client: Client) -> AsyncGenerator[Client]:
    """A client, while the depot runs."""
    async with serving(depot.app):
        yield client


@pytest.fixture(autouse=True)
def deadline() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        yield


@pytest.mark.anyio
async def test_stub_calls_the_real_service(calling: Client, stub: ModuleType) -> None:
    with anyio.fail_after(10):
        assert await calling.call(stub.price, "lamp", qty=2) == Decimal("2.50")
        assert await calling.call(stub.price, "lamp", side=stub.Side.SELL, limit=Decimal(3)) == -3
        assert await calling.call(stub.list_, {"fast": True}, ident=UUID(int=3)) == (
            stub.Options(fast=True),
            UUID(int=3),
        )
        assert await calling.call(stub.echo, b"\xff", chunks=[b"\x00"]) == b"\xff\x00"
        assert await calling.call(stub.close) is None


@pytest.mark.anyio
async def test_models_of_a_stub_are_sent_with_the_services_defaults(
    calling: Client, stub: ModuleType
) -> None:
    order = stub.Order(symbol="A", payment=stub.Cash(coins=2), copies=3)

    with anyio.fail_after(10):
        receipt = await calling.call(stub.place, order)

    assert receipt.total == Decimal("4.50")
    assert receipt.tax == Decimal("0.45")
    assert receipt.order.payment == stub.Cash(coins=2)
    assert receipt.order.points == []
    assert receipt.order.place == stub.Point(x=1, tags=[])


@pytest.mark.anyio
async def test_what_nobody_set_is_left_to_the_service_and_what_was_filled_in_place_is_sent(
    calling: Client, stub: ModuleType
) -> None:
    bare, filled = stub.Point(x=1), stub.Point(x=2)
    filled.tags.append("new")

    assert bare.model_dump() == {"x": 1}
    assert filled.model_dump() == {"x": 2, "tags": ["new"]}
    with anyio.fail_after(10):
        answer = await calling.call(getattr(stub, "price_list"), [bare, filled])  # noqa: B009

    assert [one.tags for one in answer] == [["new"], []]


@pytest.mark.anyio
async def test_union_of_models_is_told_apart_by_its_tag(calling: Client, stub: ModuleType) -> None:
    with anyio.fail_after(10):
        paid = await calling.call(stub.pay, stub.Card(number="7"))
        unpaid = await calling.call(stub.pay, stub.Card(number="7"), then=stub.Mixed.NUMBER)

    assert paid == stub.Card(number="7")
    assert unpaid is None


@pytest.mark.anyio
@pytest.mark.parametrize(("item", "qty", "error"), [("lamp", 101, "OutOfStock"), ("ghost", 1, "GhostsOnly")])
async def test_declared_error_is_raised_as_the_stubs_class(
    calling: Client, stub: ModuleType, item: str, qty: int, error: str
) -> None:
    kind = getattr(stub, error)
    assert issubclass(kind, VerbError)

    with anyio.fail_after(10), pytest.raises(kind) as caught:
        await calling.call(stub.price, item, qty=qty)

    assert caught.value.details == ({"left": 100} if error == "OutOfStock" else None)
    assert caught.value.retryable is (error == "OutOfStock")


@pytest.mark.anyio
async def test_deprecated_verb_or_parameter_warns_who_calls_it(calling: Client, stub: ModuleType) -> None:
    with anyio.fail_after(10):
        with pytest.warns(DeprecationWarning, match=r"cost is deprecated: ask `price` instead") as verb:
            assert await calling.call(stub.cost, "lamp") == 1.5
        with pytest.warns(DeprecationWarning, match=r"colour is deprecated: all are grey"):
            await calling.call(stub.price, "lamp", colour="red")

    assert verb[0].filename == __file__


@pytest.mark.anyio
async def test_stream_of_a_stub_is_read_item_by_item(calling: Client, stub: ModuleType) -> None:
    with anyio.fail_after(10):
        found = [item async for item in calling.stream(stub.ticks, stub.Point(x=5), count=2)]

    assert [type(item) for item in found] == [stub.Point, stub.Point]
    assert [item.x for item in found] == [5, 6]


@pytest.mark.anyio
async def test_job_of_a_stub_is_started(calling: Client, stub: ModuleType) -> None:
    with anyio.fail_after(10):
        job = await calling.start(stub.stock, items=1)
        assert await job.result(list[dict[str, int]]) == [{"item": 0}]
        with pytest.warns(DeprecationWarning, match="count is deprecated: take `stock`"):
            job = await calling.start(stub.count, items=3)
        assert await job.result(int) == 3


def test_stub_has_docstrings_types_and_defaults(stub: ModuleType) -> None:
    signature = inspect.signature(stub.price)

    assert stub.price.__doc__.startswith("Price of `qty` pieces.\n")
    assert stub.Order.__doc__.startswith("The things to bring.\n")
    assert '\\ and """ in it' in stub.Order.__doc__
    assert stub.Side.__doc__ == "Buy or sell."
    assert [str(one) for one in signature.parameters.values()][:4] == [
        "item: 'str'",
        "qty: 'Annotated[int, Field(ge=1)]' = 1",
        "side: 'Side' = <Side.BUY: 'buy'>",
        "limit: 'Decimal | None' = None",
    ]
    assert stub.OutOfStock.__doc__ == "There are not so many left."


def test_models_of_a_stub_have_the_services_defaults(stub: ModuleType) -> None:
    theirs = depot.Order(symbol="A", payment=depot.Cash())
    ours = stub.Order(symbol="A", payment=stub.Cash())

    for name in set(depot.Order.model_fields) - {"points", "place", "payment", "options", "parts", "old"}:
        assert getattr(ours, name) == getattr(theirs, name)
    assert issubclass(stub.Mixed, Enum)
    assert [(one.name, one.value) for one in stub.Mixed] == [("NUMBER", 7), ("WORD", "seven")]


def test_verbs_of_the_framework_are_left_out(told: dict[str, Any], stub: ModuleType) -> None:
    assert "ping" in [verb["verb"] for verb in told["verbs"]]
    assert not hasattr(stub, "ping")
    assert not hasattr(stub, "describe")


def test_same_description_gives_the_same_text(told: dict[str, Any]) -> None:
    assert write_stubs(told) == write_stubs(told | {"verbs": told["verbs"][::-1]})


def get(symbol: str) -> depot.Order: ...  # type: ignore[empty-body]


def change(value: depot.Order) -> depot.Order: ...  # type: ignore[empty-body]


def change_all(value: list[depot.Order]) -> list[depot.Order]: ...  # type: ignore[empty-body]


def move(value: depot.Point) -> depot.Point: ...  # type: ignore[empty-body]


def fill(value: Box[depot.Point]) -> Box[depot.Point]: ...  # type: ignore[empty-body]


def turn(value: depot.Side) -> depot.Side: ...  # type: ignore[empty-body]


def grow(value: Tree) -> Tree: ...  # type: ignore[empty-body]


def test_what_one_verb_answers_another_takes() -> None:
    verbs = [Verb(one).describe() for one in (get, change, change_all, move, fill, turn, grow)]
    module = ast.parse(write_stubs({"service": "shop", "queues": ["/queue/shop"], "verbs": verbs}))

    written = [node for node in module.body if isinstance(node, ast.AsyncFunctionDef)]
    results = {one.name: ast.unparse(one.returns or ast.Name("?")) for one in written}
    taken = {one.name: ast.unparse(one.args.args[0].annotation or ast.Name("?")) for one in written}
    assert taken.pop("get") == "str"
    assert results.pop("get") == "Order"
    assert results == taken
    assert results["turn"] == "Side"
    assert {one.name for one in module.body if isinstance(one, ast.ClassDef)} >= {"BoxPoint", "Tree"}


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_stub_is_formatted_and_passes_strict_type_checkers(path: Path, told: dict[str, Any]) -> None:
    (path.parent / "use.py").write_text(USE)
    programs = [
        ["ruff", "format", "--isolated", "--check", "--diff", str(path)],
        ["ruff", "check", "--isolated", "--select", "F,E4,E7,E9,I,UP,B,PIE", str(path)],
        ["mypy", "--strict", "--no-incremental", "--python-version", "3.11", "depot_client.py", "use.py"],
        ["basedpyright", "--pythonpath", sys.executable, "--level", "error", "depot_client.py", "use.py"],
    ]
    (path.parent / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    for words in programs:
        ended = subprocess.run(
            [sys.executable, "-m", *words], cwd=path.parent, capture_output=True, text=True, check=False
        )

        assert ended.returncode == 0, ended.stdout + ended.stderr


USE = """
from decimal import Decimal
from typing import assert_type

import depot_client
from nebula import Client
from nebula.sync import Client as SyncClient


async def use(client: Client) -> None:
    assert_type(await client.call(depot_client.price, "lamp", qty=2), Decimal)
    order = depot_client.Order(symbol="A", payment=depot_client.Cash(), class_="y")
    receipt = await client.call(depot_client.place, order)
    assert_type(receipt.order.side, depot_client.Side)
    assert_type(receipt.total, Decimal)


def use_sync(client: SyncClient) -> None:
    assert_type(client.call(depot_client.echo, b""), bytes)
"""


@pytest.mark.parametrize(
    "name", ["list", "class", "Decimal", "price.list", "1st", "a b", "Remote", "shop", "é"]
)
def test_verb_of_any_name_gets_a_function(name: str) -> None:
    module = ast.parse(
        write_stubs(description(verb=name, result={"type": "array", "items": {"type": "string"}}))
    )

    functions = [node for node in module.body if isinstance(node, ast.AsyncFunctionDef)]
    assert len(functions) == 1
    assert ast.unparse(functions[0].returns or ast.Name("?")) == "list[str]"
    if functions[0].name != name:
        assert f"name={name!r}" in ast.unparse(functions[0].decorator_list[0])


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"enum": ["a", 1, None]}, 'Literal["a", 1, None]'),
        ({"const": True}, "Literal[True]"),
        ({"enum": []}, "Any"),
        ({"enum": [1.5]}, "Any"),
        ({"type": ["string", "null"]}, "str | None"),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "int | None"),
        ({"allOf": [{"type": "string", "format": "uuid"}]}, "UUID"),
        ({"type": "object"}, "dict[str, Any]"),
        ({"type": "array"}, "list[Any]"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "title": "Made here"}, "MadeHere"),
        ({"$ref": "#/$defs/Json"}, "list[Any] | str"),
        ({"$ref": "#/$defs/Gone"}, "Any"),
    ],
)
def test_schema_of_a_stranger_has_a_type_too(schema: dict[str, Any], shown: str) -> None:
    alias = {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/Json"}}, {"type": "string"}]}

    text = write_stubs(description(result=schema | {"$defs": {"Json": alias}}))

    assert f"-> {shown}:" in text


@pytest.mark.parametrize("required", [[], ["Status"]])
@pytest.mark.parametrize("default", [{}, {"default": "open"}])
def test_field_does_not_hide_the_class_that_it_is_called_after(
    required: list[str], default: dict[str, str], tmp_path: Path
) -> None:
    status = {"title": "Status", "type": "string", "enum": ["open", "shut"]}
    fields = {
        "Status": {"$ref": "#/$defs/Status", **default},
        "Status_": {"type": "integer"},
        "Other": {"$ref": "#/$defs/Status"},
    }
    order = {"title": "Order", "type": "object", "properties": fields, "required": required}
    result = {"$ref": "#/$defs/Order", "$defs": {"Order": order, "Status": status}}
    path = tmp_path / f"hidden_{len(required)}_{len(default)}_client.py"
    path.write_text(write_stubs(description(result=result)))

    module = imported(path)

    got = module.Order.model_validate({"Status": "shut", "Status_": 7, "Other": "open"})
    assert got.Other is module.Status.open
    assert got.model_dump(mode="json", by_alias=True) == {"Status": "shut", "Status_": 7, "Other": "open"}


def test_union_is_told_apart_also_where_its_tag_is_called_as_a_class(tmp_path: Path) -> None:
    def kind(name: str) -> dict[str, Any]:
        tag = {"const": name, "type": "string"}
        return {"title": name, "type": "object", "properties": {"Card": tag}, "required": ["Card"]}

    payment = {
        "oneOf": [{"$ref": "#/$defs/Card"}, {"$ref": "#/$defs/Cash"}],
        "discriminator": {"propertyName": "Card"},
    }
    holder = {"title": "Holder", "type": "object", "properties": {"payment": payment}}
    definitions = {"Card": kind("Card"), "Cash": kind("Cash"), "Holder": holder}
    path = tmp_path / "tagged_client.py"
    path.write_text(write_stubs(description(result={"$ref": "#/$defs/Holder", "$defs": definitions})))

    module = imported(path)

    assert isinstance(module.Holder.model_validate({"payment": {"Card": "Cash"}}).payment, module.Cash)


def test_two_models_of_one_name_become_two_classes() -> None:
    def order(kind: str) -> dict[str, Any]:
        fields = {"at": {"type": kind}}
        model = {"title": "Order", "type": "object", "properties": fields, "required": ["at"]}
        return {"$defs": {"Order": model}, **parameters(order={"$ref": "#/$defs/Order"})}

    told = description(parameters=order("string"))
    told["verbs"] += description(verb="other", parameters=order("integer"))["verbs"]
    told["verbs"] += description(verb="same", parameters=order("string"))["verbs"]

    assert [name for name in classes_of(told) if name.startswith("Order")] == ["Order", "Order_"]


def test_model_of_a_request_and_of_its_reply_is_one_class(told: dict[str, Any]) -> None:
    names = classes_of(told)

    assert names.count("Order") == 1
    assert [name for name in names if name.endswith(("Result", "_"))] == []


def classes_of(told: dict[str, Any]) -> list[str]:
    return [node.name for node in ast.parse(write_stubs(told)).body if isinstance(node, ast.ClassDef)]


@pytest.mark.parametrize(
    "text",
    ['"""\nimport os\n"""', "\\", 'ends with "', "a\n  b\n\n", "tab\there", '\\\\"""', "'''", "\x00"],
)
def test_text_of_a_stranger_stays_a_docstring(text: str) -> None:
    model = {
        "title": "Thing",
        "description": text,
        "type": "object",
        "properties": {"a": {"description": text}},
    }
    told = description(
        description=text,
        parameters={
            "$defs": {"Thing": model},
            **parameters(thing={"$ref": "#/$defs/Thing", "description": text}),
        },
        errors=[{"code": "sold-out", "description": text, "retryable": False}],
    )

    module = ast.parse(write_stubs(told))

    kinds = (ast.Expr, ast.ImportFrom, ast.Assign, ast.ClassDef, ast.AsyncFunctionDef)
    assert all(isinstance(node, kinds) for node in module.body)
    assert not [node for node in ast.walk(module) if isinstance(node, ast.Import)]


@pytest.mark.parametrize(
    "odd",
    [
        "x = 1",
        "a: int = 0; import os",
        "#/$defs/Nobody",
        'Literal["a"]',
    ],
)
def test_names_of_a_stranger_do_not_become_code(odd: str) -> None:
    model = {
        "title": odd,
        "type": "object",
        "properties": {odd: {"type": "string", "title": odd}},
        "required": [odd],
    }
    enum = {"title": odd, "enum": ["a", odd], "type": "string", "x-enum-varnames": ["a", odd]}
    told = description(
        verb=odd,
        parameters={
            "$defs": {"A": model, "B": enum},
            **parameters(a={"$ref": "#/$defs/A"}, b={"$ref": "#/$defs/B", "default": odd}),
        },
        errors=[{"code": odd, "description": "", "retryable": False}],
    )

    module = ast.parse(write_stubs(told))

    kinds = (ast.Expr, ast.ImportFrom, ast.Assign, ast.ClassDef, ast.AsyncFunctionDef)
    assert [node for node in module.body if not isinstance(node, kinds)] == []
    assert not [node for node in ast.walk(module) if isinstance(node, ast.Import)]


def test_parameter_that_no_function_can_have_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match="parameter 'a-b'"):
        write_stubs(description(parameters=parameters(**{"a-b": {}})))


def test_recursive_model_refers_to_itself(tmp_path: Path) -> None:
    node = {
        "title": "Node",
        "type": "object",
        "properties": {"below": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
        "required": ["below"],
    }
    path = tmp_path / "recursive_client.py"
    path.write_text(
        write_stubs(
            description(parameters={"$defs": {"Node": node}, **parameters(node={"$ref": "#/$defs/Node"})})
        )
    )

    kind: type[BaseModel] = imported(path).Node

    assert kind.model_validate({"below": [{"below": []}]}).model_dump() == {"below": [{"below": []}]}


def test_stub_of_a_verb_with_a_queue_of_its_own_asks_there() -> None:
    assert 'queue="/queue/slow"' in write_stubs(description(queue="/queue/slow"))
    assert "queue=" not in write_stubs(description(queue="/queue/shop"))


def test_required_parameter_behind_one_with_a_default_goes_by_name() -> None:
    fields = parameters("b", a={"type": "integer", "default": 1}, b={"type": "string"})

    assert "async def look(a: int = 1, *, b: str) -> Any:" in write_stubs(description(parameters=fields))
