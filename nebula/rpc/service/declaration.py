"""Declaration of a service: one value that its runs, built-in verbs and consumers share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

from nebula.rpc.contract.context import Surroundings
from nebula.rpc.contract.retry import Retry
from nebula.rpc.contract.verbs import VerbRegistry
from nebula.rpc.idempotency.replays import Replays
from nebula.rpc.middleware.chain import Middleware
from nebula.rpc.service.subscribers import Subscriber

__all__ = ["Lifespan", "RequestRules", "ServiceDeclaration"]

Lifespan: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]
"""What a service has for as long as it runs: opened before it connects, closed after its last reply."""


@dataclass(frozen=True, slots=True)
class RequestRules:
    """How a responder handles requests; see `Responder` for each."""

    max_attempts: int = 3
    acks_early: bool = False
    debug: bool = False
    max_reply_bytes: int = 8 * 1024 * 1024
    max_waiting: int | None = None
    stream_idle: float = 30.0
    retry: Retry | None = None

    @property
    def message_retry(self) -> Retry:
        """How often functions are called for a message of a subscription, where they do not say."""
        # One number for both by default: a request and a message are tried equally often.
        return (self.retry or Retry(attempts=self.max_attempts)).of_messages()


@dataclass(frozen=True, slots=True)
class ServiceDeclaration:
    """What a responder declares, before and between its runs.

    The value is made once, in the responder's constructor, and handed on whole. Its fields never change;
    `verbs` and `subscribers` are collections that grow until the service runs.

    Attributes:
        name: of the service.
        version: of the service, for discovery and `describe`.
        destinations: its request queues; each gets workers of its own.
        concurrency: workers per queue.
        rules: how it handles requests.
        replays: replies again to requests with a key. They outlive a run: a request that comes again after
            a restart within one process gets the first reply.
        around: the service, for its requests and jobs.
        lifespan: what it yields is the state of the service.
        middleware: around each request, the first one outermost.
        verbs: its verbs, the built-in ones among them.
        subscribers: its `on` functions.
    """

    name: str
    version: str
    destinations: Sequence[str]
    concurrency: int
    rules: RequestRules
    replays: Replays
    around: Surroundings
    lifespan: Lifespan | None
    middleware: Sequence[Middleware]
    verbs: VerbRegistry
    subscribers: Sequence[Subscriber]
