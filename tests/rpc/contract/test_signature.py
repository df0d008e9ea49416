"""A signature as a contract: binding, packing, results and schemas."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from nebula.rpc.contract.context import Request
from nebula.rpc.contract.results import BadResult
from nebula.rpc.contract.signature import Signature, job_signature
from nebula.rpc.errors import VerbError

if TYPE_CHECKING:
    from fractions import Fraction


class Order(BaseModel):
    symbol: str
    qty: int = 1


@dataclass
class Point:
    x: int
    y: int


class Options(TypedDict):
    fast: bool


def quote(symbol: str, qty: int = 1) -> Decimal: ...  # type: ignore[empty-body]
def shout(text: str) -> str: ...  # type: ignore[empty-body]
def double(value: int) -> int: ...  # type: ignore[empty-body]
def nothing() -> None: ...
def place(order: Order) -> Order: ...  # type: ignore[empty-body]
def maybe_place(order: Annotated[Order | None, "kept"] = None) -> None: ...
def total(rows: list[int]) -> int: ...  # type: ignore[empty-body]
def compare(first: Order, rows: list[int]) -> int: ...  # type: ignore[empty-body]
def tagged(labels: dict[str, str]) -> int: ...  # type: ignore[empty-body]
def on(day: date, *, exact: bool = False) -> None: ...
def bounded(qty: Annotated[int, Field(gt=0)]) -> None: ...
def untyped(value, other=None): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
def shadowing(json: str, copy: int, model_config: int = 1) -> None: ...


@pytest.mark.parametrize(
    ("function", "parameters", "expected"),
    [
        (quote, {"symbol": "ABC", "qty": 2}, {"symbol": "ABC", "qty": 2}),
        (quote, {"symbol": "ABC", "qty": "2"}, {"symbol": "ABC", "qty": 2}),
        (quote, {"symbol": "ABC"}, {"symbol": "ABC", "qty": 1}),
        (quote, ["ABC"], {"symbol": "ABC", "qty": 1}),
        (quote, ["ABC", 2], {"symbol": "ABC", "qty": 2}),
        (quote, "ABC", {"symbol": "ABC", "qty": 1}),
        (double, 0, {"value": 0}),
        (nothing, None, {}),
        (nothing, [], {}),
        (nothing, {}, {}),
        (place, {"symbol": "ABC"}, {"order": Order(symbol="ABC")}),
        (place, [{"symbol": "ABC"}], {"order": Order(symbol="ABC")}),
        (maybe_place, None, {"order": None}),
        (maybe_place, {"symbol": "ABC"}, {"order": Order(symbol="ABC")}),
        (total, [1, 2], {"rows": [1, 2]}),
        (total, [], {"rows": []}),
        (total, {"rows": [1]}, {"rows": [1]}),
        (compare, {"first": {"symbol": "A"}, "rows": [1]}, {"first": Order(symbol="A"), "rows": [1]}),
        (compare, [{"symbol": "A"}, [1]], {"first": Order(symbol="A"), "rows": [1]}),
        (tagged, {"labels": {"a": "b"}}, {"labels": {"a": "b"}}),
        (on, {"day": "2026-01-02", "exact": True}, {"day": date(2026, 1, 2), "exact": True}),
        (untyped, [{"any": 1}], {"value": {"any": 1}, "other": None}),
        (shadowing, {"json": "a", "copy": 1}, {"json": "a", "copy": 1, "model_config": 1}),
    ],
)
def test_parameters_become_arguments(
    function: Callable[..., Any], parameters: Any, expected: dict[str, Any]
) -> None:
    signature = Signature(function)

    args, kwargs = signature.bind(parameters)

    assert dict(zip(signature.names, args, strict=False)) | kwargs == expected


@pytest.mark.parametrize(
    ("function", "parameters", "expected"),
    [
        (shout, "[1, x]", "[1, x]"),
        (shout, "", ""),
        (shout, "{later}", "{later}"),
        (shout, '["[1]"]', "[1]"),
        (shout, '{"text": "{}"}', "{}"),
        (double, "2", 2),
        (total, "[1, 2]", [1, 2]),
        (place, '{"symbol":"A"}', Order(symbol="A")),
        (tagged, '{"labels":{"a":"b"}}', {"a": "b"}),
    ],
)
def test_object_or_array_in_a_text_is_read_as_json(
    function: Callable[..., Any], parameters: str, expected: Any
) -> None:
    args, kwargs = Signature(function).bind(parameters, is_text=True)

    assert [*args, *kwargs.values()] == [expected]


@pytest.mark.parametrize("parameters", ['{"txt": "a"}', "[1]", '["a", "b"]', "{}"])
def test_object_in_a_text_that_does_not_fit_is_no_text_either(parameters: str) -> None:
    with pytest.raises(VerbError) as caught:
        Signature(shout).bind(parameters, is_text=True)

    assert caught.value.code == "bad-parameters"


def test_empty_text_parameters_are_none_for_a_verb_without_parameters() -> None:
    assert Signature(nothing).bind("", is_text=True) == ((), {})


@pytest.mark.parametrize(
    ("function", "parameters", "fields"),
    [
        (quote, None, ["symbol"]),
        (quote, {"qty": "many"}, ["symbol", "qty"]),
        (quote, {"symbol": "A", "quantity": 1}, ["quantity"]),
        (quote, ["A", 1, 2], ["2"]),
        (nothing, {"a": 1}, ["a"]),
        (nothing, 1, ["0"]),
        (place, {"symbol": "A", "qty": "x"}, ["qty"]),
        (total, [1, "x"], ["1"]),
        (total, "[1, x]", ["rows"]),
        (bounded, {"qty": 0}, ["qty"]),
        (quote, ["A", "many"], ["qty"]),
        (place, [{"symbol": 1}], ["order.symbol"]),
        (on, ["2026-01-02", True], ["exact"]),
    ],
)
def test_wrong_parameters_are_reported_field_by_field(
    function: Callable[..., Any], parameters: Any, fields: list[str]
) -> None:
    with pytest.raises(VerbError) as caught:
        Signature(function).bind(parameters, is_text=isinstance(parameters, str))

    assert caught.value.code == "bad-parameters"
    assert [row["field"] for row in caught.value.details] == fields
    assert all(row["message"] for row in caught.value.details)


def test_values_of_wrong_parameters_are_not_repeated() -> None:
    with pytest.raises(VerbError) as caught:
        Signature(quote).bind({"symbol": "A", "qty": "hunter2"})

    assert "hunter2" not in f"{caught.value} {caught.value.details}"


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "expected"),
    [
        (quote, ("ABC",), {"qty": 2}, {"symbol": "ABC", "qty": 2}),
        (quote, ("ABC",), {}, {"symbol": "ABC"}),
        (nothing, (), {}, None),
        (place, (Order(symbol="A"),), {}, Order(symbol="A")),
        (place, (), {"order": Order(symbol="A")}, Order(symbol="A")),
        (total, ([1, 2],), {}, [1, 2]),
        (double, (2,), {}, {"value": 2}),
    ],
)
def test_typed_call_packs_its_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], expected: Any
) -> None:
    assert Signature(function).pack(args, kwargs) == expected


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((), {}, "needs symbol"),
        (("A", 1, 2), {}, "takes 2 arguments, 3 were given"),
        (("A",), {"symbol": "B"}, "symbol by position and by keyword"),
        (("A",), {"quantity": 1}, "has no parameter quantity"),
    ],
)
def test_typed_call_refuses_arguments_that_do_not_fit(
    args: tuple[Any, ...], kwargs: dict[str, Any], text: str
) -> None:
    with pytest.raises(TypeError, match=text):
        Signature(quote).pack(args, kwargs)


def test_context_is_no_part_of_the_contract() -> None:
    def first(request: Request, symbol: str) -> str: ...  # type: ignore[empty-body]
    def last(symbol: str, request: Request | None = None) -> str: ...  # type: ignore[empty-body]

    for function in (first, last):
        signature = Signature(function, context=(Request,))

        assert signature.context_name == "request"
        assert signature.names == ("symbol",)
        assert "request" not in str(signature.parameters_schema())


@pytest.mark.parametrize(
    ("function", "result", "expected"),
    [
        (quote, Decimal("1.50"), b'"1.50"'),
        (place, Order(symbol="é"), b'{"symbol":"\\u00e9","qty":1}'),
        (untyped, Point(1, 2), b'{"x":1,"y":2}'),
    ],
)
def test_result_is_written_by_its_type(function: Callable[..., Any], result: Any, expected: bytes) -> None:
    assert Signature(function).dump(result) == expected


def test_result_without_a_json_form_is_refused() -> None:
    with pytest.raises(BadResult) as caught:
        Signature(untyped).dump(object())

    assert "Unable to serialize" in caught.value.problem


def test_reply_is_read_as_the_return_type() -> None:
    assert Signature(quote).load("1.50") == Decimal("1.50")


def test_schema_of_parameters_names_types_and_defaults() -> None:
    assert Signature(quote).parameters_schema() == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "symbol": {"title": "Symbol", "type": "string"},
            "qty": {"title": "Qty", "type": "integer", "default": 1},
        },
        "required": ["symbol"],
    }


def test_schema_of_a_single_model_is_the_models_own() -> None:
    schema = Signature(place).parameters_schema()

    assert schema["$defs"]["Order"]["required"] == ["symbol"]
    assert schema["$ref"] == "#/$defs/Order"


def test_schema_of_a_single_list_is_an_array() -> None:
    assert Signature(total).parameters_schema()["type"] == "array"


def test_schema_of_a_result_is_what_is_sent() -> None:
    assert Signature(quote).result_schema()["type"] == "string"
    assert Signature(untyped).result_schema() == {}


@pytest.mark.parametrize("kind", [Order, Point, Options])
def test_single_model_of_any_kind_takes_the_object_itself(kind: type) -> None:
    def take(value): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202

    take.__annotations__ = {"value": kind}
    sample = {Order: {"symbol": "A"}, Point: {"x": 1, "y": 2}, Options: {"fast": True}}[kind]

    args, _ = Signature(take).bind(sample)

    assert len(args) == 1


def test_signature_without_its_return_type_ignores_the_annotation() -> None:
    def later() -> Fraction: ...  # type: ignore[empty-body]

    assert Signature(later, returns=False).dump(1) == b"1"


class _Table:
    """As a DataFrame: pydantic knows no schema of it."""


def _gives_table(rows: int) -> _Table: ...  # type: ignore[empty-body]
def _gives_what_type_checkers_know(rows: int) -> Fraction: ...  # type: ignore[empty-body]


@pytest.mark.parametrize("function", [_gives_table, _gives_what_type_checkers_know])
def test_contract_of_a_job_leaves_aside_a_result_without_schema(function: Callable[..., Any]) -> None:
    contract = job_signature(function, context=(Request,))

    assert contract.bind({"rows": "2"}) == ((), {"rows": 2})
    assert contract.result_schema() == {}


def _splat(*values: int) -> None: ...
def _keywords(**values: int) -> None: ...
def _positional(value: int, /) -> None: ...
def _unresolvable(value: Fraction) -> None: ...
def _unknown_type(value: Callable[[object], object] | Request) -> None: ...
def _two_contexts(first: Request, second: Request) -> None: ...
def _underscored(_value: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (_splat, r"\*values says nothing"),
        (_keywords, r"\*values says nothing"),
        (_positional, "positional-only"),
        (_unresolvable, "import it outside of `if TYPE_CHECKING`"),
        (_unknown_type, "Unable to generate pydantic-core schema"),
        (_two_contexts, "first and second both take the context"),
    ],
)
def test_function_that_cannot_be_a_contract_is_refused_with_its_place(
    function: Callable[..., Any], text: str
) -> None:
    context = () if function is _unknown_type else (Request,)
    for contract in (Signature, job_signature):
        with pytest.raises(TypeError, match=text) as caught:
            contract(function, context=context)

        assert function.__qualname__ in str(caught.value)


def test_parameter_may_begin_with_an_underscore() -> None:
    assert Signature(_underscored).bind({"_value": 1}) == ((), {"_value": 1})


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")

    symbol: str


def test_unknown_parameter_has_the_nearest_one() -> None:
    def quote(symbol: str, qty: int = 1) -> None: ...
    def place(order: _Strict) -> None: ...

    with pytest.raises(VerbError, match=r"smybol: .*did you mean 'symbol'") as several:
        Signature(quote).bind({"qty": 1, "smybol": "ABC"})
    with pytest.raises(VerbError) as whole:
        Signature(place).bind({"symbol": "ABC", "smybol": "ABC"})
    with pytest.raises(TypeError, match="did you mean 'qty'"):
        Signature(quote).pack(("ABC",), {"qyt": 2})

    assert several.value.code == "bad-parameters"
    assert "did you mean 'symbol'" in whole.value.details[0]["message"]


def test_result_that_is_not_needed_need_not_be_resolvable_in_either_kind_of_annotation() -> None:
    source = "def work(rows: int) -> Missing: ...\ndef wrong(rows: Missing) -> None: ...\n"
    # Before Python 3.14 such a module cannot be without it; from then on annotations are read late (PEP 649).
    first = "from __future__ import annotations\n" if sys.version_info < (3, 14) else ""
    module: dict[str, Any] = {}
    exec(compile(first + source, "work.py", "exec", dont_inherit=True), module)

    assert Signature(module["work"], returns=False).names == ("rows",)
    with pytest.raises(TypeError, match="annotation 'Missing' cannot be resolved"):
        Signature(module["wrong"])
