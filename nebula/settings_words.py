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
from pydantic_core import ErrorDetails

Keys: TypeAlias = tuple[str | int, ...]

# The end of a sentence for each of pydantic's kinds of errors; the braces take the error's own context.
# pydantic's texts speak of Python ("Input should be a valid dictionary"), and the reader of these knows TOML:
# tables, texts and lists. A kind without an entry shows pydantic's own text (docs/decisions/0002).
_VERDICTS = {
    "bool_parsing": "is not true or false",
    "bool_type": "is not true or false",
    "dataclass_type": "is not a table",
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
    "model_type": "is not a table",
    "string_too_short": "is empty",
    "string_type": "is not a text in quotes",
    "tuple_type": "is not a list",
    "value_error": "{error}",
}
_UNKNOWN = {"extra_forbidden", "unexpected_keyword_argument"}
_LONGEST_VALUE = 60
_MOST_TABLES = 3


# docs/decisions/0002: pydantic checks, but its own texts name neither the place in TOML nor the cure.
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


def explain(model: type[BaseModel], error: ErrorDetails) -> str:
    """One sentence without a full stop: the place, what is wrong, and what would be right."""
    keys, kind = error["loc"], error["type"]
    if kind in _UNKNOWN:
        # An unknown name is often a known one in the wrong place, so tables are searched before near
        # spellings.
        words = fields_of(_type_at(model, keys[:-1]))
        hint = _belongs(words, str(keys[-1])) or did_you_mean(str(keys[-1]), words)
        return f'{_table(keys[:-1])}: unknown setting "{keys[-1]}"{hint}'
    if kind == "missing":
        return f"{place(keys)} is missing"
    # A validator of a whole table found it: the value would be all of the table, so its place is shown alone.
    if kind == "value_error" and isinstance(error["input"], dict | list):
        return f"{_table(keys, is_list=isinstance(error['input'], list))} {_verdict(error)}"
    if kind in {"list_type", "tuple_type"} and isinstance(error["input"], dict):
        return f"{_table(keys)} is one table where a list of them belongs: write [[{place(keys)}]]"
    return f"{place(keys)} {_shown(error['input'])} {_verdict(error)}"


def _verdict(error: ErrorDetails) -> str:
    context = error.get("ctx", {})
    if error["type"] in {"literal_error", "enum"}:
        # pydantic gives the allowed words as one sentence only.
        allowed = re.findall(r"'([^']*)'", context["expected"])
        return f"is not one of {', '.join(allowed)}{_nearest(str(error['input']), allowed)}"
    return _VERDICTS.get(error["type"], f"is wrong: {error['msg']}").format_map(context)


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
    # As TOML writes it, nearly: texts in double quotes.
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
