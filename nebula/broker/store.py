"""What must survive the process: the rows, and who keeps them.

The core only makes rows, and takes them at start. It never reads a store while it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

# So many numbers has a run: enough for half a year of 300,000 messages a second, and the store's
# 63 bits hold two million runs.
_RUN_BITS: Final = 42


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """Content with its headers, as it is kept.

    Attributes:
        number: its place in the order of arrival, and in its message-id (D.20).
        destination: where its SEND went.
        headers: what is passed on, in order, without `destination`.
        body: octets.
        expires_at: wall clock, seconds since 1970, or None.
        attempts: earlier deliveries that failed.
    """

    number: int
    destination: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    expires_at: float | None = None
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class PutMessage:
    """A message waits in a queue, or is un-ACKed there. Replaces what has its number in that queue."""

    queue: str
    message: StoredMessage


@dataclass(frozen=True, slots=True)
class DropMessage:
    """A message of a queue is settled."""

    queue: str
    number: int


@dataclass(frozen=True, slots=True)
class PutValue:
    """The present value of a last-value destination. An empty body is a tombstone: what a durable
    subscription that is away has still to be told of."""

    message: StoredMessage


@dataclass(frozen=True, slots=True)
class DropValue:
    """A last-value destination has nothing to be kept any more."""

    destination: str


@dataclass(frozen=True, slots=True)
class PutSession:
    """A session with durable subscriptions.

    Attributes:
        id: its client-id.
        principal: whose it is.
        away_since: wall clock, seconds since 1970; None: it is connected.
    """

    id: str
    principal: str
    away_since: float | None


@dataclass(frozen=True, slots=True)
class DropSession:
    """A session and all its subscriptions are gone."""

    id: str


@dataclass(frozen=True, slots=True)
class PutSubscription:
    """A durable subscription. Replaces one of the same session and id.

    Attributes:
        session: its client-id.
        id: as in SUBSCRIBE.
        destination: a name or a glob.
        ack: `auto`, `client` or `client-individual`.
        prefetch: un-ACKed messages at most.
        seen_number: what was published up to this number it has had, save what `PutPending` says.
    """

    session: str
    id: str
    destination: str
    ack: str
    prefetch: int
    seen_number: int


@dataclass(frozen=True, slots=True)
class DropSubscription:
    """A durable subscription is gone for good."""

    session: str
    id: str


@dataclass(frozen=True, slots=True)
class PutPending:
    """At a clean stop: the last-value destinations that a durable subscription has still to be told of.

    Replaces what was said before of that subscription.
    """

    session: str
    id: str
    destinations: tuple[str, ...]


Write: TypeAlias = (
    PutMessage
    | DropMessage
    | PutValue
    | DropValue
    | PutSession
    | DropSession
    | PutSubscription
    | DropSubscription
    | PutPending
)


@dataclass(slots=True)
class Snapshot:
    """Everything that was kept.

    Attributes:
        run: counts the starts of this store, from 0. See `first_number`.
        incarnation: what every message-id of this store begins with.
        is_clean: the last run ended by `close`, so that `pending` is all there is.
        messages: by queue, in order of number.
        pending: by (session, subscription).
    """

    run: int
    incarnation: str
    is_clean: bool
    messages: dict[str, list[StoredMessage]] = field(default_factory=dict)
    values: list[StoredMessage] = field(default_factory=list)
    sessions: list[PutSession] = field(default_factory=list)
    subscriptions: list[PutSubscription] = field(default_factory=list)
    pending: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    @property
    def first_number(self) -> int:
        """Of this run's messages: above all that earlier runs can have used."""
        return max(1, self.run << _RUN_BITS)


class Store(Protocol):
    """Keeps what must survive the process.

    `load` comes first and once, `close` last. They and `apply` are called from worker threads,
    never two at once.
    """

    def load(self) -> Snapshot:
        """Everything that is kept; the run is counted before this returns.

        Raises:
            StoreError: it cannot be had: says where, why and what to do.
        """
        ...

    def apply(self, writes: Sequence[Write]) -> None:
        """Make the writes durable, all or none, in this order.

        When this returns, a crash does not undo them. If it raises, the broker stops.
        """
        ...

    def close(self) -> None:
        """The run ends well: `Snapshot.is_clean` of the next one. Idempotent."""
        ...
