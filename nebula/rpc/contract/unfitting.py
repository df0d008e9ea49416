"""A marker type that shortens type checkers' messages about wrong arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Never, TypeAlias, Unpack

__all__ = ["ArgumentsGiven", "Unfitting"]


class ArgumentsGiven:
    """Arguments that fit no function. Never instantiated: its name appears in messages."""


# mypy compares a call that fits no overload with those whose shape it has, and says what is wrong with the
# first of them; where there is none it lists all overloads, 1,450 characters for one wrong argument. A
# signature with a `ParamSpec` has the shape of calls that have positions and keywords both, and of no others.
# So two overloads stand behind those: `Callable[[*Ts], object]` for calls by position, which shows what was
# given beside what is taken; and `Unfitting` for those by keyword, which shows what is taken. No verb is of
# that type.
Unfitting: TypeAlias = Callable[[Unpack[tuple[ArgumentsGiven, ...]]], Never]
"""A function that would take the arguments of a wrong call: there is none."""
