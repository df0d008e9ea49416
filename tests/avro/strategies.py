"""Random schemas, each with a strategy for its values."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, TypeAlias

from hypothesis import strategies as st

Typed: TypeAlias = tuple[Any, st.SearchStrategy[Any]]
"""A schema, and what makes values of it."""

_PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=80),
    "string": st.text(max_size=80),
}


@st.composite
def typed_schemas(draw: st.DrawFn, levels: int = 3) -> Typed:
    """Any schema of a few levels; a named type may be used again where it is known."""
    return _Maker(draw).make(levels)


class _Maker:
    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._draw = draw
        self._names = count()
        self._known: list[Typed] = []

    def make(self, levels: int) -> Typed:
        kinds = ["plain", "plain", "enum", "fixed", "known"]
        if levels > 0:
            kinds += ["array", "map", "record", "record", "union"]
        kind = self._draw(st.sampled_from(kinds))
        if kind == "known" and self._known:
            known: Typed = self._draw(st.sampled_from(self._known))
            return known
        made: Callable[[int], Typed] = self._plain if kind == "known" else getattr(self, f"_{kind}")
        return made(levels - 1)

    def _plain(self, levels: int) -> Typed:
        name = self._draw(st.sampled_from(sorted(_PLAIN)))
        return name, _PLAIN[name]

    def _named(self, schema: dict[str, Any], values: st.SearchStrategy[Any]) -> Typed:
        # Used again, it is only named.
        self._known.append((schema["name"], values))
        return schema, values

    def _enum(self, levels: int) -> Typed:
        symbols = [f"S{number}" for number in range(self._draw(st.sampled_from([1, 3, 64, 65, 200])))]
        return self._named(
            {"type": "enum", "name": self._name(), "symbols": symbols}, st.sampled_from(symbols)
        )

    def _fixed(self, levels: int) -> Typed:
        size = self._draw(st.sampled_from([0, 1, 12]))
        return self._named(
            {"type": "fixed", "name": self._name(), "size": size}, st.binary(min_size=size, max_size=size)
        )

    def _array(self, levels: int) -> Typed:
        items, values = self.make(levels)
        return {"type": "array", "items": items}, st.lists(values, max_size=100)

    def _map(self, levels: int) -> Typed:
        inner, values = self.make(levels)
        return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=5), values, max_size=5)

    def _record(self, levels: int) -> Typed:
        name = self._name()
        fields = [self.make(levels) for _ in range(self._draw(st.integers(0, 6)))]
        schema = {
            "type": "record",
            "name": name,
            "fields": [{"name": f"f{number}", "type": one} for number, (one, _) in enumerate(fields)],
        }
        return self._named(
            schema, st.fixed_dictionaries({f"f{number}": values for number, (_, values) in enumerate(fields)})
        )

    def _union(self, levels: int) -> Typed:
        inner, values = self.make(levels)
        # One branch beside null: with two that a value fits, a writer may choose either.
        if isinstance(inner, list) or inner == "null":
            return inner, values
        return ["null", inner], st.none() | values

    def _name(self) -> str:
        return f"space.T{next(self._names)}"
