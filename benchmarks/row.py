"""What a row of the results is: what is measured, on whom, and what we aim at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.peers import Broker
from benchmarks.stream import Measurement

Measure = Callable[[Broker, float], Measurement]


@dataclass(frozen=True, slots=True)
class Contestant:
    """Who is measured: a name for the table, the broker it needs, and how."""

    name: str
    broker: str
    measure: Measure

    @property
    def is_ours(self) -> bool:
        """Ours are what is compared; the others are what it is compared with."""
        return self.broker.startswith("nebula")


@dataclass(frozen=True, slots=True)
class Aim:
    """A bound for one figure of one contestant.

    Attributes:
        contestant: its name.
        figure: `rate`, which has a minimum per second; or `p50`, `p99`, `took` or `more` (how much longer it
            takes than the same thing without us, at the median), which have a maximum in seconds
            at most.
    """

    contestant: str
    figure: Literal["rate", "p50", "p99", "took", "more"]
    bound: float

    def is_met(self, reached: float) -> bool:
        """Whether a figure is within the bound."""
        return reached >= self.bound if self.figure == "rate" else reached <= self.bound


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that is measured.

    Attributes:
        name: what `--rows` takes.
        what: what is done, for the page of results.
        unit: what the rate counts, per second.
        contestants: the first is the one of Nebula's that the aim is about.
        aim: how many times the best of the others we want to be.
        by_latency: compare the median latency instead of the rate.
        by_memory: compare what the broker grew by instead of the rate.
        against: the contestant that the aim is about, where that is not the best of the others.
        max_rounds: how many rounds are enough, for a row that takes long; None: all.
        aims: what Nebula's figures must reach, in themselves.
        libraries: packages of Python that take part, whose versions the page of results says.
    """

    name: str
    title: str
    what: str
    unit: str
    contestants: Sequence[Contestant]
    aim: float | None = None
    by_latency: bool = False
    by_memory: bool = False
    against: str | None = None
    max_rounds: int | None = None
    aims: Sequence[Aim] = ()
    libraries: Sequence[str] = ()
