"""Statistics of verbs and subscriptions since their service started, of one instance or several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from nebula.rpc.wire.histogram import Histogram
from nebula.rpc.wire.replies import reading
from nebula.shown import Shown, Unit, row_of

__all__ = [
    "HandlerStatistics", "ProcessView", "Statistics", "Tally", "VerbStatistics", "merged",
    "subscriber_to_json", "without_buckets",
]  # fmt: skip

# Of a reply to `stats`: numbers that are not added up, but of which the largest counts.
_LONGEST_COUNTS: Final = frozenset({"uptime_seconds"})

# What a float counts exactly. Sums of what peers tell stay finite, and so JSON.
_MAX_COUNT: Final = 2.0**53

# Counts of a function that is called for messages, besides those that each verb has.
_SUBSCRIBER_COUNTS: Final = ("unreadable", "given_up", "waiting")


@dataclass(frozen=True, slots=True)
class VerbStatistics:
    """What a verb did since the service started, as `stats` tells it."""

    requests: Annotated[int, Shown("requests", Unit.COUNT)]
    errors: Annotated[int, Shown("errors", Unit.COUNT, "Requests whose reply is an error.")]
    bad_results: Annotated[
        int, Shown("", Unit.COUNT, "Requests whose handler returned another type than it declares.")
    ]
    mean_seconds: Annotated[float, Shown("mean", Unit.LATENCY, "Mean over the requests that have ended.")]
    longest_seconds: Annotated[float, Shown("longest", Unit.LATENCY)]
    p50_seconds: Annotated[float | None, Shown("p50", Unit.LATENCY, "Half of the requests took no longer.")]
    p99_seconds: Annotated[float | None, Shown("p99", Unit.LATENCY, "99 % of the requests took no longer.")]
    latency: Annotated[
        Any, Shown("", about="A histogram, as pairs of bucket and count: add it to those of other instances.")
    ]


@dataclass(frozen=True, slots=True)
class HandlerStatistics:
    """What a function that is called for messages did: besides these fields it has those of a verb's times.

    `requests` is missing; `messages` is in its place.
    """

    destination: Annotated[str, Shown("listens to")]
    handler: Annotated[str, Shown("by", about="The name of the function.")]
    messages: Annotated[int, Shown("messages", Unit.COUNT)]
    unreadable: Annotated[
        int, Shown("unreadable", Unit.COUNT, "Messages whose body does not fit the function.")
    ]
    given_up: Annotated[int, Shown("given up", Unit.COUNT, "Messages that the function failed on too often.")]
    waiting: Annotated[
        int, Shown("waiting", Unit.COUNT, "Messages that have arrived and wait for the function.")
    ]


@dataclass(frozen=True, slots=True)
class ProcessView:
    """The process of an instance, as `stats` tells it."""

    nebula: Annotated[str, Shown("nebula", about="The version of Nebula.")]
    python: Annotated[str, Shown("python", about="The version of Python.")]
    build: Annotated[
        str, Shown("build", about="Whether Nebula's protocol code is `compiled` or `interpreted`.")
    ]
    time: Annotated[float, Shown("clock", Unit.TIME, "The time by its clock.")]
    failing: Annotated[
        list[str] | None,
        Shown(
            "failing",
            about="With `health=true`, the names of the hooks and engines that report a problem; otherwise"
            " null.",
        ),
    ]


@dataclass(slots=True)
class Tally:
    """What one verb did since the service started; times in seconds."""

    requests: int = 0
    errors: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    latency: Histogram = field(default_factory=Histogram)
    bad_results: int = 0

    def add(self, seconds: float) -> None:
        """Count the time of one request; requests and errors are counted apart."""
        self.seconds += seconds
        if seconds > self.longest:
            self.longest = seconds
        self.latency.add(seconds)

    def merge(self, other: Tally) -> None:
        """Count all that another instance's tally has."""
        self.requests += other.requests
        self.errors += other.errors
        self.bad_results += other.bad_results
        self.seconds += other.seconds
        self.longest = max(self.longest, other.longest)
        self.latency.merge(other.latency)

    def to_json(self) -> dict[str, Any]:
        """As `stats` tells it. `latency` is there to be added up, see `Histogram.to_json`."""
        ended = self.latency.total  # others are under way
        return row_of(
            VerbStatistics(
                requests=self.requests,
                errors=self.errors,
                bad_results=self.bad_results,
                mean_seconds=self.seconds / ended if ended else 0.0,
                longest_seconds=self.longest,
                p50_seconds=self._quantile(0.5),
                p99_seconds=self._quantile(0.99),
                latency=self.latency.to_json(),
            )
        )

    def _quantile(self, share: float) -> float | None:
        found = self.latency.quantile(share)
        # The end of the step that it lies in, which may be above all that there was.
        return None if found is None else min(found, self.longest)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Tally:
        """What `to_json` gave; of a peer that tells no `latency`, without it.

        Raises:
            TypeError, ValueError, LookupError: it is something else.
        """
        # Peers send these numbers. Each is checked, because one NaN would make every sum NaN, which JSON does
        # not have.
        requests = int(_within_reason(told["requests"]))
        latency = Histogram.from_json(told.get("latency", ()))
        return cls(
            requests,
            int(_within_reason(told["errors"])),
            _within_reason(told["mean_seconds"]) * (latency.total or requests),
            _within_reason(told["longest_seconds"]),
            latency,
            int(_within_reason(told.get("bad_results", 0))),
        )


