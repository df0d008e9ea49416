"""Job order: which waiting job begins next, and what running ones take of the slots.

Each engine has a line of its own, ordered by priority, then by age. The first job of a line that may begin
begins; one that may not lets the others pass: its exclusive key is taken, its verb runs as often as it may,
or its verb is left to another instance. A deferred job stands in no line before its time has come.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

from nebula.rpc.jobs.model.record import JobRecord
from nebula.rpc.jobs.scheduler.open_job import JobRules, Key, OpenJob

__all__ = ["JobOrder", "Slots", "WaitingLine", "WaitingState"]

# Jobs at the head of each line whose every new position is published. Those further back are not, until here.
_MOST_TOLD: Final = 5


class WaitingState(NamedTuple):
    """The position of a waiting job, and what it waits for.

    Attributes:
        position: 1 for the first of its line; None where it stands in no line.
        reason: what it waits for besides its turn; empty where there is nothing else.
        rival: the job, by ULID, that has its exclusive key.
        not_before: the time that it waits for, in seconds since the epoch.
    """

    position: int | None = None
    reason: str = ""
    rival: str | None = None
    not_before: float | None = None


# A sorted list for each engine, not one heap for all: a job that may not begin (its verb is at its limit,
# its key is taken, another instance is to run it) lets the ones behind it pass, and a heap shows only its
# first. Lines are short enough for that: `max_queued` bounds them.
class WaitingLine:
    """Lines of waiting jobs, one per engine, and the deferred jobs, which stand in none yet."""

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
        """Add a job: to its line, or to the deferred ones if it has a `begins_at`."""
        if job.begins_at is not None:
            self._deferred[job.record.id] = job
        else:
            insort(self._lines.setdefault(job.engine, []), job, key=lambda one: one.order_key)

    def admit(self, job: OpenJob) -> None:
        """Move a deferred job to its line, to the place of its priority and age."""
        if self._deferred.pop(job.record.id, None) is not None:
            job.begins_at = None
            self.add(job)

    def discard(self, job: OpenJob) -> None:
        """Remove a job, if it waits."""
        job.begins_at = None
        self._deferred.pop(job.record.id, None)
        line = self._lines.get(job.engine, [])
        if job in line:
            line.remove(job)

    def position(self, job: OpenJob) -> int | None:
        """1 for the first of its line; None for a job that is deferred or does not wait."""
        line = self._lines.get(job.engine, [])
        return line.index(job) + 1 if job in line else None

    def count_before(self, job: OpenJob) -> int:
        """How many jobs of its line would go before a job that does not wait."""
        return bisect(self._lines.get(job.engine, []), job.order_key, key=lambda one: one.order_key)

    # Each job that begins moves up the whole line behind it. Publishing every position would be up to 2,000
    # messages each time (`max_queued`).
    def heads(self, most: int) -> Iterator[tuple[int, OpenJob]]:
        """The first jobs of each line, with their positions."""
        for line in self._lines.values():
            yield from enumerate(line[:most], start=1)

    def engines(self) -> list[str | None]:
        """The engines for which jobs wait."""
        return [engine for engine, line in self._lines.items() if line]

    def first(self, engine: str | None, may_begin: Callable[[OpenJob], bool]) -> OpenJob | None:
        """The first job of the line that may begin. Those that may not let it pass."""
        return next(filter(may_begin, self._lines.get(engine, [])), None)


class _Taken(NamedTuple):
    verb: str
    # Of our own attempts only: jobs of other instances take no room in our engines.
    engine: str | None
    # A field of its own, because `engine` is None for the service itself, too.
    is_ours: bool
    exclusive: str | None


# Resources belong to attempts, not to jobs: a job's second attempt must not count as free what its first
# one, which does not end, still holds.
class Slots:
    """Slots of engines, run counts of verbs and exclusive keys that attempts hold.

    An attempt holds its slot until its runner says that nothing of it runs any more, which may be after its
    job has ended. Jobs of other instances that share the registry count for verbs and keys, as far as they
    are known here; the registry has the last word.
    """

    def __init__(self) -> None:
        self._taken: dict[Key, _Taken] = {}
        # Counted, not searched: a thousand jobs that wait for one key look it up at each event.
        self._verbs, self._keys = Counter[str](), Counter[str]()

    def take(self, job: OpenJob) -> None:
        """Give a slot to the attempt of a job that one of our runners gets."""
        assert job.rules is not None
        self._put(job.key, _Taken(job.rules.name, job.rules.engine, True, job.record.exclusive))

    def take_elsewhere(self, record: JobRecord) -> None:
        """Count a job that another instance runs."""
        self._put((record.id, record.attempt), _Taken(record.verb, None, False, record.exclusive))

    def _put(self, key: Key, taken: _Taken) -> None:
        self.free(key)
        self._taken[key] = taken
        self._verbs[taken.verb] += 1
        if taken.exclusive is not None:
            self._keys[taken.exclusive] += 1

    def free(self, key: Key) -> None:
        """Free what an attempt holds: nothing of it runs any more."""
        if (taken := self._taken.pop(key, None)) is None:
            return
        self._verbs[taken.verb] -= 1
        if taken.exclusive is not None:
            self._keys[taken.exclusive] -= 1
            if not self._keys[taken.exclusive]:
                del self._keys[taken.exclusive]

    def has(self, key: Key) -> bool:
        """Whether one of our runners has this attempt."""
        taken = self._taken.get(key)
        return taken is not None and taken.is_ours

    # A search and not a count: few jobs run at a time.
    def used(self, engine: str | None) -> int:
        """How many slots of an engine are taken."""
        return sum(one.is_ours and one.engine == engine for one in self._taken.values())

    def may_begin(self, rules: JobRules, record: JobRecord) -> bool:
        """Whether the verb's run count and the exclusive key allow it."""
        if record.exclusive is not None and record.exclusive in self._keys:
            return False
        return rules.max_running is None or self._verbs[rules.name] < rules.max_running

    def rival(self, record: JobRecord) -> str | None:
        """The job, by ULID, that has its exclusive key."""
        if record.exclusive is None:
            return None
        found = (job for (job, _attempt), one in self._taken.items() if one.exclusive == record.exclusive)
        return next(found, None)


