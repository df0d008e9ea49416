"""Histogram of durations: small enough for each verb and cheap enough for each call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import ceil, frexp, ldexp
from typing import Final, Self

# Each power of two is cut into that many: a quantile is at most a sixteenth above the truth.
_STEPS: Final = 16

# A duration of nothing has no power of two; a clock that was turned back gives less.
_SHORTEST: Final = 1e-9

# From a nanosecond to some thirty thousand years: what a peer sends outside of it is no duration.
_LOWEST: Final = -30 * _STEPS
_HIGHEST: Final = 41 * _STEPS

# Of durations in a bucket: what a float counts exactly.
_MOST: Final = 2**53


class Histogram:
    """Durations, counted by size: exact to a sixteenth, from a nanosecond up to any length.

    It grows with the spread of what it is given, not with how much that is: some hundred numbers at most.
    Histograms of several instances can be added up, which their quantiles cannot.
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: defaultdict[int, int] = defaultdict(int)

    def add(self, seconds: float) -> None:
        """Count one duration."""
        # A request pays for this: one step, no search for the right bucket.
        mantissa, power = frexp(seconds if seconds > _SHORTEST else _SHORTEST)  # noqa: FURB136 - quicker
        self._counts[power * _STEPS + int(mantissa * 2 * _STEPS)] += 1

    def merge(self, other: Histogram) -> None:
        """Count all that another one has."""
        for bucket, count in other._counts.items():
            self._counts[bucket] += count

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(self._counts.values())

    def quantile(self, share: float) -> float | None:
        """The seconds that this share (0 to 1) of all took at most; None without any."""
        wanted = max(1, ceil(share * self.total))
        for bucket, count in sorted(self._counts.items()):
            wanted -= count
            if wanted <= 0:
                return _upper_bound(bucket)
        return None

    def at_most(self, bounds: Sequence[float]) -> list[int]:
        """For each bound, how many took no longer; what lies in one step with a bound counts to it."""
        found = [0] * len(bounds)
        for bucket, count in self._counts.items():
            lower = _upper_bound(bucket - 1)
            for number, bound in enumerate(bounds):
                if lower < bound:
                    found[number] += count
        return found

    def to_json(self) -> list[list[int]]:
        """Pairs of bucket and count, for `from_json`, where several are added up."""
        return [[bucket, count] for bucket, count in sorted(self._counts.items())]

    @classmethod
    def from_json(cls, pairs: Iterable[Sequence[int]]) -> Self:
        """What `to_json` gave.

        Raises:
            TypeError, ValueError: it is something else.
        """
        made = cls()
        for bucket, count in pairs:
            if not (_LOWEST <= int(bucket) <= _HIGHEST and 0 <= int(count) <= _MOST):
                raise ValueError(f"{bucket}, {count} are no bucket and count of a histogram")
            made._counts[int(bucket)] += int(count)
        return made


def _upper_bound(bucket: int) -> float:
    power, step = divmod(bucket - _STEPS, _STEPS)
    return ldexp((_STEPS + step + 1) / (2 * _STEPS), power)
