"""`Request`: the context of one request, for handlers, providers and middleware."""

# A request knows why it ends, not only that it does. Its handler sees a cancellation in both cases, but the
# service counts and logs them apart. The first reason wins (`end`), because both can come in the same turn
# of the loop.
#
# The attributes of one request are slots, not a dict, and what all requests share is one object
# (`Surroundings`): a request is made for each message.
#
# `attempts_before` trusts counts of brokers only as far as they go: Nebula and RabbitMQ's quorum queues
# count deliveries, other queues have a flag. From a flag it is at least one.

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from time import monotonic
from typing import Any, Final, Generic, Never, Protocol, TypeAlias

from typing_extensions import TypeVar

from nebula import headers as names
from nebula.rpc.wire.digits import whole_number
from nebula.rpc.wire.envelope import Envelope

HANDLED_HEADERS: Final[ContextVar[Mapping[str, str] | None]] = ContextVar("nebula_handled", default=None)
"""The headers of the request that is being handled, or the trace of the job that runs; None outside of both.

Set for each handler and inherited by its tasks and threads, like `AMBIENT` of `nebula.rpc.wire.deadlines`.
`Responder.client` hands on the trace that is in it.
"""

HANDLED_PRINCIPAL: Final[ContextVar[str | None]] = ContextVar("nebula_asked_by", default=None)
"""The principal of the request that is being handled, or of the job that runs; None outside of both.

None, too, where the broker does not vouch for it: what a header claims is never in it. Set and inherited as
`HANDLED_HEADERS`. `Responder.client` names it as the principal it calls on behalf of.
"""

S_co = TypeVar("S_co", default=object, covariant=True)

# What RabbitMQ's quorum queues write; its classic queues say `redelivered` only, and never how often.
_RABBITMQ_COUNT: Final = "x-delivery-count"

# Of a count; what is longer was not written by a broker.
_MOST_DIGITS: Final = 9


class Ending(StrEnum):
    """Why the caller of a request no longer waits."""

    CANCELLED = "cancelled"
    EXPIRED = "expired"


class Cancellable(Protocol):
    """A `CancelScope`, or what else a handler may run in."""

    def cancel(self) -> None:
        """End the handler."""


@dataclass(slots=True)
class Surroundings:
    """What all requests of a service have in common.

    Attributes:
        service: its name.
        state: what its `lifespan` yielded, or None.
    """

    service: str = ""
    state: Any = None


_NOWHERE: Final = Surroundings()


class Request(Generic[S_co]):
    """One request, for handlers that declare a parameter of this type. It is not part of the verb's contract.

    `Request[Pools]` gives type checkers the type of `state`, which the service's `lifespan` yields; it is not
    checked.

    Attributes:
        verb: as sent; of a function that listens (`on`): its name.
        parameters: as sent, before validation.
        description: a text for people, or None.
        headers: of the MESSAGE. Shared with other requests: read only.
        destination: the queue by which it arrived.
        principal: its sender, as the broker vouches for it; None if the broker does not.
        deadline: when its caller stops waiting, on `time.monotonic`'s clock, or None.
    """

    __slots__ = (
        "_around", "after_reply", "deadline", "description", "destination", "ending", "envelope", "headers",
        "parameters", "principal", "scope", "verb", "work",
    )  # fmt: skip

    def __init__(
        self,
        envelope: Envelope,
        headers: Mapping[str, str],
        *,
        destination: str,
        principal: str | None = None,
        deadline: float | None = None,
        around: Surroundings = _NOWHERE,
    ) -> None:
        self._around = around
        # The body as it was read, for the service.
        self.envelope = envelope
        self.verb: str = envelope.verb or ""
        self.parameters: Any = envelope.parameters
        self.description = envelope.description
        self.headers = headers
        self.destination = destination
        self.principal = principal
        self.deadline = deadline
        # What its handler runs in and is cancelled by, and why it was.
        self.scope: Cancellable | None = None
        self.ending: Ending | None = None
        # Called when the reply was sent, or none will be: what must not come to the caller before it.
        self.after_reply: Callable[[], None] | None = None
        # What middleware wraps. Not set without any.
        self.work: Callable[[], Awaitable[Any]]

    @property
    def service(self) -> str:
        """The name of the service that handles it."""
        return self._around.service

    @property
    def state(self) -> S_co:
        """What the `lifespan` of the service yielded; None if it has none."""
        state: S_co = self._around.state
        return state

    @property
    def on_behalf_of(self) -> str | None:
        """The principal on whose behalf `principal` claims to call (G.on-behalf), or None.

        It is a claim of `principal`, which may write any name there. It gives no rights, and `allow` ignores
        it. None if the broker does not vouch for senders.
        """
        return None if self.principal is None else self.headers.get(names.ON_BEHALF_OF) or None

    @property
    def remaining(self) -> float | None:
        """Seconds until its caller stops waiting, 0 if it has stopped; None without a deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - monotonic())

    @property
    def cancelled(self) -> bool:
        """Whether no caller waits for the reply any more: the request was withdrawn, or its time is over.

        A handler in a thread cannot be stopped: if it takes long, it should check this now and then, and
        return. An async handler is cancelled, and does not need to check.
        """
        return self.ending is not None or (self.deadline is not None and monotonic() >= self.deadline)

    @property
    def attempt(self) -> int:
        """The number of this delivery of the request, from 1, as far as the broker counts.

        From 2 on, an earlier delivery may have been begun and was not acknowledged: its process died or was
        stopped.
        """
        return attempts_before(self.headers) + 1

    def end(self, why: Ending) -> None:
        """End its handler because its caller is gone; only for the service itself. The first reason
        counts."""
        if self.ending is None:
            self.ending = why
            if self.scope is not None:
                self.scope.cancel()

    @property
    def reply_to(self) -> str:
        """Where the reply goes. Rule 3: without `neb-reply-to`, to where the request was sent."""
        return self.headers.get(names.REPLY_TO) or self.destination

    @property
    def reply_id(self) -> str | None:
        """The `neb-in-reply-to` of the reply (rule 4), or None."""
        return self.headers.get(names.REPLY_ID)

    def __repr__(self) -> str:
        return f"Request({self.verb!r}, destination={self.destination!r}, principal={self.principal!r})"


AnyRequest: TypeAlias = Request[Never]
"""What handlers with any kind of state take, for type checkers."""


def attempts_before(headers: Mapping[str, str], *, only_failed: bool = False) -> int:
    """How often the request was delivered before, as far as the broker tells.

    Args:
        only_failed: the broker counts the deliveries that failed: what it has not counted was given back.
    """
    text = headers.get(names.DELIVERY_COUNT) or headers.get(_RABBITMQ_COUNT)
    if text is not None and (count := whole_number(text, _MOST_DIGITS)) is not None:
        return count
    return 1 if headers.get(names.REDELIVERED) == "true" and not only_failed else 0
