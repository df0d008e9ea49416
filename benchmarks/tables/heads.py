"""Streams and requests whose heads differ in every message, as those of most clients do."""

from __future__ import annotations

from functools import partial

from benchmarks import echo, heads, load
from benchmarks.contestants import stomp
from benchmarks.row import Row

_KINDS = {
    "correlation": (heads.CORRELATION, "`correlation-id` and `timestamp` in the middle of the head"),
    "traceparent": (heads.TRACEPARENT, "a `traceparent` before `content-length`"),
    "jms": (heads.JMS, "twelve lines as a JMS client sets them, four of them differing"),
}


def _queue(kind: str) -> Row:
    head, what = _KINDS[kind]
    return Row(
        f"queue-{kind}",
        f"Queue, auto acks, differing heads: {kind}",
        f"No two messages have the same head: {what}.",
        "messages",
        stomp(partial(load.queue_auto, head=head)),
        aim=6,
    )


def _fan_out(kind: str) -> Row:
    head, what = _KINDS[kind]
    return Row(
        f"fan-out-{kind}",
        f"Topic, fan-out 1 to 10, differing heads: {kind}",
        f"No two messages have the same head: {what}.",
        "deliveries",
        stomp(partial(load.fan_out, head=head)),
    )


def _request(kind: str, head: str, what: str) -> Row:
    return Row(
        f"request-64-{kind}",
        f"Raw request/reply, 64 in flight, differing heads: {kind}",
        f"No two requests, and no two replies, have the same head: {what}.",
        "requests",
        stomp(partial(echo.request_many, head=head)),
        aim=5,
    )


ROWS = (
    *(_queue(kind) for kind in _KINDS),
    *(_fan_out(kind) for kind in _KINDS),
    *(_request(kind, head, what) for kind, (head, what) in _KINDS.items()),
    _request("ids", heads.IDS, "a `correlation-id` before `content-length` and nothing else"),
)
