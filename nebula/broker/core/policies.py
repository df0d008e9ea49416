"""Policies of destinations by pattern: length, expiry, priorities, copies and what happens when full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from nebula.broker.core.messages import ContentCheck
from nebula.globs import compile_glob


class WhenFull(Enum):
    """What happens to a message for which its queue has no room. Values are those of the settings."""

    REJECT = "reject"
    """Its sender waits a while, or it is refused."""
    DROP_OLDEST = "drop-oldest"
    """What waits longest is dropped, counted, to make room."""
    DEAD_LETTER = "dead-letter"
    """What waits longest goes to the dead-letter queue, to make room."""

    __hash__ = object.__hash__


class SlowSubscriber(Enum):
    """What happens to a topic's subscriber that does not keep up. Values are those of the settings."""

    DISCONNECT = "disconnect"
    DROP_OLDEST = "drop-oldest"
    """What waits longest for it is dropped, counted."""

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRules:
    """What one queue may hold, and what happens at that.

    Attributes:
        max_messages: waiting and un-ACKed ones.
        max_bytes: of them, in memory and on disk, each counted with what keeping it costs.
        max_memory_bytes: of those in memory.
        window_bytes: beyond which the store alone has what it has.
        max_deliveries: failed deliveries after which a message is dead; None: it never is.
        when_full: what makes room.
        time_to_live: seconds after which a message that waits is dead; None: it is not.
        has_priorities: it has ten levels.
    """

    max_messages: int
    max_bytes: int
    max_memory_bytes: int
    window_bytes: int
    max_deliveries: int | None
    when_full: WhenFull = WhenFull.REJECT
    time_to_live: float | None = None
    has_priorities: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationPolicy:
    """What one pattern of destinations has in place of the general limits (None: those).

    Attributes:
        pattern: a glob over destinations, `/queue/orders.*`.
        max_messages, max_bytes: what a queue may hold.
        max_deliveries: failed deliveries after which a message is dead.
        when_full: what happens to a message for which its queue has no room.
        time_to_live: seconds after which a message that waits in a queue is dead.
        has_priorities: queues have ten levels.
        dedup_window: seconds during which a `dedup-id` is not to be used again.
        copy_to: the queue that gets a copy of each message.
        slow_subscriber: what happens to a subscriber of topics that does not keep up. It counts for a
            subscription if the pattern matches what that names, be it a glob.
        check: what bodies sent there are judged by, or None.
    """

    pattern: str = "**"
    max_messages: int | None = None
    max_bytes: int | None = None
    max_deliveries: int | None = None
    when_full: WhenFull = WhenFull.REJECT
    time_to_live: float | None = None
    has_priorities: bool = False
    dedup_window: float | None = None
    copy_to: str | None = None
    slow_subscriber: SlowSubscriber = SlowSubscriber.DISCONNECT
    check: ContentCheck | None = None


class PolicyTable:
    """Policies in the order of the settings; the first that matches counts.

    Attributes:
        copies: all queues that get copies.
    """

    def __init__(self, policies: Sequence[DestinationPolicy]) -> None:
        self._policies = tuple((compile_glob(policy.pattern), policy) for policy in policies)
        self.copies = frozenset(policy.copy_to for policy in policies if policy.copy_to is not None)

    def lookup(self, destination: str) -> DestinationPolicy | None:
        """The policy of `destination`. Asked once for a queue, and once for each header block of a sender."""
        # Not cached: queues and heads keep what they found, and settings have few patterns.
        return next((policy for matches, policy in self._policies if matches(destination)), None)
