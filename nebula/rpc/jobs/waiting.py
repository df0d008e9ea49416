"""Jobs that wait for their turn, and what is taken while others run: who goes next."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from typing import NamedTuple

from nebula.rpc.jobs.open_job import Key, OpenJob
from nebula.rpc.jobs.record import JobRecord
from nebula.rpc.jobs.verb import JobVerb

__all__ = ["Places", "WaitingLine"]


class WaitingLine:
    """The jobs that wait, for each engine by priority and age. Deferred are those whose time is to come."""

    def __init__(self) -> None:
        self._lines: dict[str | None, list[OpenJob]] = {}
        self._deferred: dict[str, OpenJob] = {}

    def __len__(self) -> int:
        return sum(map(len, self._lines.values())) + len(self._deferred)

    def __iter__(self) -> Iterator[OpenJob]:
        for line in self._lines.values():
            yield from line
        yield from self._deferred.values()

    def add(self, job: OpenJob) -> None:
        """Let a job wait: in its line, or outside of it while it has a `begins_at`."""
        if job.begins_at is not None:
            self._deferred[job.record.id] = job
        else:
            insort(self._lines.setdefault(job.engine, []), job, key=lambda one: one.place)

    def admit(self, job: OpenJob) -> None:
        """Its time has come: it gets the place of its priority and age."""
        if self._deferred.pop(job.record.id, None) is not None:
            job.begins_at = None
            self.add(job)

    def discard(self, job: OpenJob) -> None:
        """It waits no more, if it did."""
        job.begins_at = None
        self._deferred.pop(job.record.id, None)
        line = self._lines.get(job.engine, [])
        if job in line:
            line.remove(job)

    def position(self, job: OpenJob) -> int | None:
        """1 for the job whose turn is next; None for one that is deferred or does not wait."""
        line = self._lines.get(job.engine, [])
        return line.index(job) + 1 if job in line else None

    def engines(self) -> list[str | None]:
        """Those for which jobs wait."""
        return [engine for engine, line in self._lines.items() if line]

    def first(self, engine: str | None, may_begin: Callable[[OpenJob], bool]) -> OpenJob | None:
        """The job for this engine whose turn it is, of those that may begin: others let them pass."""
        return next(filter(may_begin, self._lines.get(engine, [])), None)


class _Taken(NamedTuple):
    verb: str
    # Of ours alone: what other instances run takes no room in our engines.
    engine: str | None
    is_ours: bool
    exclusive: str | None


class Places:
    """What runs, or may still run although its job has ended: engines' room, verbs' numbers, exclusive keys.

    Jobs of other instances that share the registry count for verbs and keys, as far as they are known here;
    the registry has the last word.
    """

    def __init__(self) -> None:
        self._taken: dict[Key, _Taken] = {}

    def take(self, job: OpenJob) -> None:
        """A runner of ours has this attempt in its hands."""
        assert job.verb is not None
        self._taken[job.key] = _Taken(job.verb.name, job.verb.engine, True, job.record.exclusive)

    def take_elsewhere(self, record: JobRecord) -> None:
        """Another instance has it."""
        key = record.id, record.attempt
        self._taken[key] = _Taken(record.verb, None, False, record.exclusive)

    def free(self, key: Key) -> None:
        """Nothing of this attempt runs any more."""
        self._taken.pop(key, None)

    def has(self, key: Key) -> bool:
        """Whether this attempt is in the hands of a runner of ours."""
        taken = self._taken.get(key)
        return taken is not None and taken.is_ours

    def used(self, engine: str | None) -> int:
        """How many jobs an engine has."""
        return sum(one.is_ours and one.engine == engine for one in self._taken.values())

    def may_begin(self, verb: JobVerb, record: JobRecord) -> bool:
        """Whether the verb's number and the job's key leave room for it."""
        taken = self._taken.values()
        if record.exclusive is not None and any(one.exclusive == record.exclusive for one in taken):
            return False
        most = verb.max_running
        return most is None or sum(one.verb == verb.name for one in taken) < most
