"""Messages about wrong settings: the place in TOML's notation, what is wrong, and what is right."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

Keys: TypeAlias = tuple[str | int, ...]

# The end of a sentence for each of pydantic's kinds of errors; the braces take the error's own context.
# pydantic's texts are about Python ("Input should be a valid dictionary"), but operators write TOML. A kind
# without an entry shows pydantic's own text (docs/decisions/0002).
_VERDICTS = {
    "bool_parsing": "is not true or false",
    "bool_type": "is not true or false",
    "dataclass_type": "is not a table: write {table}",
    "dict_type": "is not a table",
    "float_parsing": "is not a number",
    "float_type": "is not a number",
    "finite_number": "is not a finite number",
    "greater_than": "is not more than {gt}",
    "greater_than_equal": "is not at least {ge}",
    "int_from_float": "is not a whole number",
    "int_parsing": "is not a whole number",
    "int_type": "is not a whole number",
    "less_than": "is not less than {lt}",
    "less_than_equal": "is not at most {le}",
    "list_type": "is not a list",
    "model_type": "is not a table: write {table}",
    "path_type": "is not a text in quotes",
    "string_too_short": "is empty",
    "string_type": "is not a text in quotes",
    "too_short": "is empty",
    "tuple_type": "is not a list",
    "value_error": "{error}",
}
# Verdicts of these kinds already say what to write, so no example is added.
_WITH_CURE = {
    "bool_parsing",
    "bool_type",
    "dataclass_type",
    "enum",
    "greater_than_equal",
    "less_than_equal",
    "literal_error",
    "model_type",
}
_UNKNOWN = {"extra_forbidden", "unexpected_keyword_argument"}
_LONGEST_VALUE = 60
# Other keys of TOML need quotes.
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_MOST_TABLES = 3


def place(keys: Keys) -> str:
    """The place of a setting, in TOML's notation: `[[listener]] 2: port`, `[limits] max_links`."""
    match keys:
        case (str(table), int(index), *rest):
            return f"[[{table}]] {index + 1}" + (": " + ".".join(map(str, rest)) if rest else "")
        case (str(table), first, *rest):
            return f"[{table}] " + ".".join(map(str, (first, *rest)))
        case _:
            return ".".join(map(str, keys))


def _table(keys: Keys, *, is_list: bool = False) -> str:
    if not keys:
        return "top level"
    if isinstance(keys[-1], int):
        return place(keys)
    return f"[[{place(keys)}]]" if is_list else f"[{place(keys)}]"


def _heading(keys: Keys) -> str:
    """The line that begins a table, or an entry of a list of tables."""
    return f"[[{place(keys[:-1])}]]" if keys and isinstance(keys[-1], int) else f"[{place(keys)}]"


def explain(model: type[BaseModel], error: ErrorDetails, *, shows_value: bool = True) -> str:
    """One sentence without a full stop: the place, what is wrong, and what would be right.

    Args:
        shows_value: whether it has the wrong value, or a part of it. Names of settings it always has.
    """
    keys, kind = error["loc"], error["type"]
    if kind in _UNKNOWN:
        # Often a known name in the wrong place, so tables are searched before similar spellings.
        words = fields_of(_type_at(model, keys[:-1]))
        hint = _belongs(words, str(keys[-1])) or _nearest(str(keys[-1]), list(words))
        hint = hint or f"; remove it: known are {', '.join(words)}"
        return f'{_table(keys[:-1])}: unknown setting "{keys[-1]}"{hint}'
    if kind == "missing":
        return f"{place(keys)} is missing: write {keys[-1]} = {_sample(model, keys)}"
    # Found by a validator of a whole table: only its place is shown, because its value is the whole table.
    if kind == "value_error" and isinstance(error["input"], dict | list) and not _sample(model, keys):
        # A contradiction in the settings as a whole names its tables itself.
        about = f"{_table(keys, is_list=isinstance(error['input'], list))} " if keys else ""
        return f"{about}{_verdict(error)}"
    if kind in {"list_type", "tuple_type"} and not _sample(model, keys):
        what = (
            "is one table where a list of them belongs"
            if isinstance(error["input"], dict)
            else "is not a list"
        )
        return f"{_table(keys)} {what}: write [[{place(keys)}]]"
    # pydantic adds `[key]` if the name of an entry is wrong.
    keys = keys[:-1] if keys[-1] == "[key]" else keys
    match keys:
        case (str(name), int(entry)) if _sample(model, keys):
            where = f"{name}.{entry}"  # of a list that is no list of tables
        case _:
            where = place(keys)
    value = f"{_shown(error['input'])} " if shows_value else ""
    if kind == "value_error" and not shows_value:
        # Its text may quote the value.
        return f"{where} is not valid{_such_as(model, keys)}"
    cure = "" if kind in _WITH_CURE or ': write "' in _verdict(error) else _such_as(model, keys)
    return f"{where} {value}{_verdict(error)}{cure}"


