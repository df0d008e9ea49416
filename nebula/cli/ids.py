"""Abbreviated ids, as in git, and the lookup of an id by its prefix.

Only generated ids are abbreviated: those of jobs, and of sessions without a `client-id`. A `client-id` is
always shown and given whole, so that `disconnect till` never ends `till-9`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from typer import BadParameter

from nebula.cli.replies import Jobs, checked
from nebula.errors import RemoteError
from nebula.rpc.jobs.model.identifiers import is_ulid

if TYPE_CHECKING:
    from nebula.rpc.client.client import Client

__all__ = ["JOB_PREFIX", "LEAST", "SESSION_PREFIX", "find_job", "is_session_id", "only_one", "shortened"]

# With fewer than four digits, a mistyped prefix would often match another id.
LEAST: Final = 4
"""The minimum length of a prefix."""

# 32 random digits, and of a ULID the time in milliseconds with ten random bits.
_SHORT_HEX: Final = 8
_SHORT_ULID: Final = 12

_HEX: Final = re.compile(r"[0-9a-f]{32}")
_JOB: Final = re.compile(r"((?:.+/)?)([0-7][0-9A-HJKMNP-TV-Z]{25})", re.DOTALL)

SESSION_PREFIX: Final = re.compile(rf"[0-9a-f]{{{LEAST},31}}")
"""A possible prefix of a session's id."""

JOB_PREFIX: Final = re.compile(rf"[0-7][0-9A-HJKMNP-TV-Z]{{{LEAST - 1},24}}", re.IGNORECASE)
"""A possible prefix of a job's ULID."""

_MOST_NAMED: Final = 5

# Running instances reply at once. One that hangs must not use up the --timeout before the actual request.
_LONGEST_LOOK: Final = 5.0


def is_session_id(name: str) -> bool:
    """Whether the broker generated this session name."""
    return _HEX.fullmatch(name) is not None


def shortened(names: Sequence[str]) -> list[str]:
    """Abbreviate ids to the usual length, or to the length that makes them differ from each other.

    Other names stay as they are.
    """
    ordered = sorted(set(names))
    shared = [_shared_length(*pair) for pair in pairwise(ordered)]
    # Neighbours in sorted order share the longest prefixes, so that n ids take n comparisons instead of n².
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
    """The only id with a prefix; None if no id has it.

    Raises:
        BadParameter: there are several.
    """
    ids = sorted(set(found))
    if len(ids) > 1:
        several = ", ".join(ids[:_MOST_NAMED]) + (", …" if len(ids) > _MOST_NAMED else "")
        raise BadParameter(f"{prefix} matches several ids: {several}")
    # The caller decides about None: the text may be a whole name that is not an id.
    return ids[0] if ids else None


async def find_job(client: Client, job: str, timeout: float) -> str:
    """The id of a job by its prefix; a whole id is returned without a lookup.

    Args:
        client: connected.
        job: `<service>/<ulid>`, or the first characters of that.
        timeout: seconds for the answers of all instances.

    Raises:
        BadParameter: several jobs match.
        NebulaError: there is no such job, or no answer.
    """
    service, _, ulid = job.rpartition("/")
    # Ids from scripts and from `-` are whole, and cost no request.
    if is_ulid(ulid):
        return job
    wanted = {"prefix": ulid, "limit": _MOST_NAMED + 1}
    seconds = min(timeout, _LONGEST_LOOK)
    # Each instance may have jobs of its own.
    told = [
        one.value for one in (await client.call_all(service, "job.list", wanted, timeout=seconds)).answers
    ]
    # No instance is registered, or the broker has no last values: any instance replies by the service's
    # queue.
    if not told:
        told = [await client.call(service, "job.list", wanted, timeout=timeout)]
    found = [str(row["job"]) for answer in told for row in checked(Jobs, answer, service, "job.list")["jobs"]]
    # A service must not make its caller cancel the job of another service.
    if (one := only_one(job, [each for each in found if _is_meant(each, service, ulid)])) is None:
        raise RemoteError("not-found", f"{service} has no job whose id begins with {ulid}")
    return one


def _is_meant(job: str, service: str, begin: str) -> bool:
    home, _, ulid = job.rpartition("/")
    return home == service and is_ulid(ulid) and ulid.startswith(begin)
