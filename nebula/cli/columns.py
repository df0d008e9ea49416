"""Columns of operators' tables: selected fields of the broker's views.

Commands import this when they run: making the views takes 20 ms, which the start of every command would pay.
"""

from __future__ import annotations

from typing import Any, Final

from nebula.broker.operations.views import (
    ConnectionDetails,
    ConnectionRow,
    DeadLetter,
    DelayedRow,
    DurableRow,
    PrincipalRow,
    QueueDetails,
    QueueRow,
    SessionDetails,
    SessionRow,
    SubscriptionRow,
    TopicDetails,
    TopicRow,
)
from nebula.cli.tables import Column, columns, facts

QUEUES: Final = columns(
    QueueRow, "queue", "depth", "unacked", "paged_out", "consumers", "oldest_seconds", "stored_bytes", "taken"
)
# The columns of the list first, then the other fields.
QUEUE_FACTS: Final = facts(QueueDetails, QUEUES)
# Without the destination, which is the queue that is shown.
CONSUMERS: Final = columns(SubscriptionRow, "session", "principal", "id", "ack", "prefetch", "unacked")

CONNECTIONS: Final = columns(
    ConnectionRow,
    *("session", "principal", "link.peer", "link.since_seconds", "unacked", "outbox_bytes"),
    *("link.read_bytes", "link.written_bytes"),
)
CONNECTION_FACTS: Final = facts(ConnectionDetails, CONNECTIONS)
SUBSCRIPTIONS: Final = columns(SubscriptionRow, "id", "destination", "ack", "prefetch", "unacked")

SESSIONS: Final = columns(
    SessionRow, "session", "principal", "away_seconds", "subscriptions", "waiting", "stored_bytes"
)
SESSION_FACTS: Final = facts(SessionDetails, SESSIONS)
DURABLES: Final = columns(DurableRow, "id", "destination", "ack", "is_active", "waiting", "stored_bytes")

TOPICS: Final = columns(
    TopicRow,
    *("topic", "kind", "subscribers", "waiting", "has_value", "changed_seconds", "sender", "stored_bytes"),
)
TOPIC_FACTS: Final = facts(TopicDetails, TOPICS)
SUBSCRIBERS: Final = (*columns(SubscriptionRow, "session", "principal"), *SUBSCRIPTIONS)

DELAYED: Final = columns(
    DelayedRow, "number", "destination", "principal", "due_seconds", "size_bytes", "is_persistent"
)
DEAD_LETTERS: Final = columns(
    DeadLetter, "number", "source", "reason", "died_at", "deliveries", "code", "sender", "body_bytes"
)


def operator_mark(is_operator: Any) -> str:
    """A star for an operator."""
    # `is True`: an older broker has no such field, and a reply may have any value.
    return "*" if is_operator is True else ""


# They fit into 80 columns with names of 13 characters; longer names are wrapped.
PRINCIPALS: Final = (
    *columns(PrincipalRow, "principal"),
    Column("", "is_operator", operator_mark),
    *columns(
        PrincipalRow,
        *("used_fraction", "memory_bytes", "disk_bytes", "connections", "destinations", "refusals"),
    ),
)
