"""Nebula: microservice verbs and Spark jobs over STOMP.

The public names, loaded when they are first used, so that a client does not import a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nebula import sync, testing
    from nebula.errors import (
        AvroError,
        CallTimeout,
        CircuitOpen,
        ConnectFailed,
        ConnectionLost,
        JobEnded,
        JobError,
        LocalProtocolError,
        MissingExtra,
        NebulaError,
        NoResponder,
        OtherContract,
        OutsideBroker,
        Refused,
        Rejected,
        RemoteError,
        ServerError,
        SettingsError,
    )
    from nebula.host.embedding import embedded
    from nebula.rpc.avro_bodies import in_avro
    from nebula.rpc.breaker import Breaker
    from nebula.rpc.cache import Cache, CacheFailed
    from nebula.rpc.client import Client
    from nebula.rpc.context import Request
    from nebula.rpc.errors import StreamBroken, UnexpectedReply, VerbError
    from nebula.rpc.injection import Depends
    from nebula.rpc.jobs import Job, JobCancelled, JobHandle, JobState, JobStatus
    from nebula.rpc.lifespan import lifespan_state
    from nebula.rpc.problems import Problem, problem_of
    from nebula.rpc.reconnecting import ConnectionState
    from nebula.rpc.responder import Responder
    from nebula.rpc.retrying import Retry
    from nebula.rpc.verbs import verb
    from nebula.spark import Spark
    from nebula.stomp.client_tls import TlsOptions
    from nebula.stomp.messages import AckMode, Message

__version__ = "0.1.0"

__all__ = [
    "AckMode",
    "AvroError",
    "Breaker",
    "Cache",
    "CacheFailed",
    "CallTimeout",
    "CircuitOpen",
    "Client",
    "ConnectFailed",
    "ConnectionLost",
    "ConnectionState",
    "Depends",
    "Job",
    "JobCancelled",
    "JobEnded",
    "JobError",
    "JobHandle",
    "JobState",
    "JobStatus",
    "LocalProtocolError",
    "Message",
    "MissingExtra",
    "NebulaError",
    "NoResponder",
    "OtherContract",
    "OutsideBroker",
    "Problem",
    "Refused",
    "Rejected",
    "RemoteError",
    "Request",
    "Responder",
    "Retry",
    "ServerError",
    "SettingsError",
    "Spark",
    "StreamBroken",
    "TlsOptions",
    "UnexpectedReply",
    "VerbError",
    "embedded",
    "in_avro",
    "lifespan_state",
    "problem_of",
    "sync",
    "testing",
    "verb",
]

_HOMES = {
    "AckMode": "nebula.stomp.messages",
    "Breaker": "nebula.rpc.breaker",
    "Cache": "nebula.rpc.cache",
    "CacheFailed": "nebula.rpc.cache",
    "Client": "nebula.rpc.client",
    "ConnectionState": "nebula.rpc.reconnecting",
    "Depends": "nebula.rpc.injection",
    "Job": "nebula.rpc.jobs",
    "JobCancelled": "nebula.rpc.jobs",
    "JobHandle": "nebula.rpc.jobs",
    "JobState": "nebula.rpc.jobs",
    "JobStatus": "nebula.rpc.jobs",
    "Message": "nebula.stomp.messages",
    "Problem": "nebula.rpc.problems",
    "Request": "nebula.rpc.context",
    "Responder": "nebula.rpc.responder",
    "Retry": "nebula.rpc.retrying",
    "Spark": "nebula.spark",
    "StreamBroken": "nebula.rpc.errors",
    "TlsOptions": "nebula.stomp.client_tls",
    "UnexpectedReply": "nebula.rpc.errors",
    "VerbError": "nebula.rpc.errors",
    "embedded": "nebula.host.embedding",
    "in_avro": "nebula.rpc.avro_bodies",
    "lifespan_state": "nebula.rpc.lifespan",
    "problem_of": "nebula.rpc.problems",
    "verb": "nebula.rpc.verbs",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("sync", "testing"):
        return import_module(f"nebula.{name}")
    if name in __all__:
        try:
            value = getattr(import_module(_HOMES.get(name, "nebula.errors")), name)
        except ModuleNotFoundError as error:
            from nebula.extras import explain

            explain(error, f"nebula.{name}")
            raise
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
