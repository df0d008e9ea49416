"""Asking again: after which failures, how often, and how long after the one before."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol, TypedDict, TypeVar

import anyio

from nebula.errors import ConnectionLost, NebulaError, NoResponder, Rejected, RemoteError, ServerError
from nebula.headers import REJECTED_FULL
from nebula.rpc.errors import VerbError

if TYPE_CHECKING:
    from nebula.rpc.cache import Cache

__all__ = ["PLAIN", "CallOptions", "CallRules", "ClientClosed", "Retry", "Sleep", "persist"]

T = TypeVar("T")

# The service did nothing yet when it answered so: whoever asks again asks for the first time.
_NOT_BEGUN: Final = frozenset({"busy"})


class Sleep(Protocol):
    """Waits for seconds: `anyio.sleep`."""

    def __call__(self, seconds: float, /) -> Awaitable[None]: ...


class ClientClosed(ConnectionLost):
    """There is no connection, and none will come: the client was left, or does not reconnect."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How often something is tried, and how long after a failure it is tried again.

    The delay doubles from `first_delay` to `longest_delay`. It is jittered, from half of it to all of it, so
    that those who failed together do not come again together.

    Attributes:
        attempts: in all, the first one among them.
        first_delay: seconds after the first failure.
        longest_delay: seconds after the last ones.

    Raises:
        ValueError: a number that cannot be used.
    """

    attempts: int = 3
    first_delay: float = 0.05
    longest_delay: float = 2.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or not 0 <= self.first_delay <= self.longest_delay:
            raise ValueError(f"{self}: attempts are 1 or more, and 0 <= first_delay <= longest_delay")

    def delay(self, failures: int, uniform: Callable[[float, float], float] = random.uniform) -> float:
        """Seconds to wait after so many failures, 1 or more."""
        # Beyond 2 ** 62 the longest one counts anyway, and a float would overflow some day.
        whole = min(self.longest_delay, self.first_delay * 2.0 ** min(failures - 1, 62))
        return uniform(whole / 2, whole)


# A call that bears being sent twice is sent again when its connection is lost. Not for ever: an ERROR does
# not say which frame it is about, and one that the broker cannot bear would end each connection.
_AFTER_LOSS: Final = Retry(first_delay=0.0)

# How often a service that is not there is asked for.
_LOOKING: Final = Retry(longest_delay=0.5)


class CallOptions(TypedDict, total=False):
    """How hard a call tries, by name; each may be left out.

    Attributes:
        retry: how often it is tried while it fails with what may pass, within the call's time; None, the
            default, is once. A call that bears being run twice (the verb is declared `idempotent`, or there
            is an `idempotency_key`) is tried again after `RemoteError` that is `retryable`, `NoResponder`,
            `Rejected` for want of room, `ConnectionLost` and `ServerError`. Any other only after those that
            say that nothing was begun: `NoResponder`, `Rejected` for want of room, `busy`.
        idempotency_key: a text of the caller's, the same on each attempt: a service of ours runs the request
            once, and answers the attempts after it with what it answered then.
        wait_for_responder: seconds that the call may wait, of its time, for somebody to listen, instead of
            `NoResponder` at once. Brokers of others do not tell, and keep the request for whoever comes.
        errors: classes of `VerbError`, each with its `code`: an `error` answer of such a code is raised as
            that class. For a call by function these are those that the verb was declared with.
        cache: seconds to keep the answer, where the client has a `Cache`; False: neither take what is kept
            nor keep the answer. By default as the cache says of the verb.
    """

    retry: Retry | None
    idempotency_key: str | None
    wait_for_responder: float
    errors: Sequence[type[VerbError]]
    cache: float | bool


@dataclass(frozen=True, slots=True)
class CallRules:
    """The options of a call, as `persist` wants them; see `CallOptions`.

    Attributes:
        is_idempotent: the verb says so of itself.
        answers: what is kept of them, by clients that do.
        asker: for whom they are kept, see `Cache.ask`.

    Raises:
        ValueError: seconds to keep an answer, where none are kept.
    """

    retry: Retry | None = None
    idempotency_key: str | None = None
    wait_for_responder: float = 0.0
    errors: Sequence[type[VerbError]] = ()
    is_idempotent: bool = False
    cache: float | bool = True
    answers: Cache | None = None
    asker: str = ""

    def __post_init__(self) -> None:
        if self.answers is None and not isinstance(self.cache, bool):
            raise ValueError(f"cache={self.cache!r}: the client has no cache; give it one, Client(cache=…)")

    @property
    def may_run_twice(self) -> bool:
        """Nothing is lost where the request was handled before, and is sent again."""
        return self.is_idempotent or self.idempotency_key is not None

    def promised(self, errors: Sequence[type[VerbError]], *, is_idempotent: bool) -> CallRules:
        """The same for a verb that was declared so."""
        if not (errors or is_idempotent):
            return self
        return replace(self, is_idempotent=is_idempotent, errors=(*self.errors, *errors))

    def is_look(self, error: NebulaError, waited: float) -> bool:
        """Whether an attempt that failed so, after so many seconds, was but a look for who is there."""
        return isinstance(error, NoResponder) and waited < self.wait_for_responder

    def delay_after(self, error: NebulaError, failures: int) -> float | None:
        """Seconds until the next attempt; None: that was the last.

        Args:
            error: of the last attempt.
            failures: so many attempts have failed.
        """
        is_loss = isinstance(error, (ConnectionLost, ServerError))
        retry = self.retry or (_AFTER_LOSS if is_loss else None)
        if retry is None or failures >= retry.attempts or not self._may_pass(error):
            return None
        return retry.delay(failures)

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
    """Try until it works, or the rules say that it was enough, or the time is over.

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
                # To look who is there is no attempt: nothing was asked.
                looks += 1
                delay = _LOOKING.delay(looks)
            else:
                failures += 1
                delay = rules.delay_after(error, failures)
            if delay is None or waited + delay >= seconds:
                raise
        await sleep(delay)
