"""The table of what is measured, on whom, and what we aim at."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial

from benchmarks import contention, depth, echo, load, peers, plain_client, publish, values
from benchmarks.own import APP, DROPS_OLDEST, RIGHTS, nebula_broker
from benchmarks.peers import Broker
from benchmarks.pipeline import PIPELINE
from benchmarks.row import Contestant, Measure, Row
from benchmarks.rpc import contestants as rpc
from benchmarks.stream import Measurement

# How each broker is started, by the name that contestants use for it. The first is ours.
BROKERS: dict[str, Callable[[], AbstractContextManager[Broker]]] = {
    "nebula": nebula_broker,
    "nebula --app": partial(nebula_broker, app=APP),
    "nebula --rights": partial(nebula_broker, rights=RIGHTS),
    "nebula --store sqlite": partial(nebula_broker, store="sqlite"),
    # By default it has room for a hundred thousand, and some rows want one more.
    "nebula large": partial(nebula_broker, environment={"NEBULA_SERVER_LIMITS__MAX_DESTINATIONS": "200000"}),
    "nebula drop-oldest": partial(nebula_broker, config=DROPS_OLDEST),
    # Measured by its memory, so that no other row has left traces in it.
    "nebula deep": partial(nebula_broker, store="sqlite"),
    # Each with its own table of ids.
    "nebula ids": partial(nebula_broker, store="sqlite"),
    "nebula ids, auto": partial(nebula_broker, store="sqlite"),
    "rabbitmq": peers.rabbitmq,
    "activemq": peers.activemq,
    "activemq on disk": partial(peers.activemq, persistent=True),
    "nats": peers.nats,
    # Without any broker.
    "spark": peers.spark,
}


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
        Contestant("FastStream on ActiveMQ", "activemq", partial(rpc.faststream_stomp, in_flight=in_flight)),
    ]


def _beside_a_verb() -> list[Contestant]:
    names = {"idle": None, "a verb waits": "wait", "a verb computes": "compute"}
    return [
        Contestant(f"Nebula, {name}", "nebula --app", partial(rpc.echo_beside, verb=verb))
        for name, verb in names.items()
    ]


def _on_disk(measure: Callable[..., Measurement]) -> list[Contestant]:
    return [
        Contestant("Nebula", "nebula --store sqlite", measure),
        Contestant("RabbitMQ", "rabbitmq", measure),
        Contestant("ActiveMQ", "activemq on disk", measure),
        # With a receipt for each it syncs for each: one for every 256 lets it write as the others do.
        Contestant("ActiveMQ, 256 a receipt", "activemq on disk", partial(measure, receipt_every=256)),
    ]


def _beside_a_stalled_tenth(broker: str) -> list[Contestant]:
    return [
        Contestant(f"Nebula, {name}", broker, partial(contention.nine_subscribers, stalled=stalled))
        for name, stalled in (("a stalled tenth", True), ("nine alone", False))
    ]


def _with_rights(measure: Measure) -> list[Contestant]:
    return [
        Contestant("Nebula, rights configured", "nebula --rights", measure),
        Contestant("Nebula, none", "nebula", measure),
    ]


def _beside_a_crowd(measure: Callable[..., Measurement], broker: str) -> list[Contestant]:
    crowds = {"10,000 globs": "*", "10,000 literal": "x", "no others": ""}
    return [
        Contestant(f"Nebula, {name}", broker, partial(measure, crowd=crowd)) for name, crowd in crowds.items()
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
        "request-stomp-py",
        "Request/reply by stomp.py, one at a time",
        "The same from a client that does not set TCP_NODELAY and ACKs each reply: a broker that delays the"
        " acknowledgement of TCP lets it wait 40 ms.",
        "requests",
        _stomp(plain_client.request_one),
        aim=2.5,
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
        "persistent-send",
        "Queue on disk, sends with receipts",
        "One connection sends with `persistent:true` and a receipt for each, pipelined, without consumers."
        " Each broker syncs its files before a RECEIPT, as strace shows: Nebula SQLite's log"
        " (`synchronous=FULL`),"
        " RabbitMQ the index of its durable queue, ActiveMQ the journal of KahaDB"
        " (`journalDiskSyncStrategy=always`). ActiveMQ does not answer a SEND before it has synced the one"
        " before, if both want a receipt: it is measured with one for every 256 SENDs too.",
        "messages",
        _on_disk(depth.sends),
        aim=2.0,
    ),
    Row(
        "persistent-ack",
        "Queue on disk, sent, consumed and acked",
        "The same, and another connection consumes meanwhile, with one cumulative ACK for each hundred."
        " What is acked before it was written need not be written any more.",
        "messages",
        _on_disk(depth.sends_and_acks),
        aim=2.0,
    ),
    Row(
        "persistent-once",
        "Queue on disk, sent with ids, consumed and acked",
        "The same where each SEND has a `dedup-id` of its own, so that its delivery waits for its commit:"
        " each message is written, and its id too.",
        "messages",
        [
            Contestant("Nebula, with ids", "nebula ids", depth.sends_once_and_acks),
            Contestant(
                "Nebula, with ids, auto acks",
                "nebula ids, auto",
                partial(depth.sends_once_and_acks, ack="auto"),
            ),
            Contestant("Nebula, without", "nebula --store sqlite", depth.sends_and_acks),
        ],
        against="Nebula, without",
    ),
    Row(
        "store-idle",
        "Queue, auto acks, with a store",
        "What a store on disk costs messages that are not kept in it.",
        "messages",
        [
            Contestant("Nebula, with a store", "nebula --store sqlite", load.queue_auto),
            Contestant("Nebula, without", "nebula", load.queue_auto),
        ],
        aim=0.97,
        against="Nebula, without",
    ),
    Row(
        "deep",
        "Queue on disk, 1,000,000 deep",
        "Sends with `persistent:true` and a receipt for every 256 to a queue in which messages wait;"
        " then all are taken out, until they are gone from the disk. *RSS MB*: the broker's memory with them"
        " waiting. The queue that is empty at first is drained in parts of 4,096. RabbitMQ would need two"
        " minutes for a million; its memory has traces of other rows.",
        "messages",
        [
            Contestant("Nebula, 1 M deep", "nebula deep", partial(depth.deep, depth=depth.DEEP)),
            Contestant("Nebula, empty", "nebula --store sqlite", depth.shallow),
            Contestant("RabbitMQ, 0.1 M deep", "rabbitmq", partial(depth.deep, depth=depth.DEEP // 10)),
        ],
        aim=0.5,
        against="Nebula, empty",
        max_rounds=2,
    ),
    Row(
        "start",
        "Start with 1,000,000 messages on disk",
        "From the command until it listens, Python's own start included. *RSS MB*: its memory then.",
        "messages",
        [Contestant("Nebula", "nebula", partial(depth.start_up, depth=depth.DEEP))],
        max_rounds=1,
    ),
    Row(
        "queues",
        "10,000 queues",
        "A message of 200 bytes is sent to each, on a broker that had none. *RSS MB*: what it grew by.",
        "queues",
        [Contestant("Nebula", "nebula", depth.many_queues)],
    ),
    Row(
        "stalled",
        "Topic, fan-out 1 to 9, with a stalled reader",
        "One connection sends to a topic with nine subscribers. A tenth subscribes and reads nothing; it is"
        " ended as too slow, and comes back a second later.",
        "deliveries",
        _beside_a_stalled_tenth("nebula"),
        aim=0.95,
        against="Nebula, nine alone",
    ),
    Row(
        "stalled-oldest",
        "The same where a slow reader loses its oldest",
        'Here the policy is `slow_subscriber = "drop-oldest"`: it stays, and each subscriber has a queue.',
        "deliveries",
        _beside_a_stalled_tenth("nebula drop-oldest"),
        aim=0.95,
        against="Nebula, nine alone",
    ),
    Row(
        "flood",
        "Raw request/reply, one at a time, during a flood",
        "As above, while a publisher and a consumer of another queue do what they can."
        " *Flood/s*: the messages that they had meanwhile.",
        "requests",
        [
            *_stomp(contention.request_during_flood),
            Contestant(
                "Nebula, a flood on disk",
                "nebula --store sqlite",
                partial(contention.request_during_flood, headers="persistent:true\n"),
            ),
        ],
        by_latency=True,
    ),
    Row(
        "rights-queue",
        "Queue, auto acks, with rights",
        "What it costs to judge each message by capabilities of globs.",
        "messages",
        _with_rights(load.queue_auto),
    ),
    Row(
        "rights-topic",
        "Topic, fan-out 1 to 10, with rights",
        "The same where each delivery is judged too.",
        "deliveries",
        _with_rights(load.fan_out),
    ),
    Row(
        "values",
        "Last values, 100,000 keys, 100 subscribers",
        "One connection changes 1,000 of the keys, over and over in turn. *Received*: the messages that one"
        " subscriber had, as a part of all changes, until it had every last value;"
        " *slow reader*: the same of one who ACKs and takes a dozen messages twice a second. That its last"
        " values are right is checked in each round. The others have no equal: RabbitMQ's STOMP keeps no last"
        " value, ActiveMQ shows it to new subscribers only, and NATS has it on JetStream, as a stream.",
        "changes",
        [
            Contestant(
                "Nebula, each watches all", "nebula large", partial(values.updates, each_its_part=False)
            ),
            Contestant(
                "Nebula, each its hundredth", "nebula large", partial(values.updates, each_its_part=True)
            ),
        ],
    ),
    Row(
        "snapshot",
        "Last values, an eager snapshot of 100,000 keys",
        "One new subscriber with `eager`: seconds from SUBSCRIBE to the last value, and what came over the"
        " wire. With client acks a thousand may be un-ACKed.",
        "values",
        [
            Contestant("Nebula, auto acks", "nebula large", partial(values.snapshot, ack="auto")),
            Contestant("Nebula, client acks", "nebula large", partial(values.snapshot, ack="client")),
        ],
    ),
    Row(
        "destinations",
        "Last values, with 100,000 other destinations",
        "One connection changes the value of one destination without subscribers.",
        "changes",
        [
            Contestant(
                "Nebula, 100,000 others", "nebula large", partial(publish.beside_values, others=100_000)
            ),
            Contestant("Nebula, no others", "nebula large", partial(publish.beside_values, others=0)),
        ],
    ),
    Row(
        "globs",
        "Last values, with 10,000 subscriptions elsewhere",
        "The same, with 10,000 subscriptions on ten connections that do not match it.",
        "changes",
        _beside_a_crowd(publish.beside_globs, "nebula large"),
    ),
    Row(
        "topic-globs",
        "Topic, with 10,000 subscriptions elsewhere",
        "One connection sends to a topic with one subscriber; 10,000 subscriptions on ten connections do not"
        " match it.",
        "messages",
        [
            *_beside_a_crowd(publish.beside_topic_globs, "nebula"),
            # It takes a third of a minute to make them, so that it is asked no more than it has to be.
            Contestant("ActiveMQ, 10,000 globs", "activemq", partial(publish.beside_topic_globs, crowd="*")),
        ],
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
        "The same from 64 tasks on one connection. FastStream's `request` lets one at a time through;"
        " over STOMP it has none, and its user matches the replies.",
        "calls",
        _rpc(64),
        aim=0.8,
    ),
    Row(
        "rpc-stream",
        "A stream of small items",
        "One reader iterates over what one handler yields, on one connection each and with the usual credit;"
        " reader, broker and service are a process each. The others have no streams.",
        "items",
        [
            Contestant("Nebula", "nebula", partial(rpc.nebula_stream, verb="ticks")),
            Contestant("Nebula, pydantic both sides", "nebula", partial(rpc.nebula_stream, verb="quotes")),
            Contestant("Nebula, from a thread", "nebula", partial(rpc.nebula_stream, verb="plain_ticks")),
        ],
    ),
    Row(
        "with-a-verb",
        "Raw request/reply, 64 in flight, with a hosted verb",
        "What a verb that the broker hosts costs it: one call of it is always under way,"
        " and its handler sleeps, or computes in Python.",
        "requests",
        _beside_a_verb(),
    ),
    *PIPELINE,
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
