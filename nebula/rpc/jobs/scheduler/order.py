"""Whose turn it is: the jobs that wait, beside what is taken by those that run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from typing import Final

from nebula.rpc.jobs.scheduler.open_job import OpenJob
from nebula.rpc.jobs.scheduler.waiting import Places, Standing, WaitingLine

__all__ = ["Turns"]

# Of each line: who stands further back need not hear of each step.
_MOST_TOLD: Final = 5


class Turns:
    """Says which jobs may begin, and what the others wait for.

    Args:
        capacity: how many jobs a runner takes at a time.
        left_to_others: the names of verbs that cannot be run here now, and can by another instance.

    Attributes:
        line: the jobs that wait.
        places: what runners have in their hands, also beyond the end of the job that it was.
    """

    def __init__(
        self, capacity: Callable[[str | None], int], left_to_others: Callable[[], Collection[str]]
    ) -> None:
        self.line, self.places = WaitingLine(), Places()
        self._capacity, self._left_to_others = capacity, left_to_others

    def take_next(self) -> Iterator[OpenJob]:
        """The jobs that may begin now. Each has left the line, and has to take its place before the next."""
        left = self._left_to_others()
        for engine in self.line.engines():
            while self.places.used(engine) < self._capacity(engine):
                job = self._first(engine, left)
                if job is None:
                    break
                self.line.discard(job)
                yield job

    def may_begin(self, job: OpenJob) -> bool:
        """Whether one that does not wait may begin now, and nobody who waits for the same engine."""
        if job.verb is None or self.places.has(job.key):
            return False
        left = self._left_to_others()
        has_room = self.places.used(job.engine) < self._capacity(job.engine)
        # One that waits may be free since it was looked at last, as an engine is mended.
        return has_room and self._is_free(job, left) and self._first(job.engine, left) is None

    def _first(self, engine: str | None, left: Collection[str]) -> OpenJob | None:
        return self.line.first(engine, lambda one: self._is_free(one, left))

    def _is_free(self, job: OpenJob, left: Collection[str]) -> bool:
        assert job.verb is not None
        return job.verb.name not in left and self.places.may_begin(job.verb, job.record)

    def moved(self) -> Iterator[OpenJob]:
        """Those among the first of each line that stand elsewhere than was told."""
        for position, job in self.line.heads(_MOST_TOLD):
            if job.told_position != position:
                job.told_position = position
                yield job

    def standing(self, job: OpenJob) -> Standing:
        """Where a job stands, and what it waits for."""
        position, verb = self.line.position(job), job.verb
        if job.begins_at is not None:
            return Standing(reason=_until(job.record.not_before))
        if position is None or verb is None:
            return Standing()
        if (rival := self.places.rival(job.record)) is not None:
            return Standing(position, rival=rival)
        if not self.places.may_begin(verb, job.record):
            return Standing(position, f"waits for jobs of {verb.name}: {verb.max_running} run at a time")
        if verb.name in self._left_to_others():
            return Standing(position, "waits for another instance: the engine of this one is broken")
        return Standing(position)


def _until(moment: float | None) -> str:
    if moment is None:
        return ""
    # Thirteen digits of milliseconds are always a date.
    return f"waits until {datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC"
