"""Titles, units and meanings of the fields that operators see.

What operators work with (a queue, a connection, a job) is declared once, as a dataclass whose fields carry a
`Shown`:

    depth: Annotated[int, Shown("depth", Unit.COUNT, "Messages held: waiting, un-ACKed and postponed.")]

A verb of the broker returns the dataclass, so its field names are the names in JSON, and the schema that it
describes has the meanings; the verbs of services build their replies from one by `row_of`. The tables of the
command line take title and format from it, the reference pages of the verbs take the meaning, and a metric
that is the same number takes its help text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, get_type_hints

__all__ = ["Shown", "Unit", "row_of", "shown_field", "shown_fields"]

_NESTED: Final = "."


class Unit(StrEnum):
    """What a value counts or names, which decides how people see it."""

    TEXT = "text"
    ID = "id"
    """Made by a program: tables abbreviate it."""

    FLAG = "true or false"
    COUNT = "count"
    NUMBER = "number"
    """Identifies something, so it is written without separators."""

    BYTES = "bytes"
    SECONDS = "seconds"
    AGE = "seconds since"
    """Seconds of which the largest unit is enough."""

    LATENCY = "seconds, mostly below one"
    """Seconds of which hundredths of a millisecond count."""

    FRACTION = "fraction"
    TIME = "seconds since 1970"


@dataclass(frozen=True, slots=True)
class Shown:
    """How a field is shown, and what it means.

    Attributes:
        title: its heading in tables; empty: it is in JSON alone.
        unit: of its value.
        about: a sentence; empty where the title says it all.
    """

    title: str
    unit: Unit = Unit.TEXT
    about: str = ""

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Callable[[Any], Any]) -> Any:
        """The schema of the field, with its meaning: called by pydantic."""
        schema = handler(core_schema)
        return {**schema, "description": self.about} if self.about else schema


@lru_cache(maxsize=64)
def shown_fields(view: type) -> Mapping[str, Shown]:
    """The fields of a view in order; a field of a view inside it has a dotted name, such as `link.peer`."""
    hints = get_type_hints(view, include_extras=True)
    found: dict[str, Shown] = {}
    for name in (field.name for field in fields(view)):
        hint = hints[name]
        if is_dataclass(hint) and isinstance(hint, type):
            found |= {f"{name}{_NESTED}{inner}": each for inner, each in shown_fields(hint).items()}
        else:
            shown = next((each for each in _metadata(hint) if isinstance(each, Shown)), None)
            found |= {} if shown is None else {name: shown}
    return found


def shown_field(view: type, name: str) -> Shown:
    """How one field of a view is shown.

    Raises:
        KeyError: the view has no such field, or does not say how it is shown.
    """
    return shown_fields(view)[name]


def row_of(view: Any) -> dict[str, Any]:
    """The fields of a view as a verb replies with them.

    Their values are those of the view itself, not copies as those of `dataclasses.asdict`: the parameters of
    a job may be large.
    """
    # One level only: views inside stay objects.
    return {field.name: getattr(view, field.name) for field in fields(view)}


def _metadata(hint: Any) -> tuple[Any, ...]:
    found: tuple[Any, ...] = getattr(hint, "__metadata__", ())
    return found
