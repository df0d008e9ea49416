"""Type hints of functions, and the parameters that the framework fills in."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin


def hints_of(function: Callable[..., Any], where: str, *, returns: bool) -> dict[str, Any]:
    """The types of a function's parameters, and of its result.

    Args:
        function: or a class, or an object that can be called.
        where: what to call it in the error's text.
        returns: read the return annotation, too.

    Raises:
        TypeError: an annotation cannot be resolved.
    """
    annotations = annotations_of(function)
    if not returns:
        annotations.pop("return", None)
    # Unwrapped, because a decorator's wrapper copies the annotations, but its own module may lack the names
    # in them.
    names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        # Not the function itself: a return annotation that we do not need may not be resolvable,
        # such as a type of pyspark under TYPE_CHECKING.
        holder = types.SimpleNamespace(__annotations__=annotations, __globals__=names)
        # Without `include_extras`, `Annotated[…]` would lose its constraints and its `Depends`.
        return typing.get_type_hints(holder, include_extras=True)
    # Under `from __future__ import annotations` annotations are strings, so a type that is imported for type
    # checkers alone is missing here.
    except NameError as error:
        raise TypeError(
            f"{where}: annotation {error.name!r} cannot be resolved; "
            "import it outside of `if TYPE_CHECKING` and define it at module level"
        ) from error


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a function, with annotations that need not be resolvable.

    Raises:
        ValueError, TypeError: as `inspect.signature`.
    """
    if sys.version_info >= (3, 14):
        import annotationlib

        signature = inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    else:
        signature = inspect.signature(function)
    return list(signature.parameters.values())


def annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function as they are: those that cannot be resolved as strings or references."""
    if sys.version_info >= (3, 14):
        import annotationlib

        # Evaluated here for the first time (PEP 649). A missing name is found when its hint is needed.
        return dict(annotationlib.get_annotations(function, format=annotationlib.Format.FORWARDREF))
    return dict(getattr(function, "__annotations__", {}))


def plain_type(hint: Any) -> Any:
    """The type without `Annotated[…]` and without `| None`."""
    if get_origin(hint) is Annotated:
        return plain_type(get_args(hint)[0])
    if get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [one for one in get_args(hint) if one is not type(None)]
        return plain_type(kinds[0]) if len(kinds) == 1 else hint
    return hint


def is_any_of(hint: Any, classes: tuple[type, ...]) -> bool:
    """Whether a parameter takes an object of one of these classes: they alone, or among others in a union."""
    kind = plain_type(hint)
    if get_origin(kind) in (typing.Union, types.UnionType):
        return any(is_any_of(one, classes) for one in get_args(kind))
    # `Request[Pools]` is a `Request`: what its lifespan yields is for type checkers.
    kind = get_origin(kind) or kind
    return isinstance(kind, type) and issubclass(kind, classes)


def name_of(function: Any) -> str:
    """What to call a function in a text for its author."""
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"
