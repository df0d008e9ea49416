"""What is kept of a run's steps: when each began and ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from nebula.rpc.jobs.model.record import JobRecord, JobStep

__all__ = ["MOST_STEPS", "with_step", "with_steps_over"]

# A job that calls a thousand rounds of a loop steps must not make each of its writes long.
MOST_STEPS: Final = 100


def with_step(record: JobRecord, step: tuple[int, int, str] | None, at: float) -> JobRecord:
    """The record of a job that is at this step now; if it is another than before, that one is over."""
    last = record.steps[-1] if record.steps else None
    if step is None or (last is not None and last[:3] == step and last.ended_at is None):
        return record
    over = with_steps_over(record, at).steps
    return replace(record, steps=(*over[1 - MOST_STEPS :], JobStep(*step, at)))


def with_steps_over(record: JobRecord, at: float) -> JobRecord:
    """The record of a job that is at no step any more."""
    if not record.steps or record.steps[-1].ended_at is not None:
        return record
    *before, last = record.steps
    return replace(record, steps=(*before, last._replace(ended_at=at)))
