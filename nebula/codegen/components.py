"""The schemas of a document for other tools, each once, under keys of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from nebula.codegen.names import class_name
from nebula.codegen.schemas import REFERENCE, Definitions, Schema, digest, referred
from nebula.rpc.wire.json_types import DEPRECATED_BECAUSE

__all__ = ["COMPONENTS", "Components", "Keys", "free", "key_of"]

COMPONENTS: Final = "#/components/schemas/"

# Keywords whose values are no schemas, and those whose keys are names.
_VALUES: Final = frozenset({"const", "default", "enum", "examples"})
_NAMED: Final = frozenset({"patternProperties", "properties"})


class Components:
    """The document's own schemas, each once.

    Args:
        own_form: changes a schema into the document's dialect: it gets what pydantic gave, and what is shown.
        taken: keys that are taken already.

    Attributes:
        components: the schemas by key.
    """

    # By identity: verbs that use the same model share one component, and different models of one name get
    # numbers.
    def __init__(
        self, own_form: Callable[[Mapping[str, Any], dict[str, Any]], None], taken: Iterable[str] = ()
    ) -> None:
        self.components: dict[str, Any] = {}
        self._own_form = own_form
        self._taken = frozenset(taken)
        self._known: dict[str, str] = {}

    def of(self, schema: Schema, name: str) -> dict[str, str]:
        """Take in a schema with its definitions under a key of its own, and give what refers to it."""
        definitions: Mapping[str, Schema] = schema.get("$defs", {})
        graph = Definitions(definitions, is_exact=True)
        given = {
            one: self._name(definitions[one], one, digest([one, graph.reached([one])])) for one in definitions
        }
        for one, component in given.items():
            shown = self.components[component] = self._shown(definitions[one], given)
            # Generators name types by their titles, and refuse two of one name.
            if "title" in shown and component != _title_key(definitions[one], one):
                shown["title"] = component
        self.components[name] = self._shown(schema, given)
        return {"$ref": f"{COMPONENTS}{name}"}

    def _name(self, definition: Schema, one: str, identity: str) -> str:
        # The digest includes nested definitions, because two models may differ only there.
        if identity not in self._known:
            title = _title_key(definition, one)
            taken, name, number = self._taken | set(self._known.values()), title, 2
            while name in taken:
                name, number = f"{title}{number}", number + 1
            self._known[identity] = name
        return self._known[identity]

    def _shown(self, node: Any, given: Mapping[str, str]) -> Any:
        if isinstance(node, list):
            return [self._shown(one, given) for one in node]
        if not isinstance(node, Mapping):
            return node
        shown: dict[str, Any] = {}
        for name, one in node.items():
            # Values are data: a default may have a key `$ref` and is still no schema.
            if name in _VALUES:
                shown[name] = one
            elif name in _NAMED:
                shown[name] = {key: self._shown(each, given) for key, each in one.items()}
            elif name != "$defs":
                shown[name] = self._shown(one, given)
        if str(node.get("$ref", "")).startswith(REFERENCE):
            shown["$ref"] = f"{COMPONENTS}{given[referred(node['$ref'])]}"
        if isinstance(tag := shown.get("discriminator"), dict) and "mapping" in tag:
            # A stranger's mapping may lead nowhere.
            tag["mapping"] = {
                value: f"{COMPONENTS}{given.get(referred(one), referred(one))}"
                for value, one in tag["mapping"].items()
            }
        if DEPRECATED_BECAUSE in shown:
            shown["x-deprecation-message"] = shown.pop(DEPRECATED_BECAUSE)
        self._own_form(node, shown)
        return shown


def _title_key(definition: Schema, name: str) -> str:
    return key_of(class_name(str(definition.get("title") or name)))


def free(taken: Mapping[str, Any], name: str) -> str:
    """A key that is not taken yet: this name, or the name with a number."""
    number, free = 2, name
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free


def key_of(text: str) -> str:
    """A name of the document: its keys have letters and digits of ASCII, `.`, `-` and `_` only."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text).strip("_") or "unnamed"


class Keys:
    """The keys of one kind of things, by what these are called: two of them never share one."""

    def __init__(self, *taken: str) -> None:
        self._taken = dict.fromkeys(taken)
        self._given: dict[str, str] = {}

    def of(self, text: str) -> str:
        """The key, the same one each time."""
        if text not in self._given:
            key = free(self._taken, key_of(text))
            self._taken[key] = None
            self._given[text] = key
        return self._given[text]
