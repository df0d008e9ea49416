"""Orders of operators' lists, which the verbs and the command line have in common.

Imports nothing of the broker, because commands load it that only need the words. `name` comes first; the
others are the keys of the ranks in `administration`.
"""

from __future__ import annotations

from enum import StrEnum


class QueueOrder(StrEnum):
    """What queues are listed by."""

    NAME = "name"
    DEPTH = "depth"
    BYTES = "bytes"
    TAKEN = "taken"
    UNACKED = "unacked"
    CONSUMERS = "consumers"
    OLDEST = "oldest"


class TopicOrder(StrEnum):
    """What topics and last values are listed by."""

    NAME = "name"
    SUBSCRIBERS = "subscribers"
    WAITING = "waiting"
    BYTES = "bytes"
    CHANGED = "changed"


class ConnectionOrder(StrEnum):
    """What connections are listed by."""

    NAME = "name"
    TRAFFIC = "traffic"
    OUTBOX = "outbox"
    UNACKED = "unacked"


class PrincipalOrder(StrEnum):
    """What principals are listed by."""

    NAME = "name"
    USED = "used"
    MEMORY = "memory"
    DISK = "disk"
    CONNECTIONS = "connections"
    DESTINATIONS = "destinations"
    REFUSALS = "refusals"
