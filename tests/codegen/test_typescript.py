"""TypeScript of a service: the golden file `depot.ts`, and what strangers say of themselves.

`python -m tests.codegen.test_typescript` writes the golden file. tests/foreign/browser compiles it with
TypeScript itself, which finds wrong calls.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nebula.codegen import typescript
from nebula.codegen.typescript import write_typescript
from nebula.destinations import queue_named
from tests.rpc import depot
from tests.rpc.described import described

GOLDEN = Path(__file__).with_name("depot.ts")
PACKAGE = "@nebula-rpc/client"


def description(**verb: Any) -> dict[str, Any]:
    """What a service with one verb says of itself."""
    told = {"verb": "look", "description": "", "parameters": {}, "result": {}, "response": "looked"}
    return {"service": "shop", "queues": ["/queue/shop"], "verbs": [told | verb]}


def result_of(schema: Any, **verb: Any) -> str:
    """The type of a result with this schema."""
    text = write_typescript(description(result=schema, **verb), PACKAGE)
    found = re.search(r"\): Promise<(.*)> \{$", text, re.MULTILINE)
    assert found is not None, text
    return found[1]


def test_depot_is_written_as_the_golden_file_has_it() -> None:
    assert write_typescript(described(depot.app), PACKAGE) == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ({}, "unknown"),
        (True, "unknown"),
        (False, "never"),
        ({"type": "null"}, "void"),
        ({"type": ["integer", "null"]}, "number | null"),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, "string | null"),
        ({"enum": ["a", 1, True, None]}, '"a" | 1 | true | null'),
        ({"const": {"a": 1}}, "unknown"),
        ({"const": float("inf")}, "unknown"),
        ({"type": "array"}, "unknown[]"),
        ({"type": "array", "items": {"type": ["integer", "null"]}}, "(number | null)[]"),
        ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}, "[string, number]"),
        (
            {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}},
            "[string, ...number[]]",
        ),
        ({"type": "object", "additionalProperties": {"type": "boolean"}}, "Record<string, boolean>"),
        ({"type": "object"}, "Record<string, unknown>"),
        (
            {
                "type": "object",
                "propertyNames": {"enum": ["a", "b"]},
                "additionalProperties": {"type": "integer"},
            },
            'Partial<Record<"a" | "b", number>>',
        ),
        (
            {"type": "object", "properties": {"a-b": {"type": "string"}, "c": {}}, "required": ["c"]},
            '{ "a-b"?: string; c: unknown }',
        ),
        ({"allOf": [{"type": "string"}, {"enum": ["a", "b"]}]}, 'string & ("a" | "b")'),
    ],
)
def test_schema_becomes_the_type_that_means_the_same(schema: Any, code: str) -> None:
    assert result_of(schema) == code


def test_type_may_refer_to_itself() -> None:
    tree = {"title": "Tree", "type": "object", "properties": {"left": {"$ref": "#/$defs/Tree"}}}
    value = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/Value"}}]}
    text = write_typescript(
        description(
            result={
                "type": "array",
                "prefixItems": [{"$ref": "#/$defs/Tree"}, {"$ref": "#/$defs/Value"}],
                "items": False,
                "$defs": {"Tree": tree, "Value": value},
            }
        ),
        PACKAGE,
    )

    assert "Promise<[Tree, Value]>" in text
    assert "export interface Tree {\n  left?: Tree;\n}" in text
    assert "export type Value = string | Value[];" in text


def test_verb_on_a_queue_of_its_own_is_called_there() -> None:
    text = write_typescript(description(queue="/queue/other"), PACKAGE)

    assert 'this.#nebula.call("/queue/other", "look", undefined, options)' in text
    assert queue_named("shop") not in text


def test_header_names_the_service_as_callers_do() -> None:
    told = description() | {"queues": ["/queue/shop.north"]}

    assert "// Written by `nebula stubs shop.north --typescript`" in write_typescript(told, PACKAGE)
    assert "// Written by `nebula stubs shop --typescript`" in write_typescript(description(), PACKAGE)


def test_different_results_of_one_title_are_named_after_their_verbs() -> None:
    def page(row: str) -> dict[str, Any]:
        rows = {"type": "array", "items": {"type": row}}
        return {"title": "Page", "type": "object", "properties": {"rows": rows}, "required": ["rows"]}

    told = description()
    (verb,) = told["verbs"]
    told["verbs"] = [
        verb | {"verb": "names.list", "result": page("string")},
        verb | {"verb": "numbers.list", "result": page("integer")},
        verb | {"verb": "numbers.watch", "stream": True, "item": page("integer")},
    ]
    text = write_typescript(told, PACKAGE)

    assert "names_list(options?: CallOptions): Promise<NamesListReply>" in text
    assert "export interface NamesListReply {\n  rows: string[];\n}" in text
    assert "numbers_list(options?: CallOptions): Promise<NumbersListReply>" in text
    assert "AsyncGenerator<NumbersWatchItem, void, void>" in text
    assert "Page" not in text

    del told["verbs"][0]
    assert "Promise<Page>" in write_typescript(told, PACKAGE)


def test_default_is_told_where_a_field_may_be_left_out_only() -> None:
    field = {"type": "integer", "default": 3}
    model = {"title": "Box", "type": "object", "properties": {"size": field}}

    assert "/** @defaultValue `3` */\n  size?: number;" in write_typescript(
        description(result=model), PACKAGE
    )
    always = model | {"required": ["size"]}
    assert "{\n  size: number;\n}" in write_typescript(description(result=always), PACKAGE)


def test_class_needs_no_more_of_a_client_than_its_verbs_use() -> None:
    told = description()
    told["verbs"].append(told["verbs"][0] | {"verb": "watch", "stream": True})

    assert 'constructor(nebula: Pick<Nebula, "call" | "stream">) {' in write_typescript(told, PACKAGE)


def test_names_that_javascript_has_taken_are_changed_or_quoted() -> None:
    told = description()
    names = ("constructor", "delete", "a.b", "a-b", "größe", "__proto__")
    told["verbs"] = [{**told["verbs"][0], "verb": name} for name in names]

    text = write_typescript(told, "./nebula.js")

    methods = re.findall(r"^  (\S+)\(options\?: CallOptions\)", text, re.MULTILINE)
    assert methods == ['"__proto__"', "a_b", "a_b_", "constructor_", "delete", '"größe"']
    assert 'from "./nebula.js";' in text


HOSTILE = st.sampled_from(
    ["*/", "*/ evil();", '"', "\\", "\n", "\r", "\u2028", "\u202e", "\0", "`", "${x}", "constructor", "",
     "__proto__", "a-b", "#/$defs/A", "Promise", "string", "];", "}", "*\n/"]
) | st.text(max_size=6)  # fmt: skip
SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "title": HOSTILE,
            "description": HOSTILE,
            "format": HOSTILE,
            "default": HOSTILE,
            "type": st.sampled_from(["string", "object", "array", "integer", "odd"]),
            "enum": st.lists(HOSTILE, min_size=1, max_size=2),
            "deprecated": st.just(True),
            "deprecationMessage": HOSTILE,
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "title": HOSTILE,
            "type": st.sampled_from(["object", "array"]),
            "properties": st.dictionaries(HOSTILE, inner, max_size=2),
            "items": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=2),
        },
    ),
    max_leaves=4,
)

# A literal, a comment, or anything that is not the beginning of one. Templates are not generated.
_TOKENS = re.compile(r'"(?:[^"\\\n]|\\.)*"|/\*(?:.|\n)*?\*/|//[^\n]*|[^"/`]')


def code_of(text: str) -> str:
    """The text without its literals and comments."""
    tokens = _TOKENS.findall(text)
    assert "".join(tokens) == text
    return "".join('""' if one[0] == '"' else one for one in tokens if one[:2] not in ("/*", "//"))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    SCHEMAS.map(lambda one: one | {"$defs": {"A": one}}),
    st.fixed_dictionaries(
        {"verb": HOSTILE, "description": HOSTILE},
        optional={"errors": st.lists(st.fixed_dictionaries({"code": HOSTILE, "description": HOSTILE}))},
    ),
    HOSTILE,
)
def test_nothing_that_a_service_says_becomes_code(
    schema: dict[str, Any], verb: dict[str, Any], service: str
) -> None:
    parameters = {"type": "object", "properties": {"evil": schema}}
    told = description(**verb, parameters=parameters, result=schema) | {"service": f"s{service}"}

    code = code_of(write_typescript(told, PACKAGE))

    assert all(sign.isprintable() or sign == "\n" for sign in code)
    # One call for each verb, and the constructor's declaration; all other parentheses are of types.
    assert len(re.findall(r"this\.#nebula\.\w+\(", code)) == code.count("return ") <= 1
    assert "${" not in code
    for opening, closing in ("{}", "()", "[]"):
        assert code.count(opening) == code.count(closing)


def test_schemas_nested_deeper_than_python_goes_are_refused() -> None:
    deep: dict[str, Any] = {"type": "integer"}
    for _ in range(5_000):
        deep = {"type": "array", "items": deep}
    with pytest.raises(ValueError, match="too deeply"):
        write_typescript(description(result=deep), PACKAGE)


def test_models_that_refer_to_one_another_are_each_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"M{number}" for number in range(40)]
    one = {"type": "object", "properties": {name: {"$ref": f"#/$defs/{name}"} for name in names}}
    everything = {name: {**one, "title": name} for name in names}
    told = description(result={"$ref": "#/$defs/M0", "$defs": everything})

    monkeypatch.setattr(typescript, "_MOST_STEPS", 40 * 41)
    assert write_typescript(told, PACKAGE).count("export interface") == 40

    monkeypatch.setattr(typescript, "_MOST_STEPS", 40 * 41 - 1)
    with pytest.raises(ValueError, match="too often"):
        write_typescript(told, PACKAGE)


if __name__ == "__main__":
    GOLDEN.write_text(write_typescript(described(depot.app), PACKAGE), encoding="utf-8")
