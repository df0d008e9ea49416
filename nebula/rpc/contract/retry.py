"""Retry policy: how often, and how long after a failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

__all__ = ["Retry"]


@dataclass(frozen=True, slots=True)
class Retry:
    """How often to try, and how long to wait after a failure: for a call, see `Client`, or for a message of a
    queue, see `Responder.on`.

    The delay grows from `first` to `longest`, each one `factor` times the one before. Jitter adds up to
    `jitter` of the delay, so that clients which failed together do not return together.

    A failing call keeps its caller waiting, a message does not, so the defaults differ: `attempts=3`,
    `first=0.05`, `longest=2.0` for calls, and `attempts=10`, `first=1.0`, `longest=300.0` for messages.

    Attributes:
        attempts: in all, including the first.
        first: seconds after the first failure, at least.
        longest: the longest delay in seconds, before the jitter.
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
        # The chained comparison refuses NaN too, which compares false with everything.
        if has_no_attempt or not 0 <= self.first_delay <= self.longest_delay < inf:
            raise ValueError(f"{self}: attempts are 1 or more, and 0 <= first <= longest")
        if not (1 <= self.factor < inf and 0 <= self.jitter < inf):
            raise ValueError(f"{self}: factor is 1 or more, and jitter 0 or more")

    @property
    def most_attempts(self) -> int:
        """`attempts`, or the default of calls."""
        # The field's default is None and not 3, so that `of_messages` knows what the user left out.
        return 3 if self.attempts is None else self.attempts

    @property
    def first_delay(self) -> float:
        """`first`, or the default of calls."""
        longest = 2.0 if self.longest is None else self.longest
        return min(0.05, longest) if self.first is None else self.first

    @property
    def longest_delay(self) -> float:
        """`longest`, or the default of calls."""
        return max(2.0, self.first_delay) if self.longest is None else self.longest

    def of_messages(self) -> Retry:
        """The same policy, with the defaults of messages where it leaves something out."""
        first, longest = self.first, self.longest
        if first is None:
            first = 1.0 if longest is None else min(1.0, longest)
        if longest is None:
            longest = max(300.0, first)
        attempts = 10 if self.attempts is None else self.attempts
        return replace(self, attempts=attempts, first=first, longest=longest)

    def delay(self, failures: int, uniform: Callable[[float, float], float]) -> float:
        """Seconds to wait after a number of failures.

        Args:
            failures: 1 or more.
            uniform: draws a number between two others; `random.uniform`, which this pure module may not use.
        """
        try:
            grown = self.first_delay * self.factor ** (failures - 1)
        except OverflowError:
            grown = inf
        whole = self.first_delay and min(self.longest_delay, grown)
        # Jitter only lengthens the delay: `first` is a minimum.
        return uniform(whole, whole * (1 + self.jitter))
