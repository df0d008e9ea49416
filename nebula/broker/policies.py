"""Limits of single destinations, by pattern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nebula.broker.globs import compile_glob
from nebula.broker.messages import ContentCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationPolicy:
    """What one pattern of destinations has in place of the general limits (None: those).

    Attributes:
        pattern: a glob over destinations, `/queue/orders.*`.
        max_messages, max_bytes: what a queue may hold.
        max_deliveries: failed deliveries after which a message is dead.
        check: what bodies sent there are judged by, or None.
    """

    pattern: str = "**"
    max_messages: int | None = None
    max_bytes: int | None = None
    max_deliveries: int | None = None
    check: ContentCheck | None = None


class PolicyTable:
    """Policies in the order of the settings; the first that matches counts."""

    def __init__(self, policies: Sequence[DestinationPolicy]) -> None:
        self._policies = tuple((compile_glob(policy.pattern), policy) for policy in policies)

    def lookup(self, destination: str) -> DestinationPolicy | None:
        """The policy of `destination`. Asked once for a queue, and once for each header block of a sender."""
        for matches, policy in self._policies:
            if matches(destination):
                return policy
        return None
