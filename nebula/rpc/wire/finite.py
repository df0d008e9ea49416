"""Numbers that JSON cannot carry: NaN and the infinite ones."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Any, Final

from nebula.rpc.errors import VerbError
from nebula.rpc.wire.json_types import Adapter

__all__ = ["NOT_FINITE", "check_finite", "odd_places"]

NOT_FINITE: Final = "Input should be a finite number"


def check_finite(parameters: Any) -> None:
    """Check that each number in a request's parameters is one.

    Readers of JSON make infinity of `1e999`, and take `NaN`; a type may make either of a text.

    Args:
        parameters: validated: models, dataclasses and all.

    Raises:
        VerbError: `bad-parameters`, with the place of the first one that is none.
    """
    place = next(odd_places(_anything().plain(parameters), ()), None)
    if place is None:
        return
    field, message = ".".join(map(str, place)), NOT_FINITE
    details = [{"field": field, "message": message, "type": "finite_number"}]
    raise VerbError("bad-parameters", f"{field}: {message}" if field else message, details=details)


def odd_places(value: Any, place: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Where in dicts, lists and sets there are such numbers, each place below `place`."""
    if isinstance(value, float):
        if not math.isfinite(value):
            yield place
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from odd_places(one, (*place, name))
    elif isinstance(value, list | tuple | deque | AbstractSet):
        for number, one in enumerate(value):
            yield from odd_places(one, (*place, number))


@cache
def _anything() -> Adapter:
    return Adapter(Any)
