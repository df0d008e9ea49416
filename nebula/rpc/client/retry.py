"""Asking again: after which failures, how often, and how long after the one before."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol, TypedDict, TypeVar

import anyio

from nebula.errors import ConnectionLost, NebulaError, NoResponder, Rejected, RemoteError, ServerError
from nebula.headers import REJECTED_FULL
from nebula.rpc.errors import VerbError

if TYPE_CHECKING:
    from nebula.rpc.client.cache import Cache

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
    """How often something is tried, and how long after a failure it is tried again: a call, see `Client`, or
    a message of a queue, see `Responder.on`.

    The delay grows from `first` to `longest`, each one `factor` times the one before. It is jittered, from
    all of it to `jitter` more, so that those who failed together do not come again together.

    A call that fails keeps somebody waiting, and a message does not: what is left out is `attempts=3`,
    `first=0.05`, `longest=2.0` for calls, and `attempts=10`, `first=1.0`, `longest=300.0` for messages.

    Attributes:
        attempts: in all, the first one among them.
        first: seconds after the first failure, at least.
        longest: seconds after the last ones, before the jitter.
        factor: 1 or more.
        jitter: a fraction of the delay.

    Raises:
        ValueError: a number that cannot be used.
    """

    attempts: int | None = None
    first: float | None = None
    longest: float | None = None
    factor: float = 2.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        has_no_attempt = self.attempts is not None and self.attempts < 1
        if has_no_attempt or not 0 <= self.first_delay <= self.longest_delay < inf:
            raise ValueError(f"{self}: attempts are 1 or more, and 0 <= first <= longest")
        if not (1 <= self.factor < inf and 0 <= self.jitter < inf):
            raise ValueError(f"{self}: factor is 1 or more, and jitter 0 or more")

    @property
    def most_attempts(self) -> int:
        """`attempts`, or what calls have."""
        return 3 if self.attempts is None else self.attempts

    @property
    def first_delay(self) -> float:
        """`first`, or what calls have."""
        longest = 2.0 if self.longest is None else self.longest
        return min(0.05, longest) if self.first is None else self.first

    @property
    def longest_delay(self) -> float:
        """`longest`, or what calls have."""
        return max(2.0, self.first_delay) if self.longest is None else self.longest

    def of_messages(self) -> Retry:
        """The same, with what messages have where it says nothing."""
        first, longest = self.first, self.longest
        if first is None:
            first = 1.0 if longest is None else min(1.0, longest)
        if longest is None:
            longest = max(300.0, first)
        attempts = 10 if self.attempts is None else self.attempts
        return replace(self, attempts=attempts, first=first, longest=longest)

    def delay(self, failures: int, uniform: Callable[[float, float], float] = random.uniform) -> float:
        """Seconds to wait after so many failures, 1 or more."""
        try:
            grown = self.first_delay * self.factor ** (failures - 1)
        except OverflowError:
            grown = inf
        whole = self.first_delay and min(self.longest_delay, grown)
        return uniform(whole, whole * (1 + self.jitter))


# A call that bears being sent twice is sent again when its connection is lost. Not for ever: an ERROR does
# not say which frame it is about, and one that the broker cannot bear would end each connection.
_AFTER_LOSS: Final = Retry(first=0.0)

# How often a service that is not there is asked for.
_LOOKING: Final = Retry(longest=0.3)


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
        if retry is None or failures >= retry.most_attempts or not self._may_pass(error):
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