class JobOrder:
    """Decides which jobs may begin, and what the others wait for.

    Args:
        capacity: how many jobs a runner takes at a time.
        left_to_others: the names of verbs that cannot be run here now, and can by another instance.

    Attributes:
        line: the jobs that wait.
        slots: what running attempts hold.
    """

    def __init__(
        self, capacity: Callable[[str | None], int], left_to_others: Callable[[], Collection[str]]
    ) -> None:
        self.line, self.slots = WaitingLine(), Slots()
        self._capacity, self._left_to_others = capacity, left_to_others

    # A generator, so that the scheduler takes a job's slot before the next job is chosen.
    def take_next(self) -> Iterator[OpenJob]:
        """The jobs that may begin now. Each has left its line; take its slot before the next one."""
        left = self._left_to_others()
        for engine in self.line.engines():
            # Asked again for each job: an engine that is replaced changes its capacity.
            while self.slots.used(engine) < self._capacity(engine):
                job = self._first(engine, left)
                if job is None:
                    break
                self.line.discard(job)
                yield job

    def may_begin(self, job: OpenJob) -> bool:
        """Whether a job that does not wait may begin now, and no job that waits for the same engine may."""
        if job.rules is None or self.slots.has(job.key):
            return False
        left = self._left_to_others()
        has_room = self.slots.used(job.engine) < self._capacity(job.engine)
        # A waiting job may have become free without an event, because an engine works again.
        return has_room and self._is_free(job, left) and self._first(job.engine, left) is None

    def _first(self, engine: str | None, left: Collection[str]) -> OpenJob | None:
        return self.line.first(engine, lambda one: self._is_free(one, left))

    def _is_free(self, job: OpenJob, left: Collection[str]) -> bool:
        assert job.rules is not None
        return job.rules.name not in left and self.slots.may_begin(job.rules, job.record)

    def moved(self) -> Iterator[OpenJob]:
        """The jobs at the heads of the lines whose position has changed since it was published."""
        for position, job in self.line.heads(_MOST_TOLD):
            if job.told_position != position:
                job.told_position = position
                yield job

    def waiting_state(self, job: OpenJob) -> WaitingState:
        """Position of a job in its line, and what else it waits for."""
        position, rules = self.line.position(job), job.rules
        if job.begins_at is not None:
            return WaitingState(not_before=job.record.not_before)
        if position is None or rules is None:
            return WaitingState()
        # The most specific reason first: another job, then a limit, then an engine.
        if (rival := self.slots.rival(job.record)) is not None:
            return WaitingState(position, rival=rival)
        if not self.slots.may_begin(rules, job.record):
            return WaitingState(
                position, f"waits for jobs of {rules.name}: {rules.max_running} run at a time"
            )
        if rules.name in self._left_to_others():
            return WaitingState(position, "waits for another instance: the engine of this one is broken")
        return WaitingState(position)
