"""All rows of the benchmark, and how each broker that they need is started."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial

from benchmarks import peers
from benchmarks.listeners import nebula_tls, nebula_websocket
from benchmarks.own import APP, DROPS_OLDEST, LARGE, RIGHTS, nebula_broker
from benchmarks.peers import Broker
from benchmarks.row import Row
from benchmarks.tables import connections, disk, heads, latency, pipeline, requests, rpc, streams, values

# How each broker is started, by the name that contestants use for it. The first is ours.
BROKERS: dict[str, Callable[[], AbstractContextManager[Broker]]] = {
    "nebula": nebula_broker,
    "nebula interpreted": partial(nebula_broker, interpreted=True),
    "nebula --app": partial(nebula_broker, app=APP),
    "nebula --rights": partial(nebula_broker, rights=RIGHTS),
    "nebula --store sqlite": partial(nebula_broker, store="sqlite"),
    "nebula interpreted --store sqlite": partial(nebula_broker, store="sqlite", interpreted=True),
    "nebula large": partial(nebula_broker, environment=LARGE),
    "nebula drop-oldest": partial(nebula_broker, config=DROPS_OLDEST),
    # Measured by its memory, so that no other row has left traces in it.
    "nebula deep": partial(nebula_broker, store="sqlite"),
    # Each with its own table of ids.
    "nebula ids": partial(nebula_broker, store="sqlite"),
    "nebula ids, auto": partial(nebula_broker, store="sqlite"),
    "nebula tls": nebula_tls,
    "nebula websocket": nebula_websocket,
    "rabbitmq": peers.rabbitmq,
    "activemq": peers.activemq,
    "activemq on disk": partial(peers.activemq, persistent=True),
    "nats": peers.nats,
    "nats of pypi": peers.nats_of_pypi,
    # Without any broker.
    "spark": peers.spark,
}

# In the order of the page of results. What a row is about comes before what else there is.
ROWS: tuple[Row, ...] = (
    *streams.ROWS,
    *requests.ROWS,
    *heads.ROWS,
    *latency.ROWS,
    *connections.ROWS,
    *disk.ROWS,
    *values.ROWS,
    *rpc.ROWS,
    *pipeline.ROWS,
)


def chosen(names: Iterable[str]) -> list[Row]:
    """The rows of these names, or all; `ValueError` says which there are."""
    wanted = list(names)
    unknown = set(wanted) - {row.name for row in ROWS}
    if unknown:
        raise ValueError(
            f"no row {', '.join(sorted(unknown))}: there are {', '.join(row.name for row in ROWS)}"
        )
    return [row for row in ROWS if not wanted or row.name in wanted]