def _verdict(error: ErrorDetails) -> str:
    context = error.get("ctx", {}) | {"table": _heading(error["loc"])}
    if error["type"] in {"literal_error", "enum"}:
        # pydantic gives the allowed words as one sentence only.
        allowed = re.findall(r"'([^']*)'", context["expected"])
        return f"is not one of {', '.join(allowed)}{_nearest(str(error['input']), allowed)}"
    return _VERDICTS.get(error["type"], f"is wrong: {error['msg']}").format_map(context)


def _such_as(model: type[BaseModel], keys: Keys) -> str:
    """The end of a sentence about a wrong value: a right one."""
    sample = _sample(model, keys)
    return f"; write {sample}, for example" if sample else ""


def _sample(model: type[BaseModel], keys: Keys) -> str:
    """A right value for a setting, in TOML: its default, or the example of its field; empty for a table."""
    kind: Any = model
    for depth, key in enumerate(keys):
        if not isinstance(key, str):
            continue
        field = _field_at(kind, key)
        if field is None:
            return ""
        kind = field.annotation
        if not fields_of(kind):
            value = None if field.is_required() else field.get_default(call_default_factory=True)
            value = field.examples[0] if field.examples and not value else value
            # The mistake is inside a list or table: its first entry is the example.
            for inner in keys[depth + 1 :]:
                if isinstance(inner, int) and isinstance(value, list | tuple) and value:
                    value = value[0]
                elif isinstance(value, dict) and value:
                    value = next(iter(value.values()))
            return in_toml(value)
    return ""


def _field_at(kind: Any, name: str) -> FieldInfo | None:
    """The field of that name in a model, a pydantic dataclass, or a list of them."""
    # In `list[X]`, `tuple[X, ...]` and `X | None`, X comes first.
    while typing.get_args(kind):
        kind = typing.get_args(kind)[0]
    fields: Mapping[str, FieldInfo] = getattr(kind, "model_fields", None) or getattr(
        kind, "__pydantic_fields__", {}
    )
    return fields.get(name)


def in_toml(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, dict):
        inner = ", ".join(f"{_key(key)} = {in_toml(each)}" for key, each in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(in_toml, value))}]"
    if isinstance(value, float):
        # TOML has `inf` and `nan` as `repr` writes them; JSON would write `Infinity` and `NaN`.
        return repr(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _belongs(words: Mapping[str, Any], word: str) -> str:
    """The end of a sentence about a setting outside its table: the tables that have it."""
    tables = [
        f"[[{name}]]" if get_origin(kind) in (tuple, list) else f"[{name}]"
        for name, kind in words.items()
        if word in fields_of(kind)
    ]
    return f"; it belongs into {' or '.join(tables[:_MOST_TABLES])}" if tables else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: the nearest known one, else all of them."""
    known = list(known)
    return _nearest(word, known) or f"; known are {', '.join(known)}"


def _nearest(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f'; did you mean "{near[0]}"?' if near else ""


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "(a table)" if isinstance(value, dict) else "(a list)"
    # Nearly as TOML writes it, with texts in double quotes.
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "..."


def fields_of(kind: Any) -> Mapping[str, Any]:
    """The fields of a model, a dataclass or a list of them, with their types; empty for other types."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {name: field.annotation for name, field in kind.model_fields.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return typing.get_type_hints(kind)
    arguments = typing.get_args(kind)
    return fields_of(arguments[0]) if arguments else {}


def _type_at(kind: Any, keys: Keys) -> Any:
    for key in keys:
        if isinstance(key, str):
            kind = fields_of(kind)[key]
    return kind
