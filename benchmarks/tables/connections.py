"""Connections, and what one costs."""

from __future__ import annotations

from functools import partial

from benchmarks import echo, idle, load, peers
from benchmarks.contestants import stomp
from benchmarks.own import nebula_broker
from benchmarks.row import Contestant, Measure, Row


def _carried(measure: Measure) -> list[Contestant]:
    names = {"nebula tls": "Nebula, TLS", "nebula websocket": "Nebula, WebSocket", "nebula": "Nebula, TCP"}
    return [Contestant(name, broker, measure) for broker, name in names.items()]


ROWS = (
    Row(
        "connects",
        "Connects",
        "Connect, CONNECT, CONNECTED, DISCONNECT, its RECEIPT, close: one after the other.",
        "connects",
        stomp(load.connects),
        aim=8,
    ),
    Row(
        "transport-queue",
        "Queue, auto acks, by TLS and WebSocket",
        "One connection sends to a queue while another consumes from it. A WebSocket has a message for"
        " each SEND, as browsers send them.",
        "messages",
        _carried(load.queue_auto),
    ),
    Row(
        "transport-request",
        "Raw request/reply, one at a time, by TLS and WebSocket",
        "A request through one queue and its answer through another; the echo peer has the same transport.",
        "requests",
        _carried(echo.request_one),
        by_latency=True,
    ),
    Row(
        "idle",
        "1,000 idle connections",
        "Clients that are connected and do nothing. *RSS MB*: what a broker that was just started grew by,"
        " which is what is compared. How much of it a virtual machine would need is not known.",
        "connects",
        [
            Contestant("Nebula", "nebula", partial(idle.connections, start=nebula_broker)),
            Contestant("RabbitMQ", "rabbitmq", partial(idle.connections, start=peers.rabbitmq)),
            Contestant("ActiveMQ", "activemq", partial(idle.connections, start=peers.activemq)),
        ],
        by_memory=True,
        max_rounds=2,
    ),
)
