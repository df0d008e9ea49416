"""Limits of single destinations, by pattern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationPolicy:
    """What one pattern of destinations has in place of the general limits (None: those).

    Attributes:
        pattern: a shell glob over destinations, `/queue/orders.*`.
        max_messages, max_bytes: what a queue may hold.
        max_deliveries: failed deliveries after which a message is dropped.
    """

    pattern: str = "*"
    max_messages: int | None = None
    max_bytes: int | None = None
    max_deliveries: int | None = None


class PolicyTable:
    """Policies in the order of the settings; the first that matches counts."""

    def __init__(self, policies: Sequence[DestinationPolicy]) -> None:
        self._policies = tuple(policies)

    def lookup(self, destination: str) -> DestinationPolicy | None:
        """The policy of `destination`. Asked once, when a queue is made."""
        for policy in self._policies:
            if fnmatchcase(destination, policy.pattern):
                return policy
        return None
