"""Nebula: microservice verbs and Spark jobs over STOMP.

Public names are loaded on first use, so that a client does not import the broker.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from nebula.version import __version__ as __version__

# Before any module that may be compiled is imported. Imported only where it has something to do.
if os.environ.get("NEBULA_COMPILED"):
    from nebula.compiled import choose

    choose()
    del choose
del os

# A public name is here for type checkers, in `__all__`, and in `_HOMES` for the import, unless it is a module
# or in `nebula.errors`.
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
    from nebula.rpc.client.breaker import Breaker
    from nebula.rpc.client.cache import Cache, CacheFailed
    from nebula.rpc.client.client import Client
    from nebula.rpc.client.reconnect import ConnectionState
    from nebula.rpc.contract.context import Request
    from nebula.rpc.contract.injection import Depends
    from nebula.rpc.contract.retry import Retry
    from nebula.rpc.contract.verbs import verb
    from nebula.rpc.errors import StreamBroken, UnexpectedReply, VerbError
    from nebula.rpc.http_problems import Problem, problem_of
    from nebula.rpc.jobs import Job, JobCancelled, JobHandle, JobState, JobStatus
    from nebula.rpc.service.lifespan import lifespan_state
    from nebula.rpc.service.responder import Responder
    from nebula.rpc.wire.avro_bodies import in_avro
    from nebula.spark import Spark
    from nebula.stomp.client.messages import AckMode, Message
    from nebula.stomp.client.tls import TlsOptions


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
    "AckMode": "nebula.stomp.client.messages",
    "Breaker": "nebula.rpc.client.breaker",
    "Cache": "nebula.rpc.client.cache",
    "CacheFailed": "nebula.rpc.client.cache",
    "Client": "nebula.rpc.client.client",
    "ConnectionState": "nebula.rpc.client.reconnect",
    "Depends": "nebula.rpc.contract.injection",
    "Job": "nebula.rpc.jobs",
    "JobCancelled": "nebula.rpc.jobs",
    "JobHandle": "nebula.rpc.jobs",
    "JobState": "nebula.rpc.jobs",
    "JobStatus": "nebula.rpc.jobs",
    "Message": "nebula.stomp.client.messages",
    "Problem": "nebula.rpc.http_problems",
    "Request": "nebula.rpc.contract.context",
    "Responder": "nebula.rpc.service.responder",
    "Retry": "nebula.rpc.contract.retry",
    "Spark": "nebula.spark",
    "StreamBroken": "nebula.rpc.errors",
    "TlsOptions": "nebula.stomp.client.tls",
    "UnexpectedReply": "nebula.rpc.errors",
    "VerbError": "nebula.rpc.errors",
    "embedded": "nebula.host.embedding",
    "in_avro": "nebula.rpc.wire.avro_bodies",
    "lifespan_state": "nebula.rpc.service.lifespan",
    "problem_of": "nebula.rpc.http_problems",
    "verb": "nebula.rpc.contract.verbs",
}


# PEP 562: `import nebula` loads next to nothing, and a script that calls a verb loads neither the broker nor
# Spark's supervisor.
def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("sync", "testing"):
        return import_module(f"nebula.{name}")
    if name in __all__:
        try:
            value = getattr(import_module(_HOMES.get(name, "nebula.errors")), name)
        except ModuleNotFoundError as error:
            from nebula.optional import explain

            # Names the extra that installs a missing library; any other failed import is raised as it is.
            explain(error, f"nebula.{name}")
            raise
        # Python finds the name itself from now on.
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
