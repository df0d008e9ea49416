"""Connections, and what one costs."""

from __future__ import annotations

from benchmarks import load
from benchmarks.contestants import stomp
from benchmarks.row import Row

ROWS = (
    Row(
        "connects",
        "Connects",
        "Connect, CONNECT, CONNECTED, DISCONNECT, its RECEIPT, close: one after the other.",
        "connects",
        stomp(load.connects),
        aim=8,
    ),
)
