"""Python stubs of a service's verbs, from its reply to `describe`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from nebula.codegen.layout import bracketed, broken, docstring, quoted
from nebula.codegen.names import Names, callers_name, class_name, identifier, parameter_name
from nebula.codegen.schemas import Schema
from nebula.codegen.types import Scope, Types
from nebula.codegen.values import expression_of
from nebula.destinations import queue_named
from nebula.rpc.contract.signature import PARAMETER_NAME
from nebula.rpc.contract.verbs import is_reserved
from nebula.rpc.wire.json_types import DEPRECATED_BECAUSE

__all__ = ["write_stubs"]

_STANDARD: Final = ("datetime", "collections", "decimal", "enum", "typing", "uuid")

# A longer type of a result has a name of its own: no formatter breaks the end of a `def` well.
_LONG: Final = 50


# Written by Nebula itself: generators for schemas know no verbs, and their code fails strict type checkers,
# see docs/decisions/0021.
def write_stubs(description: Mapping[str, Any]) -> str:
    """A module that declares a service's verbs with their types, for `client.call(function, …)`.

    Args:
        description: the service's reply to `describe`.

    Returns:
        the text: formatted, and the same for the same description.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: that is no description of a service.
    """
    try:
        # Twice: only at the end it is known which classes there are, whose names no field may hide.
        first = _Module(description)
        first.text()
        return _Module(description, first.class_names).text()
    # A description is not trusted: its definitions may refer to each other in a ring, or be nested to any
    # depth.
    except RecursionError:
        raise ValueError("its schemas are nested too deeply, or refer to themselves without end") from None


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    type: str
    default: str | None
    note: str

    @property
    def code(self) -> str:
        return f"{self.name}: {self.type}" + (f" = {self.default}" if self.default is not None else "")


# Theory of a stub. `describe` returns JSON Schemas, and the stub needs Python: each verb becomes a function
# that never runs, each model a class, each error code an exception. Three things are difficult. Names: the
# wire allows any text, Python does not, and two texts may become one name (`names`). Identity: the same model
# occurs in several schemas, sometimes with other required fields, and must become one class
# (`schemas.identity_of`). Trust: texts come from a foreign service, so none may become code, and the amount
# of work is bounded (`Types.spend`).
class _Module:
    def __init__(self, description: Mapping[str, Any], class_names: Collection[str] = ()) -> None:
        self._service = str(description["service"])
        self._queue = description["queues"][0]
        # Sorted, so that the text does not depend on the order of declaration.
        verbs = sorted(description["verbs"], key=lambda verb: str(verb["verb"]))
        # All services have the reserved verbs.
        self._verbs = [verb for verb in verbs if not is_reserved(verb["verb"])]
        self._names = Names()
        self._remote = self._names.give(identifier(self._service), f"{identifier(self._service)}_service")
        # The first pass found these class names; fields of the second must not hide them from annotations.
        self._types = Types(self._names, class_names)
        self._types.imports.add(("nebula.rpc", "Remote"))
        self._errors: dict[str, str] = {}
        self._aliases: list[list[str]] = []

    @property
    def class_names(self) -> set[str]:
        """The classes of its types, once the text was made."""
        return self._types.class_names

    def text(self) -> str:
        # In this order, because decorators name errors, and annotations name classes.
        errors = [lines for verb in self._verbs for lines in self._new_errors(verb)]
        functions = [self._function(verb) for verb in self._verbs]
        remote = [f"{self._remote} = Remote({quoted(self._service)})"]
        classes = list(self._types.blocks())
        # Imports last: only now it is known what is needed.
        head = [*self._about(), "", "from __future__ import annotations", *self._imports()]
        parts = ["\n".join(lines) for lines in (*classes, *errors, *self._aliases, *functions)]
        first = "\n".join([*head, "", *remote])
        return "\n\n\n".join([first, *parts]) + "\n"

    def _about(self) -> list[str]:
        address = callers_name(self._service, self._queue)
        about = (
            f"The verbs of the service `{self._service}`, for its callers: `client.call(FUNCTION, …)`.\n\n"
            f"Written by `nebula stubs {address}` from the service's own description. Write it\n"
            "anew rather than change it."
        )
        return docstring(about, 0)

    def _imports(self) -> Iterator[str]:
        wanted = sorted(self._types.imports)
        for is_standard in (True, False):
            # isort's groups: the standard library, then all others; `typing_extensions` and pydantic are
            # among the latter.
            group = [
                one for one in wanted if (one[0].partition(" ")[0].split(".")[0] in _STANDARD) is is_standard
            ]
            if group:
                yield ""
            yield from (f"import {module}" for module, name in group if not name)
            named = [one for one in group if one[1]]
            for module, rows in groupby(named, key=lambda one: one[0]):
                names = sorted(
                    # isort's order within a line: constants, then classes, then functions.
                    (name for _, name in rows),
                    key=lambda name: (not name.isupper(), name.islower(), name),
                )
                yield from (
                    bracketed(f"from {module} import (", names, ")")
                    if _is_long(module, names)
                    else [f"from {module} import {', '.join(names)}"]
                )

    # --- errors ---

    def _new_errors(self, verb: Mapping[str, Any]) -> Iterator[list[str]]:
        for error in verb.get("errors", ()):
            code = error["code"]
            # One class for each code, with the first description.
            if code in self._errors:
                continue
            self._errors[code] = self._names.give(class_name(code), f"{class_name(code)}Error")
            self._types.imports.add(("nebula", "VerbError"))
            lines = [
                f"class {self._errors[code]}(VerbError):",
                *docstring(error.get("description") or code, 4),
                "",
                f"    code = {quoted(code)}",
            ]
            yield [*lines, "    retryable = True"] if error.get("retryable") else lines

    # --- verbs ---

    def _function(self, verb: Mapping[str, Any]) -> list[str]:
        name = str(verb["verb"])
        called = self._names.give(identifier(name))
        parameters = list(self._parameters(verb["parameters"]))
        result = self._result(verb, called)
        is_stream = bool(verb.get("stream"))
        # Not `async` for a stream: the call returns an iterator, without `await`.
        head = f"{'' if is_stream else 'async '}def {called}("
        return [
            *self._decorators(verb, called),
            *bracketed(head, list(_in_order(parameters)), f") -> {result}:"),
            *self._docstring(verb, parameters),
            # The body never runs, and type checkers accept it for any result.
            "    raise NotImplementedError",
        ]

    def _decorators(self, verb: Mapping[str, Any], called: str) -> Iterator[str]:
        options = []
        if called != verb["verb"]:
            options.append(f"name={quoted(verb['verb'])}")
        # Only what differs from the default is written, as a person would.
        if (queue := verb.get("queue", self._queue)) != queue_named(self._service):
            options.append(f"queue={quoted(queue)}")
        if errors := [self._errors[error["code"]] for error in verb.get("errors", ())]:
            options.append(f"errors=[{', '.join(errors)}]")
        if verb.get("idempotent"):
            options.append("idempotent=True")
        kind = "job" if verb.get("job") else "verb"
        head = f"@{self._remote}.{kind}"
        yield from broken(f"{head}({', '.join(options)})", 0) if options else [head]
        if verb.get("deprecated"):
            self._types.imports.add(("typing_extensions", "deprecated"))
            yield from broken(f"@deprecated({quoted(_why(verb))})", 0)

    def _docstring(self, verb: Mapping[str, Any], parameters: Iterable[_Parameter]) -> list[str]:
        text = str(verb.get("description") or "")
        notes = [f"    {one.name}: {one.note}" for one in parameters if one.note]
        # The service's author has described the parameters.
        if notes and "Args:" not in text:
            text = "\n".join([text or f"Ask for `{verb['verb']}`.", "", "Args:", *notes])
        return docstring(text, 4) if text else []

    def _result(self, verb: Mapping[str, Any], called: str) -> str:
        schema = verb.get("item" if verb.get("stream") else "result") or {}
        code = self._types.expression(schema, self._scope(schema, "Result"))
        if verb.get("stream"):
            self._types.imports.add(("collections.abc", "AsyncIterator"))
            code = f"AsyncIterator[{code}]"
        if len(code) <= _LONG:
            return code
        alias = self._names.give(f"{class_name(called)}Result")
        self._types.imports.add(("typing", "TypeAlias"))
        self._aliases.append(broken(f"{alias}: TypeAlias = {code}", 0))
        return alias

    def _parameters(self, schema: Schema) -> Iterator[_Parameter]:
        scope = self._scope(schema)
        # `PARAMETER_NAME` marks a value that is the whole body; other schemas with properties list
        # parameters.
        if PARAMETER_NAME in schema or "properties" not in schema:
            # A model or list that is taken whole; or no parameters at all.
            if schema.get("type") != "object" or PARAMETER_NAME in schema:
                yield self._parameter(
                    schema.get(PARAMETER_NAME, "value"), schema, scope, "default" not in schema
                )
            return
        required = schema.get("required", ())
        for name, each in schema["properties"].items():
            yield self._parameter(name, each, scope, name in required)

    def _parameter(self, name: str, schema: Schema, scope: Scope, is_required: bool) -> _Parameter:
        # Raises instead of choosing another name, because the parameter's name goes over the wire.
        name = parameter_name(name)
        code = self._types.expression(schema, scope)
        note = str(schema.get("description", ""))
        if schema.get("deprecated"):
            why = _why(schema)
            note = f"{note}{' ' if note else ''}Deprecated: {why}"
            self._types.imports |= {("typing", "Annotated"), ("pydantic", "Field")}
            code = f"Annotated[{code}, Field(deprecated={quoted(why)})]"
        if is_required:
            return _Parameter(name, code, None, note)
        found = expression_of(schema, schema["default"], scope.of_reference) if "default" in schema else None
        # Only a constant may be a default, because Python evaluates it once. For others the argument is
        # omitted, and the service uses its own.
        if found is not None and found.is_constant:
            return _Parameter(name, code, found.code, note)
        self._types.imports.add(("nebula.rpc", "OMITTED"))
        return _Parameter(name, code, "OMITTED", note)

    def _scope(self, schema: Schema, suffix: str = "") -> Scope:
        return Scope(self._types, schema, suffix)


def _in_order(parameters: Iterable[_Parameter]) -> Iterator[str]:
    """As they stand, those without a default behind one that has a default by name only."""
    # After a parameter with a default, Python allows one without only behind `*`.
    has_default = is_by_name = False
    for one in parameters:
        if one.default is None and has_default and not is_by_name:
            is_by_name = True
            yield "*"
        has_default = has_default or one.default is not None
        yield one.code


def _why(schema: Mapping[str, Any]) -> str:
    return str(schema.get(DEPRECATED_BECAUSE) or "do not use it any more")


def _is_long(module: str, names: Iterable[str]) -> bool:
    return len(f"from {module} import {', '.join(names)}") > 88