def _within_reason(number: float) -> float:
    """A count or seconds as a peer tells it."""
    if not 0 <= float(number) <= _MAX_COUNT:  # nor NaN
        raise ValueError(f"{number} is no count and no duration")
    return float(number)


@dataclass(frozen=True, slots=True)
class Statistics:
    """What an instance did since it started, and what it has to do now.

    Attributes:
        uptime_seconds: since the start.
        busy: requests that are being handled.
        waiting: requests that came and are not begun.
        unhandled: how many messages no verb was run for, by why.
        tallies: what each verb did.
    """

    uptime_seconds: float
    busy: int
    waiting: int
    # By reason, so that an operator sees whether callers give up (`expired`, `cancelled`) or the service
    # is too slow (`overloaded`).
    unhandled: Mapping[str, int]
    tallies: Mapping[str, Tally]

    def to_json(self) -> dict[str, Any]:
        """As `stats` tells it: of the verbs those that were asked for."""
        return {
            "uptime_seconds": self.uptime_seconds,
            "waiting": self.waiting,
            "busy": self.busy,
            **self.unhandled,
            "verbs": {name: tally.to_json() for name, tally in self.tallies.items() if tally.requests},
        }


def merged(replies: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The replies of several instances to `stats` as one: counts added up, the longest of times.

    Quantiles are those of all requests together.

    Args:
        replies: as instances gave them.

    Raises:
        UnexpectedReply: one is no reply to `stats`.
    """
    counts: dict[str, float] = {}
    verbs: dict[str, Tally] = {}
    listens: dict[tuple[str, str], tuple[Tally, Counter[str]]] = {}
    instances = 0
    with reading("an instance's reply to stats"):
        for reply in replies:
            instances += 1
            for name, told in reply["verbs"].items():
                verbs.setdefault(name, Tally()).merge(Tally.from_json(told))
            for told in reply.get("listens", ()):
                key = (str(told["destination"]), str(told["handler"]))
                tally, others = listens.setdefault(key, (Tally(), Counter()))
                tally.merge(Tally.from_json({**told, "requests": told["messages"]}))
                others.update({name: int(_within_reason(told[name])) for name in _SUBSCRIBER_COUNTS})
            # All numbers, whatever their names: a newer instance may have counts that this version does not
            # know.
            for name, value in reply.items():
                if (
                    isinstance(value, int | float)
                    and not isinstance(value, bool)
                    and 0 <= value <= _MAX_COUNT
                ):
                    before = counts.get(name, 0)
                    counts[name] = max(before, value) if name in _LONGEST_COUNTS else before + value
    whole: dict[str, Any] = {"instances": instances, **counts}
    whole["verbs"] = {name: tally.to_json() for name, tally in sorted(verbs.items())}
    if listens:
        whole["listens"] = [subscriber_to_json(*key, *listens[key]) for key in sorted(listens)]
    return whole


def subscriber_to_json(
    destination: str, handler: str, tally: Tally, others: Mapping[str, int]
) -> dict[str, Any]:
    """What a function that is called for messages did, as `stats` tells it.

    Args:
        destination: that it listens to.
        handler: its name.
        tally: its calls.
        others: the messages that were `unreadable`, `given_up`, and are `waiting`.
    """
    told = tally.to_json()
    counts = {name: others[name] for name in _SUBSCRIBER_COUNTS}
    counted = row_of(HandlerStatistics(destination, handler, told.pop("requests"), **counts))
    return {**counted, **told}


def without_buckets(reply: Mapping[str, Any]) -> dict[str, Any]:
    """A reply to `stats`, or several merged, without what is there only to be added up."""
    shown = {**reply, "verbs": {name: _without_latency(told) for name, told in reply["verbs"].items()}}
    if "listens" in reply:
        shown["listens"] = [_without_latency(told) for told in reply["listens"]]
    return shown


def _without_latency(told: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in told.items() if key != "latency"}
