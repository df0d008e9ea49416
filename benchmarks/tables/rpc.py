"""Calls and streams end to end: Nebula, NATS micro and FastStream."""

from __future__ import annotations

from functools import partial

from benchmarks.contestants import INTERPRETED
from benchmarks.row import Contestant, Row
from benchmarks.rpc import contestants as rpc

_LIBRARIES = ("pydantic", "nats-py", "faststream", "faststream-stomp")


def _rpc(in_flight: int) -> list[Contestant]:
    many = partial(rpc.nats, in_flight=in_flight)
    return [
        Contestant("Nebula", "nebula", partial(rpc.nebula, in_flight=in_flight)),
        Contestant(
            INTERPRETED, "nebula interpreted", partial(rpc.nebula, in_flight=in_flight, interpreted=True)
        ),
        Contestant(
            "Nebula, verbs in broker",
            "nebula --app",
            partial(rpc.nebula, in_flight=in_flight, hosted=True),
        ),
        Contestant("NATS micro, pydantic", "nats", partial(many, kind="pydantic")),
        Contestant("NATS micro, bytes", "nats", partial(many, kind="bytes")),
        Contestant("NATS of PyPI, micro, pydantic", "nats of pypi", partial(many, kind="pydantic")),
        Contestant("NATS of PyPI, micro, bytes", "nats of pypi", partial(many, kind="bytes")),
        Contestant("FastStream on RabbitMQ", "rabbitmq", partial(rpc.faststream, in_flight=in_flight)),
        Contestant("FastStream on ActiveMQ", "activemq", partial(rpc.faststream_stomp, in_flight=in_flight)),
    ]


ROWS = (
    Row(
        "rpc-1",
        "RPC end to end, one at a time",
        "Validated parameters and a typed reply; caller, broker and service are a process each."
        " The bytes rows validate nothing. NATS is Debian's, and the one of 2026 that PyPI has.",
        "calls",
        _rpc(1),
        aim=1.0,
        libraries=_LIBRARIES,
    ),
    Row(
        "rpc-64",
        "RPC end to end, 64 in flight",
        "The same from 64 tasks on one connection. FastStream's `request` lets one at a time through;"
        " over STOMP it has none, and its user matches the replies.",
        "calls",
        _rpc(64),
        aim=0.8,
        libraries=_LIBRARIES,
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
        libraries=["pydantic"],
    ),
)
