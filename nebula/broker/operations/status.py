"""The status of a broker: the numbers behind `broker.status`, `/readyz` and `/metrics`.

The server hands in what only it knows as `ServerFacts`; nothing here imports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nebula.broker.core.account import Account
from nebula.broker.core.broker import Broker
from nebula.broker.core.messages import DestinationKind
from nebula.broker.core.shares import Pool, Resource
from nebula.broker.operations.administration import Administration, KindTotals
from nebula.broker.operations.traffic import Traffic
from nebula.broker.store.commits import Commits
from nebula.version import __version__


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """What the store has done since the start.

    Attributes:
        commits: batches; `rows` and `seconds` are totals of all of them.
        backlog: rows that wait for the next batch.
        waiting: sessions whose RECEIPTs wait for it.
    """

    commits: int
    rows: int
    seconds: float
    backlog: int
    waiting: int


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """One of the broker's bounds.

    Attributes:
        limit: of the whole broker; `reserved` is the part for operators only.
        used: by all principals together; `largest` is the use of the principal that uses most.
        refusals: how often a principal was refused because its share was used up.
    """

    limit: int
    reserved: int
    used: int
    largest: int
    refusals: int


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """A broker at this moment. Totals count from its start; the difference of two answers is a rate.

    Attributes:
        not_ready: why it should be sent nothing at present; None: it is ready.
        connections: also those that have not said who they are.
        sessions: those with durable subscriptions, connected or not.
        received: messages that were sent to it. What it made of them, such as dead letters, counts too.
        sent_frames: deliveries, and what it said itself.
        read_bytes, written_bytes: of all connections.
        memory_bytes: used by messages, values, transactions, subscriptions and names, of `max_memory_bytes`.
        outbox_bytes: to be written to connections.
        held_back: connections that are not read until there is room.
        delayed: messages that wait for their time.
        dead_letters: messages in the dead-letter queue.
        dropped: messages that were not delivered, by reason.
        events: how often each event of connections was logged, or would have been.
        ended: connections that the broker has ended, by reason.
        kinds: totals for each kind of destination.
        principals: number of those that use something.
        pools: the shared bounds, by resource.
        store: None: nothing is kept on disk.
    """

    version: str
    uptime_seconds: float
    not_ready: str | None
    connections: int
    max_connections: int
    sessions: int
    received: int
    sent_frames: int
    read_bytes: int
    written_bytes: int
    memory_bytes: int
    max_memory_bytes: int
    outbox_bytes: int
    held_back: int
    delayed: int
    dead_letters: int
    dropped: Mapping[str, int]
    events: Mapping[str, int]
    ended: Mapping[str, int]
    kinds: Mapping[str, KindTotals]
    principals: int
    pools: Mapping[str, PoolStatus]
    store: StoreStatus | None


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What only the server knows of itself. The fields are those of `BrokerStatus`.

    Attributes:
        traffic: of all connections since the start.
        commits: what the store has taken; None: there is no store.
    """

    uptime_seconds: float
    not_ready: str | None
    connections: int
    traffic: Traffic
    outbox_bytes: int
    events: Mapping[str, int]
    ended: Mapping[str, int]
    commits: Commits | None


def broker_status(
    broker: Broker,
    administration: Administration,
    totals: Mapping[DestinationKind, KindTotals],
    facts: ServerFacts,
) -> BrokerStatus:
    """The status of a broker.

    Args:
        totals: of its destinations, by kind, counted just now.
        facts: of its server.
    """
    account, traffic = broker.account, facts.traffic
    dead_letters = broker.queues.get(broker.queues.dead_letter)
    return BrokerStatus(
        __version__,
        facts.uptime_seconds,
        facts.not_ready,
        facts.connections,
        broker.limits.max_connections,
        len(broker.durable_sessions.by_id),
        administration.received_count,
        traffic.sent_frames,
        traffic.read_bytes,
        traffic.written_bytes,
        account.stored_bytes,
        account.max_bytes,
        facts.outbox_bytes,
        broker.held_back_count,
        broker.delayed_count,
        0 if dead_letters is None else dead_letters.store.depth,
        dict(account.dropped),
        dict(facts.events),
        dict(facts.ended),
        {kind.name: each for kind, each in totals.items()},
        len(account.usages.all),
        _pools(account),
        _store_status(facts.commits, broker),
    )


def _pools(account: Account) -> dict[str, PoolStatus]:
    usages = account.usages.all
    memory = Pool(Resource.MEMORY, account.max_bytes, account.reserved_bytes, account.stored_bytes)
    return {
        pool.resource.value: PoolStatus(
            pool.limit,
            pool.reserved,
            pool.used,
            max((usage.used(pool.resource) for usage in usages), default=0),
            account.refusals[pool.resource],
        )
        for pool in (memory, *account.pools.values())
    }


def _store_status(commits: Commits | None, broker: Broker) -> StoreStatus | None:
    if commits is None or broker.journal is None:
        return None
    backlog = broker.journal.pending_count
    return StoreStatus(commits.count, commits.rows, commits.seconds, backlog, len(broker.receipts.waiting))
