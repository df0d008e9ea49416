"""The table of what is measured, on whom, and what we aim at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from benchmarks import echo, load, peers
from benchmarks.own import APP, nebula_broker
from benchmarks.peers import Broker
from benchmarks.rpc import contestants as rpc
from benchmarks.stream import Measurement

Measure = Callable[[Broker, float], Measurement]

# How each broker is started, by the name that contestants use for it. The first is ours.
BROKERS: dict[str, Callable[[], AbstractContextManager[Broker]]] = {
    "nebula": nebula_broker,
    "nebula --app": partial(nebula_broker, app=APP),
    "rabbitmq": peers.rabbitmq,
    "activemq": peers.activemq,
    "nats": peers.nats,
}


@dataclass(frozen=True, slots=True)
class Contestant:
    """Who is measured: a name for the table, the broker it needs, and how."""

    name: str
    broker: str
    measure: Measure

    @property
    def is_ours(self) -> bool:
        """Ours are what is compared; the others are what it is compared with."""
        return self.broker.startswith("nebula")


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that is measured.

    Attributes:
        name: what `--rows` takes.
        what: what is done, for the page of results.
        unit: what the rate counts, per second.
        contestants: the first is the one of ours that the aim is about.
        aim: how many times the best of the others we want to be.
        by_latency: compare the median latency instead of the rate.
    """

    name: str
    title: str
    what: str
    unit: str
    contestants: Sequence[Contestant]
    aim: float | None = None
    by_latency: bool = False


def _stomp(measure: Measure) -> list[Contestant]:
    names = {"nebula": "Nebula", "rabbitmq": "RabbitMQ", "activemq": "ActiveMQ"}
    return [Contestant(name, broker, measure) for broker, name in names.items()]


def _rpc(in_flight: int) -> list[Contestant]:
    many = partial(rpc.nats, in_flight=in_flight)
    return [
        Contestant("Nebula", "nebula", partial(rpc.nebula, in_flight=in_flight)),
        Contestant(
            "Nebula, verbs in broker",
            "nebula --app",
            partial(rpc.nebula, in_flight=in_flight, hosted=True),
        ),
        Contestant("NATS micro, pydantic", "nats", partial(many, kind="pydantic")),
        Contestant("NATS micro, bytes", "nats", partial(many, kind="bytes")),
        Contestant("FastStream on RabbitMQ", "rabbitmq", partial(rpc.faststream, in_flight=in_flight)),
    ]


def _beside_a_verb() -> list[Contestant]:
    names = {"idle": None, "a verb waits": "wait", "a verb computes": "compute"}
    return [
        Contestant(f"Nebula, {name}", "nebula --app", partial(rpc.echo_beside, verb=verb))
        for name, verb in names.items()
    ]


ROWS = (
    Row(
        "queue-auto",
        "Queue, auto acks",
        "One connection sends to a queue while another consumes from it.",
        "messages",
        _stomp(load.queue_auto),
        aim=2.5,
    ),
    Row(
        "queue-client",
        "Queue, cumulative client acks",
        "The same with `ack:client` and one ACK for each hundred messages.",
        "messages",
        _stomp(load.queue_client),
        aim=2.5,
    ),
    Row(
        "queue-receipts",
        "Queue, a receipt per message",
        "The same with `ack:auto`; every SEND asks for a receipt of its own, pipelined.",
        "messages",
        _stomp(load.queue_receipts),
        aim=2.5,
    ),
    Row(
        "fan-out",
        "Topic, fan-out 1 to 10",
        "One connection sends to a topic with ten subscribers, each on a connection of its own.",
        "deliveries",
        _stomp(load.fan_out),
        aim=2.5,
    ),
    Row(
        "request-1",
        "Raw request/reply, one at a time",
        "A request through one queue and its answer through another; the echo peer is a process of its own.",
        "requests",
        _stomp(echo.request_one),
        aim=1.5,
        by_latency=True,
    ),
    Row(
        "request-64",
        "Raw request/reply, 64 in flight",
        "The same with 64 requests under way on one connection.",
        "requests",
        _stomp(echo.request_many),
        aim=2.5,
    ),
    Row(
        "connects",
        "Connects",
        "Connect, CONNECT, CONNECTED, DISCONNECT, its RECEIPT, close: one after the other.",
        "connects",
        _stomp(load.connects),
        aim=2.5,
    ),
    Row(
        "rpc-1",
        "RPC end to end, one at a time",
        "Validated parameters and a typed reply; caller, broker and service are a process each."
        " The bytes row validates nothing.",
        "calls",
        _rpc(1),
        aim=1.0,
    ),
    Row(
        "rpc-64",
        "RPC end to end, 64 in flight",
        "The same from 64 tasks on one connection. FastStream's `request` lets one at a time through.",
        "calls",
        _rpc(64),
        aim=0.8,
    ),
    Row(
        "beside-a-verb",
        "Raw request/reply, 64 in flight, beside a hosted verb",
        "What a verb that the broker hosts costs it: one call of it is always under way,"
        " and its handler sleeps, or computes in Python.",
        "requests",
        _beside_a_verb(),
    ),
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
