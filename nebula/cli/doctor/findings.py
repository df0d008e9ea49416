"""Findings: what a check has found, how bad it is, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Final, TypeAlias, TypeVar

__all__ = [
    "Finding",
    "Known",
    "Outcome",
    "Problem",
    "Unknown",
    "counted",
    "found",
    "listed",
    "skipped",
    "worst",
]

T = TypeVar("T")

# Further ones are counted.
_MOST_NAMED: Final = 5


class Outcome(StrEnum):
    """How a check ended."""

    OK = auto()
    WARNING = auto()
    """It works now, but will stop working, or does not work for some."""
    ERROR = auto()
    """Something does not work, or is about to be lost."""
    SKIPPED = auto()
    """It could not be checked."""


_BADNESS: Final = (Outcome.SKIPPED, Outcome.OK, Outcome.WARNING, Outcome.ERROR)


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check.

    Attributes:
        check: its name, such as `disk.sync`.
        outcome: of the check.
        found: the facts, or why the check was skipped.
        to_do: what mends it; empty where there is nothing to do.
    """

    check: str
    outcome: Outcome
    found: str
    to_do: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A fact that could not be had.

    Attributes:
        why: for people.
        to_do: what would make it known; may be empty.
        outcome: of the checks that need the fact.
    """

    why: str
    to_do: str = ""
    outcome: Outcome = Outcome.SKIPPED


Known: TypeAlias = T | Unknown
"""A fact, or why it is not known."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One of several problems that a check may find."""

    outcome: Outcome
    what: str
    to_do: str


def found(check: str, fine: str, problems: Iterable[Problem] = ()) -> Finding:
    """The finding of a check: all its problems in one, as bad as the worst.

    Args:
        check: its name.
        fine: what was found, where nothing is wrong.
        problems: what is wrong.
    """
    problems = list(problems)
    if not problems:
        return Finding(check, Outcome.OK, fine)
    return Finding(
        check,
        worst(each.outcome for each in problems),
        "; ".join(each.what for each in problems),
        # Several problems may have one cure.
        "; ".join(dict.fromkeys(each.to_do for each in problems)),
    )


def skipped(check: str, unknown: Unknown) -> Finding:
    """The finding of a check that lacks a fact."""
    return Finding(check, unknown.outcome, unknown.why, unknown.to_do)


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The worst of some outcomes; `skipped` for an empty list."""
    return max(outcomes, key=_BADNESS.index, default=Outcome.SKIPPED)


def counted(count: int, what: str) -> str:
    """`1 instance`, `1,200 instances`."""
    # The words that are counted here all have a regular plural.
    return f"{count:,} {what if count == 1 else f'{what}s'}"


def listed(names: Sequence[str]) -> str:
    """Some names in a sentence: the first few, and how many more there are."""
    more = len(names) - _MOST_NAMED
    shown = ", ".join(names[:_MOST_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown
