"""Throughput through queues and topics, and what rights and slow readers cost it."""

from __future__ import annotations

from functools import partial

from benchmarks import contention, load
from benchmarks.contestants import stomp
from benchmarks.row import Contestant, Measure, Row


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


def _with_body(size_bytes: int, size: str) -> Row:
    return Row(
        f"queue-{size.lower().replace(' ', '')}",
        f"Queue, auto acks, bodies of {size}",
        "One connection sends to a queue while another consumes from it.",
        "messages",
        stomp(partial(load.queue_between, pairs=1, body=b"x" * size_bytes)),
    )


ROWS = (
    Row(
        "queue-auto",
        "Queue, auto acks",
        "One connection sends to a queue while another consumes from it.",
        "messages",
        stomp(load.queue_auto),
        aim=10,
    ),
    Row(
        "queue-client",
        "Queue, cumulative client acks",
        "The same with `ack:client` and one ACK for each hundred messages.",
        "messages",
        stomp(load.queue_client),
        aim=10,
    ),
    Row(
        "queue-receipts",
        "Queue, a receipt per message",
        "The same with `ack:auto`; every SEND asks for a receipt of its own, pipelined.",
        "messages",
        stomp(load.queue_receipts),
        aim=12,
    ),
    Row(
        "fan-out",
        "Topic, fan-out 1 to 10",
        "One connection sends to a topic with ten subscribers, each on a connection of its own.",
        "deliveries",
        stomp(load.fan_out),
        aim=14,
    ),
    Row(
        "queue-four",
        "Queue, 4 publishers and 4 consumers",
        "Four connections send to one queue, and four others consume from it, with `ack:auto`.",
        "messages",
        stomp(partial(load.queue_between, pairs=4)),
    ),
    _with_body(1024, "1 KB"),
    _with_body(16 * 1024, "16 KB"),
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
)
