"""Retries of calls: after which failures, how often, after which delay.

A call may run twice if its verb is idempotent or it has an idempotency key. Otherwise it is tried again only
after failures that prove that nothing began. All attempts and delays share the call's time.
"""

# docs/decisions/0023 says why a call in flight is not always sent again.
# When is it safe to send a request again? A lost reply and a lost request look the same to the caller. So
# there are three classes of failure:
#
#     proves that nothing began       NoResponder, rejected-full, `busy`          any call with a `retry`
#     says nothing                    ConnectionLost, ServerError, other          calls that may run twice:
#                                     retryable errors of a service               idempotent, or with a key
#     final                           CallTimeout, other errors and verdicts      never
#
# A timeout is final because all attempts share the call's seconds: when it comes there is no time left.
#
# Two kinds of attempts need no `retry=` of the user. After a loss a call that may run twice is sent again,
# a few times. And with `wait_for_responder` the client looks for a service that is about to start; a look
# is not an attempt, since the broker gave the request to no service.
#
# Delays have a random part (`Retry.delay`): callers that failed together should not return together.

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final, TypeAlias, TypeVar

import anyio

from nebula.errors import ConnectionLost, NebulaError, NoResponder, Rejected, RemoteError, ServerError
from nebula.headers import REJECTED_FULL
from nebula.rpc.contract.retry import Retry
from nebula.rpc.errors import VerbError

__all__ = ["PLAIN", "CallRules", "ClientClosed", "Sleep", "persist"]

T = TypeVar("T")

# The service had begun nothing when it replied so: a second attempt is in fact the first.
_NOT_BEGUN: Final = frozenset({"busy"})


Sleep: TypeAlias = Callable[[float], Awaitable[None]]
"""Waits for seconds: `anyio.sleep`."""


class ClientClosed(ConnectionLost):
    """There is no connection and there will be none: the client was left, or does not reconnect."""


# A call that may run twice is sent again when its connection is lost. Not without limit: an ERROR does not
# say which frame it is about, and a frame that the broker refuses would end each new connection.
_AFTER_LOSS: Final = Retry(first=0.0)

# Delays between looks for a service that is not there.
_LOOKING: Final = Retry(longest=0.3)


@dataclass(frozen=True, slots=True)
class CallRules:
    """When to try a call again; see `CallOptions` for each.

    Attributes:
        is_idempotent: the verb was declared so.
    """

    retry: Retry | None = None
    idempotency_key: str | None = None
    wait_for_responder: float = 0.0
    errors: Sequence[type[VerbError]] = ()
    cache: float | bool = True
    is_idempotent: bool = False

    @property
    def may_run_twice(self) -> bool:
        """A request that was handled before may be sent again."""
        return self.is_idempotent or self.idempotency_key is not None

    def promised(self, errors: Sequence[type[VerbError]], *, is_idempotent: bool) -> CallRules:
        """The same rules, with what a verb was declared with."""
        if not (errors or is_idempotent):
            return self
        return replace(self, is_idempotent=is_idempotent, errors=(*self.errors, *errors))

    def is_look(self, error: NebulaError, waited: float) -> bool:
        """Whether an attempt that failed after some seconds was only a look for a service."""
        return isinstance(error, NoResponder) and waited < self.wait_for_responder

    def delay_after(self, error: NebulaError, failures: int) -> float | None:
        """Seconds until the next attempt; None: that was the last.

        Args:
            error: of the last attempt.
            failures: how many attempts have failed.
        """
        is_loss = isinstance(error, (ConnectionLost, ServerError))
        retry = self.retry or (_AFTER_LOSS if is_loss else None)
        if retry is None or failures >= retry.most_attempts or not self._may_pass(error):
            return None
        return retry.delay(failures, random.uniform)

    def _may_pass(self, error: NebulaError) -> bool:
        match error:
            case ClientClosed():
                return False
            case Rejected(verdict=verdict):
                return isinstance(error, NoResponder) or verdict == REJECTED_FULL
            case RemoteError(code=code, retryable=retryable):
                return retryable and (self.may_run_twice or code in _NOT_BEGUN)
            case ConnectionLost() | ServerError():
                return self.may_run_twice
            case _:
                return False


PLAIN: Final = CallRules()


async def persist(
    attempt: Callable[[float], Awaitable[T]],
    rules: CallRules,
    seconds: float,
    *,
    sleep: Sleep = anyio.sleep,
    now: Callable[[], float] = monotonic,
) -> T:
    """Try until an attempt succeeds, the rules allow no more, or the time is over.

    Args:
        attempt: called with the seconds that are left.
        rules: when to try again.
        seconds: for all attempts and the delays between them.
        sleep: waits.
        now: seconds of any clock that does not jump.

    Raises:
        NebulaError: what the last attempt raised.
    """
    began = now()
    looks = failures = 0
    delay: float | None
    while True:
        try:
            return await attempt(began + seconds - now())
        except NebulaError as error:
            waited = now() - began
            if rules.is_look(error, waited):
                # A look is no attempt: the broker gave the request to no service.
                looks += 1
                delay = _LOOKING.delay(looks, random.uniform)
            else:
                failures += 1
                delay = rules.delay_after(error, failures)
            if delay is None or waited + delay >= seconds:
                raise
        await sleep(delay)
