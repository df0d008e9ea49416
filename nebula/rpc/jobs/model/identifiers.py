"""Identifiers of jobs: ULIDs, which sort by time, and `<service>/<ulid>`, which names the service to ask."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["RANDOM_BYTES", "ULID_LENGTH", "is_ulid", "new_ulid", "qualified", "unqualified"]

RANDOM_BYTES: Final = 10

ULID_LENGTH: Final = 26
"""Characters of a ULID."""

# Crockford's base 32. The first character holds three bits only: 26 times 5 is two more than 128.
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ULID: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


# Crockford's digits are in ASCII order, so ULIDs sort as texts in the order of their numbers, and
# `job_filter` finds a prefix by BETWEEN. Within one millisecond the order is random; the registry's `number`
# has the true one.
def new_ulid(timestamp: int, randomness: bytes) -> str:
    """The ULID of this time and chance: of two times the later one sorts after the earlier.

    Args:
        timestamp: milliseconds since the epoch, below 2**48.
        randomness: `RANDOM_BYTES` of them.
    """
    assert 0 <= timestamp < 1 << 48
    assert len(randomness) == RANDOM_BYTES
    number = timestamp << 80 | int.from_bytes(randomness, "big")
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


# Upper case only, though Crockford's base 32 reads either: ids are compared as texts and stand in
# destinations and file names, where a second spelling would be a second job.
def is_ulid(text: str) -> bool:
    """Whether this is a ULID in its one form: upper case."""
    return _ULID.fullmatch(text) is not None


def qualified(service: str, ulid: str) -> str:
    """A job's id as callers see it."""
    return f"{service}/{ulid}"


def unqualified(job: str) -> tuple[str | None, str]:
    """Service and ULID of a job's id; the service is None where the ULID stands alone.

    Raises:
        ValueError: it is no job's id.
    """
    service, slash, ulid = job.rpartition("/")
    if not is_ulid(ulid) or (slash and not service):
        raise ValueError(f"{job!r} is no job's id, which looks like reports/01JDB3QK6M0000000000000000")
    return service or None, ulid


def own_queue(service: str, via: str) -> str:
    """`via`, if it is the queue of the service or of one of its instances.

    What a service says must not make its caller send to queues of others in the caller's name.

    Raises:
        ValueError: it is not.
    """
    home = f"/queue/{service}"
    if via != home and not via.startswith(f"{home}."):
        raise ValueError(f"{via!r} is no queue of the service {service!r}")
    return via
