"""Files made from a model of settings: its JSON Schema, for editors, and an example in TOML."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

from nebula.settings import AT_RELOAD, Reload, Settings
from nebula.settings_words import in_toml

_WIDTH: Final = 100
_AT_RELOAD: Final = {
    Reload.VALUE: "A reload takes a new value.",
    Reload.CONTENTS: "A reload reads the file again; another name needs a restart.",
    Reload.RESTART: "",
}


def json_schema(model: type[Settings]) -> dict[str, Any]:
    """The JSON Schema of a TOML file with these settings.

    Each setting has its description and its default. `x-at-reload` is that of `Reload`; a setting without it
    needs a restart.
    """
    schema = model.model_json_schema()
    flat: dict[str, Any] = _inlined(schema, schema.pop("$defs", {}))
    # Editors know this draft, and it has all keywords that occur.
    return {"$schema": "http://json-schema.org/draft-07/schema#", **flat}


def _inlined(node: Any, definitions: Mapping[str, Any]) -> Any:
    """The schema with each reference replaced by what it means: in draft 7 it hides the keys next to it."""
    if isinstance(node, list):
        return [_inlined(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        node = definitions[node["$ref"].rpartition("/")[2]] | {
            key: value for key, value in node.items() if key != "$ref"
        }
    # TOML has no null: a setting without a value is left out.
    for choice in node.get("anyOf", ()):
        if choice != {"type": "null"}:
            node = {key: value for key, value in node.items() if key != "anyOf"} | choice
    return {key: _inlined(value, definitions) for key, value in node.items() if not _is_noise(key, value)}


def _is_noise(key: str, value: Any) -> bool:
    """Whether a keyword tells nothing: a generated title, no default, or the default of a whole table."""
    is_table = isinstance(value, dict) or (
        isinstance(value, list) and bool(value) and isinstance(value[0], dict)
    )
    return (key == "title" and isinstance(value, str)) or (key == "default" and (value is None or is_table))


def example(model: type[Settings], schema_file: str) -> str:
    """A TOML file with each setting, commented out, with its default or else an example value.

    Args:
        schema_file: path or address of the JSON Schema, for editors.
    """
    schema = json_schema(model)
    opening = [
        f"#:schema {schema_file}",
        "",
        "# Remove the # in front of a setting that you change, and of the heading of its table.",
        "# A new value needs a restart of the broker, unless the comment says otherwise.",
    ]
    return "\n".join([*opening, *_lines(schema["properties"])]) + "\n"


def flag_help(setting: Mapping[str, Any]) -> str:
    """What `--help` says about a flag for a setting.

    Args:
        setting: its part of the JSON Schema.
    """
    repeatable = "Repeatable." if setting["type"] == "array" else ""
    default = f" [default: {setting['default']}]" if setting.get("default") else ""
    text = " ".join(filter(None, (setting["description"], _choices(setting), repeatable, default)))
    # Descriptions are Markdown, and `--help` shows backquotes as they are.
    return text.replace("`", "")


def _choices(setting: Mapping[str, Any]) -> str:
    values = setting.get("enum", [])
    is_said = all(f"`{value}`" in setting["description"] for value in values)
    return "" if is_said else f"One of {', '.join(values)}."


def _lines(properties: Mapping[str, Any]) -> Iterator[str]:
    # In TOML a setting after the heading of a table belongs to that table, so single settings come first.
    tables = {name: inner for name, setting in properties.items() if (inner := _table(setting))}
    for name, setting in properties.items():
        if name not in tables:
            yield from ("", *_comment(setting), f"#{name} = {_value(setting)}")
    for name, inner in tables.items():
        is_list = properties[name].get("type") == "array"
        about = properties[name]["items"] if is_list else properties[name]
        yield from ("", "", *_comment(about), f"#[[{name}]]" if is_list else f"#[{name}]", *_lines(inner))


def _table(setting: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of a table, or of each of a list of tables; empty for a single setting."""
    found: Mapping[str, Any] = setting.get("items", setting).get("properties", {})
    return found


def _comment(setting: Mapping[str, Any]) -> list[str]:
    at_reload = _AT_RELOAD[Reload(setting.get(AT_RELOAD, Reload.RESTART))]
    text = " ".join(filter(None, (setting["description"], _choices(setting), at_reload)))
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def _value(setting: Mapping[str, Any]) -> str:
    # An example says more than an empty default.
    value = setting.get("default") or setting.get("examples", [setting.get("default")])[0]
    return in_toml(value)
