"""Jobs that wait for their turn, and what is taken while others run: who goes next."""

from __future__ import annotations

from bisect import bisect, insort
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from nebula.rpc.jobs.model.identifiers import qualified
from nebula.rpc.jobs.model.record import JobRecord
from nebula.rpc.jobs.scheduler.open_job import Key, OpenJob
from nebula.rpc.jobs.service.verb import JobVerb

__all__ = ["Places", "Standing", "WaitingLine"]


class Standing(NamedTuple):
    """Where a job stands that waits.

    Attributes:
        position: 1 for the first of its line; None where it does not stand in one.
        reason: what it waits for, but for its turn; empty where there is nothing else.
        rival: the job, by ULID, that has its exclusive key.
    """

    position: int | None = None
    reason: str = ""
    rival: str | None = None

    def note(self, service: str) -> str:
        """What it waits for, for people. Not the key: that is made of parameters, which not all may see."""
        if self.rival is None:
            return self.reason
        return f"waits for {qualified(service, self.rival)}, which has the same exclusive key"


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
        """1 for the first of its line; None for one that is deferred or does not wait."""
        line = self._lines.get(job.engine, [])
        return line.index(job) + 1 if job in line else None

    def count_before(self, job: OpenJob) -> int:
        """How many of its line would go before one that does not wait."""
        return bisect(self._lines.get(job.engine, []), job.place, key=lambda one: one.place)

    def heads(self, most: int) -> Iterator[tuple[int, OpenJob]]:
        """The first ones of each line, with their positions."""
        for line in self._lines.values():
            yield from enumerate(line[:most], start=1)

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
        # A thousand jobs that wait for one key ask for it whenever anything happens.
        self._verbs, self._keys = Counter[str](), Counter[str]()

    def take(self, job: OpenJob) -> None:
        """A runner of ours has this attempt in its hands."""
        assert job.verb is not None
        self._put(job.key, _Taken(job.verb.name, job.verb.engine, True, job.record.exclusive))

    def take_elsewhere(self, record: JobRecord) -> None:
        """Another instance has it."""
        self._put((record.id, record.attempt), _Taken(record.verb, None, False, record.exclusive))

    def _put(self, key: Key, taken: _Taken) -> None:
        self.free(key)
        self._taken[key] = taken
        self._verbs[taken.verb] += 1
        if taken.exclusive is not None:
            self._keys[taken.exclusive] += 1

    def free(self, key: Key) -> None:
        """Nothing of this attempt runs any more."""
        if (taken := self._taken.pop(key, None)) is None:
            return
        self._verbs[taken.verb] -= 1
        if taken.exclusive is not None:
            self._keys[taken.exclusive] -= 1
            if not self._keys[taken.exclusive]:
                del self._keys[taken.exclusive]

    def has(self, key: Key) -> bool:
        """Whether this attempt is in the hands of a runner of ours."""
        taken = self._taken.get(key)
        return taken is not None and taken.is_ours

    def used(self, engine: str | None) -> int:
        """How many jobs an engine has."""
        return sum(one.is_ours and one.engine == engine for one in self._taken.values())

    def may_begin(self, verb: JobVerb, record: JobRecord) -> bool:
        """Whether the verb's number and the job's key leave room for it."""
        if record.exclusive is not None and record.exclusive in self._keys:
            return False
        return verb.max_running is None or self._verbs[verb.name] < verb.max_running

    def rival(self, record: JobRecord) -> str | None:
        """The job, by ULID, that has its exclusive key."""
        if record.exclusive is None:
            return None
        found = (job for (job, _attempt), one in self._taken.items() if one.exclusive == record.exclusive)
        return next(found, None)
