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
from nebula.broker.operations.administration import Administration
from nebula.broker.operations.traffic import Traffic
from nebula.broker.operations.views import BrokerStatus, KindTotals, PoolStatus, StoreStatus
from nebula.broker.store.commits import Commits
from nebula.version import __version__


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
        len(broker.sends.paused),
        len(broker.routing.delayed),
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
    # Memory is not a pool in the account but is shown as one, so that all bounds have the same metrics.
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
