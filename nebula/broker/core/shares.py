"""Shares: how much of each bound of the broker one principal may use.

Every bound of the whole broker is a `Pool`, and what one principal uses of all pools is its `Usage`. A
principal with the fraction `f` may use at most `f / (1 - f)` times what is still free. So a principal that is
alone gets the fraction `f` of a pool, several that press it get equal parts, and a part always stays free for
the next principal. (Switches divide their packet buffers this way: Choudhury and Hahne, "Dynamic queue length
thresholds in a shared memory packet switch", 1996.)

A part of each pool is reserved for operators, so that they can look and intervene when everything else is
used up. Their own share is not limited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import ceil
from typing import Final

from nebula.broker.core.access import Rights
from nebula.native_classes import mypyc_attr

# What may be written if the disk is not watched.
UNBOUNDED_BYTES: Final = 1 << 62


class Resource(Enum):
    """Resources that are bounded for the whole broker. The values are used in the log, metrics and
    settings."""

    MEMORY = "memory"
    DISK = "disk"
    DESTINATIONS = "destinations"
    SUBSCRIPTIONS = "subscriptions"
    GLOBS = "globs"
    SESSIONS = "durable-sessions"
    DURABLES = "durable-subscriptions"
    DELAYED = "delayed-messages"
    DEDUP_IDS = "dedup-ids"
    CONNECTIONS = "connections"

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Share:
    """What one principal may use.

    Attributes:
        pattern: a glob over the names of usages: principals, or `anonymous@ADDRESS`.
        fraction: of each pool, for a principal that is alone; 1.0: all of it.
        most: further limits, in the unit of each resource.
    """

    pattern: str = "**"
    fraction: float = 1.0
    most: Mapping[Resource, int] = field(default_factory=dict)


# A share is relative to what is free: fixed parts would waste room, and full pools starve newcomers, see
# docs/decisions/0038.
@mypyc_attr(allow_interpreted_subclasses=True)  # the one of `Usages`
@dataclass(slots=True, eq=False, repr=False)
class Usage:
    """What one principal uses of the broker. Everything that costs something has a reference to the usage
    that pays.

    Attributes:
        name: the principal; for an anonymous peer with its address.
        rights: of the principal.
        share: what it may use.
        memory_bytes: messages, values, transactions, subscriptions and names that it pays for.
        disk_bytes: messages that it pays for on disk.
        counts: numbers of all other resources in use.
        refusals: how often it was refused because its share was used up.
        most_disk_bytes: what it may pay for on disk, until the next check of the disk.
        is_stalled: it waited for memory without success, and does not wait again until some is free.
    """

    name: str
    rights: Rights | None = None
    share: Share = field(default_factory=Share)
    memory_bytes: int = 0
    disk_bytes: int = 0
    counts: dict[Resource, int] = field(default_factory=dict)
    refusals: int = 0
    most_disk_bytes: int = UNBOUNDED_BYTES
    is_stalled: bool = False

    @property
    def is_disk_full(self) -> bool:
        """Whether its share of the disk is used up."""
        return self.disk_bytes >= self.most_disk_bytes

    @property
    def is_operator(self) -> bool:
        """Whether it may use the reserve and everything that is free."""
        return self.rights is not None and self.rights.is_operator

    def used(self, resource: Resource) -> int:
        """How much it uses."""
        if resource is Resource.MEMORY:
            return self.memory_bytes
        return self.disk_bytes if resource is Resource.DISK else self.counts.get(resource, 0)


@dataclass(slots=True)
class Pool:
    """One bound of the broker.

    Attributes:
        limit: how much there is.
        reserved: of it, for operators alone.
        used: by all principals together.
    """

    resource: Resource
    limit: int
    reserved: int = 0
    used: int = 0

    def room_for(self, usage: Usage) -> int:
        """How much more a principal may take now."""
        return room(self.resource, usage, self.limit - self.used, self.reserved)


def room(resource: Resource, usage: Usage, left: int, reserved: int = 0) -> int:
    """How much more of a resource a principal may take, if `left` of it is free."""
    if usage.is_operator:
        return max(0, left)
    free = left - reserved
    held, share = usage.used(resource), usage.share
    most = free
    if share.fraction < 1.0:
        # Solved for `more` from: held + more <= times * (free - more).
        times = share.fraction / (1.0 - share.fraction)
        most = ceil((times * free - held) / (1.0 + times))
    if resource in share.most:
        most = min(most, share.most[resource] - held)
    return max(0, min(most, free))
