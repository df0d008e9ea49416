"""Filter for lists of jobs, and its SQL."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from nebula.rpc.jobs.model.identifiers import ULID_LENGTH
from nebula.rpc.jobs.model.states import JobState

__all__ = ["JobFilter", "conditions_of"]

# In what is looked for they are signs like any other.
_LIKE_SIGNS: Final = re.compile(r"[%_~]")
_QUOTED: Final = r"~\g<0>"
_ESCAPED: Final = "ESCAPE '~'"


class JobFilter(NamedTuple):
    """Which jobs to list; None asks for any. Times are seconds since the epoch.

    Attributes:
        states: any of these.
        verb: the one that was asked for.
        owner: the principal that asked.
        since: accepted then or later.
        until: accepted before.
        text: is in their note or their error, in upper or lower case.
        prefix: the first characters of their ULIDs.
    """

    states: tuple[JobState, ...] | None = None
    verb: str | None = None
    owner: str | None = None
    since: float | None = None
    until: float | None = None
    text: str | None = None
    prefix: str | None = None


def conditions_of(chosen: JobFilter, like: str, message_of_error: str) -> tuple[list[str], list[Any]]:
    """SQL conditions, to be joined by AND, and the values of their `?`.

    Args:
        chosen: the filter.
        like: the database's operator that ignores upper and lower case.
        message_of_error: the database's expression for the message in the column `error`.
    """
    # Conditions are built from constants, and a caller's values are passed as parameters.
    states, matches = chosen.states or (), f"{like} ? {_ESCAPED}"
    text = None if chosen.text is None else f"%{_LIKE_SIGNS.sub(_QUOTED, chosen.text)}%"
    wanted: list[tuple[str, tuple[Any, ...]]] = [
        (f"state IN ({', '.join('?' * len(states))})", states),
        ("verb = ?", (chosen.verb,)),
        ("owner = ?", (chosen.owner,)),
        ("accepted_at >= ?", (chosen.since,)),
        ("accepted_at < ?", (chosen.until,)),
        (f"(note {matches} OR {message_of_error} {matches})", (text, text)),
        ("id BETWEEN ? AND ?", _range_of(chosen.prefix)),
    ]
    # The first value decides: it is None where the filter accepts any, and absent for an empty list of
    # states.
    given = [(clause, values) for clause, values in wanted if values and values[0] is not None]
    return [clause for clause, _ in given], [value for _, values in given for value in values]


def _range_of(prefix: str | None) -> tuple[str | None, str | None]:
    """The first and the last ULID with this prefix."""
    if prefix is None:
        return None, None
    # 0 is the first digit of the alphabet and Z the last: the range is found by the index on `id`.
    return prefix.ljust(ULID_LENGTH, "0"), prefix.ljust(ULID_LENGTH, "Z")
