"""Circuit breaker: a destination that fails again and again is not called for a while."""

#     closed -- `failures` in a row --> open -- `seconds` pass --> half-open -- probe succeeds --> closed
#                                        ^                             |
#                                        +-------- probe fails --------+
#
# A closed circuit that has not failed has no entry in the table at all, so a healthy target costs one dict
# lookup. A probe that says nothing of the target (its caller was cancelled) gives its place to the next
# call: otherwise the circuit would stay half-open for ever.
#
# The breaker stands inside the retries: it counts attempts, and a retry against an open circuit fails at
# once.

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Final

from nebula.errors import CircuitOpen, NebulaError, RemoteError
from nebula.rpc.errors import UnexpectedReply

__all__ = ["Breaker", "Circuits"]

# A client may ask any number of targets.
_MOST: Final = 1000


@dataclass(frozen=True, slots=True)
class Breaker:
    """When a target's circuit opens, and for how long.

    While a circuit is open, each call to that target fails with `CircuitOpen` at once and is not sent. After
    `seconds` it is half-open: one call is let through, and its outcome closes the circuit or opens it again.

    These count as failures: no reply in time, no service listening, a refusal by the broker, a lost
    connection, and a retryable `error` such as `busy`. Any other reply shows that the target works. Attempts
    during `wait_for_responder` that find no service count as neither.

    Attributes:
        failures: the number of failures in a row that opens a circuit.
        seconds: how long it stays open.

    Raises:
        ValueError: a number that cannot be used.
    """

    failures: int = 5
    seconds: float = 10.0

    def __post_init__(self) -> None:
        if self.failures < 1 or self.seconds <= 0:
            raise ValueError(f"{self}: failures are 1 or more, and seconds more than 0")


class _Circuit:
    """One target that failed."""

    __slots__ = ("failures", "is_probed", "opened_at")

    def __init__(self) -> None:
        self.failures = 0
        self.opened_at: float | None = None
        self.is_probed = False


class Circuits:
    """The circuits of a client, by target; of more than 1,000 the one that failed longest ago is forgotten.

    Args:
        breaker: of each of them.
        now: seconds of any clock that does not jump.
    """

    def __init__(
        self,
        breaker: Breaker,
        now: Callable[[], float] = lambda: monotonic(),  # noqa: PLW0108  # looked up each time: tests move it
    ) -> None:
        self._breaker = breaker
        self._now = now
        # Only of targets that failed since their last reply; in the order of their last failures.
        self._circuits: dict[str, _Circuit] = {}

    @contextmanager
    def through(self, target: str, tells: Callable[[NebulaError], bool] = lambda _: True) -> Generator[None]:
        """Around one call to `target`.

        Args:
            target: of the call.
            tells: whether an error of the call says anything of the target.

        Raises:
            CircuitOpen: the call must not be made.
        """
        probed = self._enter(target)
        try:
            yield
        except BaseException as error:
            if isinstance(error, NebulaError) and tells(error):
                self._note(target, has_failed=_is_failure(error))
            elif probed is not None:
                # Or given up by its caller: then the next one is the probe.
                probed.is_probed = False
            raise
        else:
            self._note(target, has_failed=False)

    def _enter(self, target: str) -> _Circuit | None:
        """The circuit that this call is to probe, if it is half-open."""
        circuit = self._circuits.get(target)
        if circuit is None or circuit.opened_at is None:
            return None
        left = circuit.opened_at + self._breaker.seconds - self._now()
        if left > 0 or circuit.is_probed:
            raise CircuitOpen(target, circuit.failures, max(left, 0.0))
        circuit.is_probed = True
        return circuit

    def _note(self, target: str, *, has_failed: bool) -> None:
        circuit = self._circuits.pop(target, None)
        if not has_failed:
            return
        circuit = self._circuits[target] = circuit or _Circuit()
        if len(self._circuits) > _MOST:
            # Each restart of a service leaves the queue of an instance that no client will call again.
            del self._circuits[next(iter(self._circuits))]
        circuit.failures += 1
        circuit.is_probed = False
        if circuit.failures >= self._breaker.failures:
            circuit.opened_at = self._now()


def _is_failure(error: NebulaError) -> bool:
    if isinstance(error, UnexpectedReply):
        return False
    return error.retryable if isinstance(error, RemoteError) else True
