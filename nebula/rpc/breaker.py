"""A circuit breaker: who failed again and again is left alone for a while."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

from nebula.errors import CircuitOpen, NebulaError, RemoteError

__all__ = ["Breaker", "Circuits"]


@dataclass(frozen=True, slots=True)
class Breaker:
    """When a target's circuit opens, and for how long.

    An open one fails each call to that target with `CircuitOpen`, at once and without sending it. After
    `seconds` it is half-open: one call is let through, and what becomes of that closes it or opens it again.

    What counts as a failure: no answer in time, nobody there, refused by the broker, connection lost, and an
    `error` that is retryable, such as `busy`. Any other answer says that the target works.

    Attributes:
        failures: so many one after the other open it.
        seconds: that it is open.

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
    """The circuits of a client, by target.

    Args:
        breaker: of each of them.
        now: seconds of any clock that does not jump.
    """

    def __init__(self, breaker: Breaker, now: Callable[[], float] = monotonic) -> None:
        self._breaker = breaker
        self._now = now
        # Those only that failed lately: a client may ask any number of targets.
        self._circuits: dict[str, _Circuit] = {}

    @contextmanager
    def through(self, target: str) -> Generator[None]:
        """Around one call to `target`.

        Raises:
            CircuitOpen: the call must not be made.
        """
        is_probe = self._enter(target)
        try:
            yield
        except NebulaError as error:
            self._note(target, has_failed=_is_failure(error))
            raise
        except BaseException:
            # Given up by its caller: it tells nothing, and the next one is the probe.
            circuit = self._circuits.get(target)  # an older call may have closed it meanwhile
            if is_probe and circuit is not None:
                circuit.is_probed = False
            raise
        else:
            self._note(target, has_failed=False)

    def _enter(self, target: str) -> bool:
        circuit = self._circuits.get(target)
        if circuit is None or circuit.opened_at is None:
            return False
        left = circuit.opened_at + self._breaker.seconds - self._now()
        if left > 0 or circuit.is_probed:
            raise CircuitOpen(target, circuit.failures, max(left, 0.0))
        circuit.is_probed = True
        return True

    def _note(self, target: str, *, has_failed: bool) -> None:
        if not has_failed:
            self._circuits.pop(target, None)
            return
        circuit = self._circuits.setdefault(target, _Circuit())
        circuit.failures += 1
        circuit.is_probed = False
        if circuit.failures >= self._breaker.failures:
            circuit.opened_at = self._now()


def _is_failure(error: NebulaError) -> bool:
    return error.retryable if isinstance(error, RemoteError) else True
