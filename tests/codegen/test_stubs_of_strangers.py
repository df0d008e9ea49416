"""Stubs of services that nobody trusts: whatever they say of themselves stays text, never becomes code."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from nebula.codegen.asyncapi import asyncapi_document
from nebula.codegen.module import write_stubs
from nebula.codegen.openapi import openapi_document
from tests.depth import DEPTH

# What code of a stub may call, import and define. All else in it are names and values.
CALLED = {
    "ConfigDict", "Decimal", "Field", "Remote", "UUID", "date", "datetime", "deprecated", "float", "job",
    "model_validate", "set", "time", "timedelta", "timezone", "TzInfo", "verb",
}  # fmt: skip
IMPORTED = {
    "__future__", "collections.abc", "decimal", "enum", "nebula", "nebula.rpc", "pydantic",
    "typing", "typing_extensions", "uuid",
}  # fmt: skip
STATEMENTS = (ast.Expr, ast.ImportFrom, ast.Import, ast.Assign, ast.AnnAssign, ast.ClassDef)
FUNCTIONS = (ast.AsyncFunctionDef, ast.FunctionDef)


def odd_code_in(text: str) -> list[str]:
    """All of a module that is more than declarations."""
    module = ast.parse(text)
    odd: list[ast.AST] = [node for node in module.body if not isinstance(node, (*STATEMENTS, *FUNCTIONS))]
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "?")
            odd += [node] if name not in CALLED else []
        elif isinstance(node, ast.Import):
            odd += [node] if ast.unparse(node) != "import datetime as dt" else []
        elif isinstance(node, ast.ImportFrom):
            odd += [node] if node.module not in IMPORTED else []
        elif isinstance(node, FUNCTIONS):
            *about, last = node.body
            says = [ast.unparse(one) for one in about if not isinstance(one, ast.Expr)]
            odd += [node] if says or ast.unparse(last) != "raise NotImplementedError" else []
        elif isinstance(node, ast.Expr):
            odd += [node] if not isinstance(node.value, ast.Constant) else []
    return [ast.unparse(node) for node in odd]


HOSTILE = [
    '"', "'", '"""', "\\", '\\"""', "\n", "\r", "\0", "\x1b[2J", "\u202e", "\ufeff", "a\nimport os", "a b",
    "a-b", "def", "\uff44ef", "class", "list", "Any", "Field", "__init__", "_x", "1a", "", "\xe9", "Decimal",
    "name", "mro", "model_config", "date-time", "#/$defs/A", "x: int = exec('1')", "x)\n    exec('1')",
    "exec('1')", '", exec("1"), "',
]  # fmt: skip
texts = st.sampled_from(HOSTILE) | st.text(max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
kinds = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])
formats = st.sampled_from(
    ["date-time", "date", "time", "duration", "uuid", "decimal", "base64url", "binary", "?"]
)


def said_with(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": kinds,
            "format": formats,
            "title": texts,
            "description": texts,
            "default": values,
            "const": values,
            "enum": st.lists(values, max_size=3),
            "anyOf": st.lists(inner, max_size=3),
            "items": inner,
            "prefixItems": st.lists(inner, max_size=2),
            "properties": st.dictionaries(texts, inner, max_size=3),
            "required": st.lists(texts, max_size=2),
            "additionalProperties": inner | st.booleans(),
            "propertyNames": inner,
            "uniqueItems": st.booleans(),
            "minimum": values,
            "pattern": texts,
            "deprecated": st.booleans(),
            "deprecationMessage": texts,
            "discriminator": st.fixed_dictionaries({"propertyName": texts}),
            "x-enum-varnames": st.lists(texts, max_size=3),
            "x-parameter": texts,
            "$ref": st.sampled_from(["#/$defs/A", "#/$defs/B", "#/$defs/?", "elsewhere"]),
        },
    )


schemas: st.SearchStrategy[Any] = st.recursive(st.just({}), said_with, max_leaves=6)
whole = st.builds(
    lambda schema, definitions: {**schema, "$defs": definitions},
    said_with(schemas),
    st.fixed_dictionaries({"A": said_with(schemas), "B": said_with(schemas)}),
)
verbs = st.fixed_dictionaries(
    {"verb": texts, "description": texts, "parameters": whole, "result": whole, "response": texts},
    optional={
        "queue": texts,
        "errors": st.lists(
            st.fixed_dictionaries({"code": texts, "description": texts, "retryable": st.booleans()}),
            max_size=2,
        ),
        "idempotent": st.booleans(),
        "deprecated": st.booleans(),
        "deprecationMessage": texts,
        "job": st.booleans(),
        "stream": st.booleans(),
        "item": whole,
    },
)


@pytest.mark.deep
@settings(
    max_examples=25 * DEPTH,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@example({"service": "a৴", "queues": ["a৴"], "verbs": []})  # `\w`, and in no name
@given(
    st.fixed_dictionaries(
        {
            "service": texts,
            "queues": st.lists(texts, min_size=1, max_size=1),
            "verbs": st.lists(verbs, max_size=3),
        }
    )
)
def test_nothing_that_a_service_says_becomes_code(told: dict[str, Any]) -> None:
    try:
        text = write_stubs(told)
    # The command says then that the service cannot be read.
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return

    assert odd_code_in(text) == []
    assert not [sign for sign in text if sign != "\n" and not sign.isprintable()]


def doubling(levels: int, keyword: str) -> dict[str, Any]:
    """A schema whose types double with each level, where they are written out."""
    definitions: dict[str, Any] = {
        f"d{level}": {keyword: [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)
    }
    definitions[f"d{levels}"] = {"type": "integer"}
    return {"$ref": "#/$defs/d0", "$defs": definitions}


def told_with(**parts: Any) -> dict[str, Any]:
    verb = {"verb": "a", "description": "", "parameters": {"type": "object"}, "result": {}, "response": "b"}
    return {"service": "s", "queues": ["q"], "verbs": [verb | parts]}


@pytest.mark.parametrize(("default", "is_written"), [([1, 2], True), ([1], False), ([1, 2, 3], False)])
def test_default_of_another_length_than_its_tuple_is_left_out(default: list[int], is_written: bool) -> None:
    schema = {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "integer"}], "default": default}

    text = write_stubs(told_with(parameters={"type": "object", "properties": {"pair": schema}}))

    assert ("= (1, 2)" in text) is is_written
    assert "(1,)" not in text
    assert "(1, 2, 3)" not in text


def test_short_description_does_not_become_a_long_module() -> None:
    prefixed = doubling(40, "prefixItems")
    for one in prefixed["$defs"].values():
        one.setdefault("type", "array")

    assert "tuple[tuple[int, int], tuple[int, int]]" in write_stubs(told_with(result=_of(prefixed, 38)))
    with pytest.raises(ValueError, match="its types would take more than"):
        write_stubs(told_with(result=prefixed))


def _of(schema: dict[str, Any], level: int) -> dict[str, Any]:
    return {**schema, "$ref": f"#/$defs/d{level}"}


def test_default_that_fits_no_branch_is_not_looked_for_without_end() -> None:
    schema = doubling(40, "anyOf")
    value = {"$ref": "#/$defs/d0", "default": "no integer"}

    with pytest.raises(ValueError, match="its types would take more than"):
        write_stubs(
            told_with(parameters={"type": "object", "properties": {"x": value}, "$defs": schema["$defs"]})
        )


class Walked(dict[str, Any]):
    """A schema that knows how often it was walked."""

    times = 0

    def items(self) -> Any:
        Walked.times += 1
        return super().items()


def all_through_one(models: int) -> dict[str, Any]:
    """Models that refer to one another through the first."""
    definitions = {
        f"d{one}": Walked(type="object", title=f"M{one}", properties={"first": {"$ref": "#/$defs/d0"}})
        for one in range(1, models)
    }
    first = {f"f{one}": {"$ref": f"#/$defs/d{one}"} for one in range(1, models)}
    definitions["d0"] = Walked(type="object", title="M0", properties=first)
    return told_with(result={"$ref": "#/$defs/d0", "$defs": definitions})


@pytest.mark.parametrize("write", [write_stubs, asyncapi_document, openapi_document])
def test_models_that_refer_to_one_another_are_each_walked_a_few_times(write: Callable[..., object]) -> None:
    times = []
    for models in (20, 80):
        Walked.times = 0
        write(all_through_one(models))
        times.append(Walked.times)

    assert times[1] <= 4 * times[0]


def test_models_nested_deeper_than_python_goes_are_refused_as_that() -> None:
    definitions: dict[str, Any] = {
        f"d{one}": {
            "type": "object",
            "title": f"M{one}",
            "properties": {"p": {"$ref": f"#/$defs/d{one + 1}"}},
        }
        for one in range(1_000)
    }
    with pytest.raises(ValueError, match="nested too deeply"):
        write_stubs(told_with(result={"$ref": "#/$defs/d0", "$defs": definitions}))


def test_very_many_models_that_refer_to_one_another_are_refused() -> None:
    with pytest.raises(ValueError, match="refer to each other too often"):
        write_stubs(all_through_one(1_100))


@pytest.mark.parametrize(
    "name", [one for one in HOSTILE if not one.isidentifier() or keyword.iskeyword(one)] + ["\uff44ef"]
)
def test_parameter_that_is_no_name_is_refused(name: str) -> None:
    verb = {"verb": "a", "description": "", "result": {}, "response": "b"}
    for schema in (
        {"type": "object", "properties": {name: {}}},
        {"type": "array", "x-parameter": name},
    ):
        with pytest.raises(ValueError, match="no function of Python"):
            write_stubs({"service": "s", "queues": ["q"], "verbs": [verb | {"parameters": schema}]})


def test_code_would_be_noticed() -> None:
    assert odd_code_in("import os") == ["import os"]
    assert odd_code_in("def f():\n    exec('1')\n    raise NotImplementedError") != []
    assert odd_code_in("a: int = exec('1')") == ["exec('1')"]
    assert odd_code_in("class A:\n    a = b()") == ["b()"]
