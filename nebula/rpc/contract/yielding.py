"""Streams among handlers: whether a function yields, and the type of its items."""

from __future__ import annotations

import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
)
from typing import Annotated, Any, Final, get_args, get_origin

_ASYNC: Final = (AsyncGenerator, AsyncIterable, AsyncIterator)
_ITERABLES: Final = (*_ASYNC, Generator, Iterable, Iterator)


def is_stream(function: Callable[..., Any]) -> bool:
    """Whether a handler yields: a generator function, async or plain."""
    # `@deprecated` wraps it in a plain function.
    inner = getattr(function, "__wrapped__", function) if hasattr(function, "__deprecated__") else function
    return inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner)


def stands_for_stream(function: Callable[..., Any], hint: Any) -> bool:
    """Whether what a function stands for is a stream: it yields, or says so, as declarations for callers do.

    Args:
        function: a handler, or a declaration without a body.
        hint: its return annotation.
    """
    # Only the async kinds: a plain function that returns an `Iterable[…]` gives all items in one reply.
    return is_stream(function) or get_origin(hint) in _ASYNC


def items_of(hint: Any) -> Any:
    """The type of the items, by the return annotation of a handler that yields; Any where it does not say."""
    if get_origin(hint) is Annotated:
        return items_of(get_args(hint)[0])
    if get_origin(hint) not in _ITERABLES:
        return Any
    return get_args(hint)[0]


def item_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """JSON Schema of one item, from that of the list of all."""
    only: dict[str, Any] = dict(schema["items"])
    return only | ({"$defs": schema["$defs"]} if "$defs" in schema else {})
