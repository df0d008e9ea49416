"""Connections, and what one costs."""

from __future__ import annotations

from benchmarks import echo, load
from benchmarks.contestants import stomp
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
)
