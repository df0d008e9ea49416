"""Raw request and reply: alone, many in flight, during a flood, next to a hosted verb."""

from __future__ import annotations

from functools import partial

from benchmarks import contention, echo, plain_client
from benchmarks.contestants import stomp
from benchmarks.row import Contestant, Row
from benchmarks.rpc import contestants as rpc


def _beside_a_verb() -> list[Contestant]:
    names = {"idle": None, "a verb waits": "wait", "a verb computes": "compute"}
    return [
        Contestant(f"Nebula, {name}", "nebula --app", partial(rpc.echo_beside, verb=verb))
        for name, verb in names.items()
    ]


ROWS = (
    Row(
        "request-1",
        "Raw request/reply, one at a time",
        "A request through one queue and its answer through another; the echo peer is a process of its own.",
        "requests",
        stomp(echo.request_one),
        aim=2,
        by_latency=True,
    ),
    Row(
        "request-64",
        "Raw request/reply, 64 in flight",
        "The same with 64 requests under way on one connection.",
        "requests",
        stomp(echo.request_many),
        aim=8,
    ),
    Row(
        "request-two-writes",
        "Raw request/reply, one at a time, head and body written apart",
        "By a client that does not set TCP_NODELAY and writes the head of a frame and its body by themselves,"
        " as simple clients do. Its system holds the body back until the broker's has acknowledged the head.",
        "requests",
        stomp(echo.request_in_two_writes),
        by_latency=True,
    ),
    Row(
        "request-stomp-py",
        "Request/reply by stomp.py, one at a time",
        "Through two queues, from a client that does not set TCP_NODELAY and ACKs each reply: a broker that"
        " delays the acknowledgement of TCP lets it wait 40 ms.",
        "requests",
        stomp(plain_client.request_one),
        aim=2.5,
        by_latency=True,
    ),
    Row(
        "flood",
        "Raw request/reply, one at a time, during a flood",
        "As above, while a publisher and a consumer of another queue do what they can."
        " *Flood/s*: the messages that they had meanwhile.",
        "requests",
        [
            *stomp(contention.request_during_flood),
            Contestant(
                "Nebula, a flood on disk",
                "nebula --store sqlite",
                partial(contention.request_during_flood, headers="persistent:true\n"),
            ),
        ],
        by_latency=True,
    ),
    Row(
        "with-a-verb",
        "Raw request/reply, 64 in flight, with a hosted verb",
        "What a verb that the broker hosts costs it: one call of it is always under way,"
        " and its handler sleeps, or computes in Python.",
        "requests",
        _beside_a_verb(),
    ),
)
