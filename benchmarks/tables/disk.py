"""Queues on disk: sends, acks, ids, depth, start."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks import depth, load
from benchmarks.contestants import INTERPRETED
from benchmarks.row import Contestant, Row
from benchmarks.stream import Measurement


def _on_disk(measure: Callable[..., Measurement]) -> list[Contestant]:
    return [
        Contestant("Nebula", "nebula --store sqlite", measure),
        Contestant(INTERPRETED, "nebula interpreted --store sqlite", measure),
        Contestant("RabbitMQ", "rabbitmq", measure),
        Contestant("ActiveMQ", "activemq on disk", measure),
        # With a receipt for each it syncs for each: one for every 256 lets it write as the others do.
        Contestant("ActiveMQ, 256 a receipt", "activemq on disk", partial(measure, receipt_every=256)),
    ]


ROWS = (
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
        aim=6,
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
        aim=0.8,
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
)
