"""Ids in short, as git has it: their first characters, and which id such a prefix means.

Only what was generated is an id: sessions of clients without a `client-id`, and jobs. A name that somebody
has chosen is shown and given as a whole, so that `disconnect till` never ends `till-9`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from typer import BadParameter

from nebula.cli.answers import Jobs, checked
from nebula.errors import RemoteError
from nebula.rpc.jobs.identifiers import is_ulid

if TYPE_CHECKING:
    from nebula.rpc.client import Client

__all__ = ["JOB_PREFIX", "LEAST", "SESSION_PREFIX", "find_job", "is_session_id", "only_one", "shortened"]

LEAST: Final = 4
"""The least characters of an id that are taken for it."""

# 32 random digits, and of a ULID the time in milliseconds with ten random bits.
_SHORT_HEX: Final = 8
_SHORT_ULID: Final = 12

_HEX: Final = re.compile(r"[0-9a-f]{32}")
_JOB: Final = re.compile(r"((?:.+/)?)([0-7][0-9A-HJKMNP-TV-Z]{25})", re.DOTALL)

SESSION_PREFIX: Final = re.compile(rf"[0-9a-f]{{{LEAST},31}}")
"""What may be the first part of a session's id."""

JOB_PREFIX: Final = re.compile(rf"[0-7][0-9A-HJKMNP-TV-Z]{{{LEAST - 1},24}}", re.IGNORECASE)
"""What may be the first part of a job's ULID."""

_MOST_NAMED: Final = 5

# Who is there answers at once.
_LONGEST_LOOK: Final = 5.0


def is_session_id(name: str) -> bool:
    """Whether the broker has made this name of a session."""
    return _HEX.fullmatch(name) is not None


def shortened(names: Sequence[str]) -> list[str]:
    """The same without the ends of ids: as long as is usual, or as they need to differ from each other.

    Names that are no ids stay as they are.
    """
    ordered = sorted(set(names))
    shared = [_shared_length(*pair) for pair in pairwise(ordered)]
    # The nearest ones in this order share most.
    needed = dict(zip(ordered, map(max, [0, *shared], [*shared, 0]), strict=False))
    return [name[: max(_usual_length(name), needed[name] + 1)] for name in names]


def _shared_length(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _usual_length(name: str) -> int:
    if is_session_id(name):
        return _SHORT_HEX
    found = _JOB.fullmatch(name)
    return len(name) if found is None else len(found[1]) + _SHORT_ULID


def only_one(prefix: str, found: Iterable[str]) -> str | None:
    """The id that a prefix means; None if there is none.

    Raises:
        BadParameter: there are several.
    """
    ids = sorted(set(found))
    if len(ids) > 1:
        several = ", ".join(ids[:_MOST_NAMED]) + (", …" if len(ids) > _MOST_NAMED else "")
        raise BadParameter(f"{prefix} is the beginning of more than one: {several}")
    return ids[0] if ids else None


async def find_job(client: Client, job: str, timeout: float) -> str:
    """The id of a job that is named in short; a whole one is not looked for.

    Args:
        client: connected.
        job: `<service>/<ulid>`, or the first characters of that.
        timeout: seconds for the answers of all instances.

    Raises:
        BadParameter: it may be several jobs.
        NebulaError: there is no such job, or no answer.
    """
    service, _, ulid = job.rpartition("/")
    if is_ulid(ulid):
        return job
    wanted = {"prefix": ulid, "limit": _MOST_NAMED + 1}
    seconds = min(timeout, _LONGEST_LOOK)
    # Each instance may have jobs of its own.
    told = [
        one.value for one in (await client.call_all(service, "job.list", wanted, timeout=seconds)).answers
    ]
    if not told:
        told = [await client.call(service, "job.list", wanted, timeout=timeout)]
    found = [str(row["job"]) for answer in told for row in checked(Jobs, answer, service, "job.list")["jobs"]]
    # What a service says must not have a job of another one cancelled in its caller's name.
    if (one := only_one(job, [each for each in found if _is_meant(each, service, ulid)])) is None:
        raise RemoteError("not-found", f"{service} knows no job that begins with {ulid}")
    return one


def _is_meant(job: str, service: str, begin: str) -> bool:
    home, _, ulid = job.rpartition("/")
    return home == service and is_ulid(ulid) and ulid.startswith(begin)
