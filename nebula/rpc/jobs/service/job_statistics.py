"""Statistics of one instance's jobs and engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from nebula.rpc.jobs.model.record import JobRecord
from nebula.rpc.jobs.model.states import END_STATES, JobState
from nebula.rpc.wire.histogram import Histogram

__all__ = ["UNDECLARED", "Durations", "EndedJobs", "EngineFacts", "JobStatistics", "engine_facts"]

# docs/decisions/0056: one series for all of them, so that the number of series is bounded.
UNDECLARED: Final = "(undeclared)"
"""Label for recorded jobs whose verb the service no longer declares."""

_OPEN_STATES: Final = tuple(state for state in JobState if state not in END_STATES)


@dataclass(slots=True)
class Durations:
    """A histogram of durations.

    Attributes:
        seconds: all of it together.
    """

    histogram: Histogram = field(default_factory=Histogram)
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration; negative ones, after a clock was set back, are ignored."""
        self.histogram.add(max(0.0, seconds))
        self.seconds += max(0.0, seconds)


class EngineFacts(NamedTuple):
    """The state of an engine.

    Attributes:
        is_ready: jobs can run at once.
        restarts: starts after the first one, for any reason.
        rss_bytes: memory of its processes and of isolated runs, without Python workers.
    """

    is_ready: bool
    restarts: int
    rss_bytes: int


class JobStatistics(NamedTuple):
    """The jobs of one instance by verb, and its engines by name.

    Attributes:
        open: jobs that have not ended, by verb and state; each declared verb has each state.
        ended: how many have ended since the start, likewise.
        waited: from a job's acceptance to the begin of its last run.
        ran: from that to its end.
        engines: those of the service, without the service itself.
    """

    open: Mapping[tuple[str, JobState], int]
    ended: Mapping[tuple[str, JobState], int]
    waited: Mapping[str, Durations]
    ran: Mapping[str, Durations]
    engines: Mapping[str, EngineFacts]


class EndedJobs:
    """Counts jobs as they end.

    Args:
        verbs: that are declared. Others have been, and are one for us: recorded jobs may have any verb.
    """

    def __init__(self, verbs: Mapping[str, object]) -> None:
        self._verbs = verbs
        self._ended = Counter[tuple[str, JobState]]()
        self._waited: dict[str, Durations] = {}
        self._ran: dict[str, Durations] = {}

    def add(self, record: JobRecord) -> None:
        """Count a job that has ended."""
        verb = _declared(record.verb, self._verbs)
        self._ended[verb, record.state] += 1
        # A job that never ran has no waiting time: that ends with the start of the last run.
        if record.started_at is not None and record.ended_at is not None:
            self._waited.setdefault(verb, Durations()).add(record.started_at - record.accepted_at)
            self._ran.setdefault(verb, Durations()).add(record.ended_at - record.started_at)

    def statistics(
        self, open_records: Iterable[JobRecord], engines: Mapping[str, Mapping[str, Any]]
    ) -> JobStatistics:
        """The statistics now.

        Args:
            open_records: jobs that have not ended.
            engines: what `engine.status` reports for each.
        """
        there = Counter((_declared(one.verb, self._verbs), one.state) for one in open_records)
        # Every series exists from the start, at 0, so that `increase()` sees the first event
        # (docs/decisions/0056).
        return JobStatistics(
            {**{(verb, state): 0 for verb in self._verbs for state in _OPEN_STATES}, **there},
            {**{(verb, state): 0 for verb in self._verbs for state in sorted(END_STATES)}, **self._ended},
            {**{verb: Durations() for verb in self._verbs}, **self._waited},
            {**{verb: Durations() for verb in self._verbs}, **self._ran},
            {name: engine_facts(status) for name, status in engines.items()},
        )


def engine_facts(status: Mapping[str, Any]) -> EngineFacts:
    """The numbers in an engine's part of `engine.status`; unknown ones are left out."""
    isolated = status.get("isolated") or ()
    memory = [status.get("rss_bytes"), *(run.get("rss_bytes") for run in isolated)]
    return EngineFacts(
        status.get("state") == "ready",
        max(0, int(status.get("starts") or 0) - 1),
        sum(size for size in memory if size),
    )


def _declared(verb: str, verbs: Container[str]) -> str:
    return verb if verb in verbs else UNDECLARED
