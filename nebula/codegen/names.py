"""Python names for names of the wire, each given once."""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final

from pydantic import BaseModel

from nebula.destinations import QUEUE, queue_named

# What a stub imports: none of it may be hidden by a verb or a model of the service.
_IMPORTED: Final = frozenset(
    {
        "Annotated", "Any", "AsyncIterator", "BaseModel", "ConfigDict", "Decimal", "Enum", "Field", "IntEnum",
        "Literal", "OMITTED", "Partial", "Remote", "RootModel", "StrEnum", "TypeAlias", "UUID", "Union",
        "VerbError", "deprecated", "dt",
    }
)  # fmt: skip

# pydantic reads annotations inside the class first, where a field of such a name would hide the type.
_TYPES: Final = frozenset({"bool", "bytes", "dict", "float", "int", "list", "set", "str", "tuple"})


class Names:
    """The names of one module.

    Args:
        taken: names that are in use from the beginning.
    """

    # Builtins too: a verb called `list` would hide the type from later annotations.
    def __init__(self, taken: Iterable[str] = (*_IMPORTED, *dir(builtins))) -> None:
        self._taken = set(taken)

    def give(self, *wanted: str) -> str:
        """The first of these that is free, else the last with a number or `_` behind it."""
        for name in wanted:
            if name not in self._taken and not keyword.iskeyword(name):
                break
        else:
            last = wanted[-1]
            name = f"{last}_"
            number = 2
            while name in self._taken:
                name, number = f"{last}{number}", number + 1
        self._taken.add(name)
        return name


def callers_name(service: str, queue: str) -> str:
    """What callers name a service by: its own name, or that of its queue where they differ."""
    return service if queue == queue_named(service) else queue.removeprefix(QUEUE)


def parameter_name(text: str) -> str:
    """The same name, if a function of Python can have such a parameter.

    Raises:
        ValueError: it cannot.
    """
    # Python normalizes identifiers, so it reads `ﬁle` (with a ligature) as `file`, which is not the name on
    # the wire.
    if not text.isidentifier() or keyword.iskeyword(text) or text != _as_python_reads(text):
        raise ValueError(f"parameter {text!r}: no function of Python can have one of this name")
    return text


def _as_python_reads(text: str) -> str:
    # Names are compared in this form: a keyword in wide letters is one too.
    return unicodedata.normalize("NFKC", text)


def identifier(text: str) -> str:
    """A name of Python that looks like the text; it may be a keyword."""
    # `\w` would keep numbers that are no digits, such as `৴`.
    name = "".join(sign if f"_{sign}".isidentifier() else "_" for sign in _as_python_reads(text))
    # A name must not begin with a digit.
    return name if name.isidentifier() else f"_{name}"


def class_name(text: str) -> str:
    """`out-of-stock` as `OutOfStock`; what is a class's name already stays."""
    text = _as_python_reads(text)
    # Kept, because pydantic's titles are class names; splitting would change `Order_ID` to `OrderID`.
    if text.isidentifier() and text[0].isupper():
        return text
    words = re.findall(r"[^\W_]+", text)
    return identifier("".join(word[0].upper() + word[1:] for word in words) or "Value")


def field_name(text: str) -> str:
    """The attribute of a model for a property: the same where it can be."""
    # A leading underscore would make it private to pydantic.
    name = identifier(text).lstrip("_") or "field"
    if not name.isidentifier():
        name = f"field_{name}"
    is_odd = keyword.iskeyword(name) or name in _TYPES or name in _IMPORTED
    # `BaseModel` has attributes such as `copy` and `json`, and reserves the prefix `model_`.
    return f"{name}_" if is_odd or hasattr(BaseModel, name) or name.startswith("model_") else name


def member_name(text: str) -> str:
    """The member of an enumeration for a name."""
    # `_x_` and `__x__` mean something to enum, and some words to Python; `name`, `value` are enum's own.
    name = identifier(text).strip("_")
    name = name if name.isidentifier() else f"MEMBER_{name}"
    return f"{name}_" if keyword.iskeyword(name) or name in ("mro", "name", "value") else name


def unique(wanted: Iterable[str], taken: Iterable[str] = ()) -> Iterator[str]:
    """The names in order, with `_` behind one that was there before or is taken."""
    given = set(taken)
    for name in wanted:
        # Properties such as `a-b` and `a_b` must not become one attribute.
        free = name
        while free in given:
            free += "_"
        given.add(free)
        yield free
