"""Record of one job: an immutable value, replaced with each change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from nebula.headers import TRACEPARENT, TRACESTATE
from nebula.rpc.contract.job_runner import JobFailure, JobOutput, TaskCounts
from nebula.rpc.jobs.model.states import END_STATES, JobState
from nebula.trace_context import trace_facts

__all__ = [
    "ANONYMOUS", "MAX_LOG_LINES", "MOST_STEPS", "JobRecord", "JobStep", "LogLine", "whose", "with_step",
    "with_steps_over",
]  # fmt: skip


# The owner if the broker does not verify principals, and Nebula's principal of clients without a login.
ANONYMOUS: Final = ("", "anonymous")

# A job that logs in a loop must not fill the disk.
MAX_LOG_LINES: Final = 1000

# A job that calls a thousand rounds of a loop steps must not make each of its writes long.
MOST_STEPS: Final = 100


# The registry gives the numbers, not the process that logs: a job that is taken over continues with the next
# number, so a reader that asks for the lines after a number misses none.
class LogLine(NamedTuple):
    """A line of a job's log; `at` in seconds since the epoch.

    A job's lines are numbered from 1 as they are written, so that a reader knows which it has seen, and which
    are gone. A line that is not written yet has no number.
    """

    at: float
    text: str
    number: int = 0


class JobStep(NamedTuple):
    """A step of a run: number from 1, of how many, name; when it began and ended, or None."""

    number: int
    total: int
    name: str
    started_at: float
    ended_at: float | None = None


# Frozen, because a record is written by the registry's thread while the loop goes on deciding: each action
# carries the record as it was when that was decided. A new field is a column of every registry
# (`rows.COLUMNS`), and needs a step in `sqlite._UPGRADES` and in those of PostgreSQL.
@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job as its service knows it. Points in time are seconds since the epoch.

    Attributes:
        id: its ULID.
        owner: the principal that requested it; empty if the broker does not verify principals.
        dedupe: another request of this owner for this verb with the same key is the same job.
        parameters: validated JSON, as `Signature.bind` takes it.
        seq: of the last status that was told.
        priority: 0 to 9; among waiting jobs the higher goes first.
        expires_at: it is not begun later than this.
        not_before: it is not begun earlier: its caller wished so, or it waits to be run again.
        exclusive: no other job with the same key runs meanwhile.
        holder: the instance that runs it, or in which something of it may still run although it has ended.
        timeout: seconds that a run may take.
        progress_every: seconds between two tellings of progress, at least.
        reply_id: of the request; messages to `notify` have it too.
        notify: where its caller wants each status to be sent as well.
        ends_as: for one that is cancelling: cancelled or timed_out.
        incarnation: the start of the engine that it was handed to.
        traceparent, tracestate: of the request (W3C Trace Context).
        steps: of the last run, those that have begun; of very many the last ones.
        counters: see `Progress`.
        rerun_of: the job whose parameters it was given, by ULID.
        is_owed: it has ended, and `notify` is a queue that has not confirmed it.
    """

    id: str
    verb: str
    parameters: Any
    accepted_at: float
    owner: str = ""
    dedupe: str | None = None
    state: JobState = JobState.QUEUED
    attempt: int = 1
    seq: int = 1
    # The scale and default of JMS, and of the `priority` header on queues.
    priority: int = 4
    expires_at: float | None = None
    timeout: float | None = None
    progress_every: float = 2.0
    reply_id: str | None = None
    notify: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    progress: float | None = None
    note: str = ""
    step: tuple[int, int, str] | None = None
    tasks: TaskCounts | None = None
    output: JobOutput | None = None
    error: JobFailure | None = None
    ends_as: JobState | None = None
    incarnation: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    steps: tuple[JobStep, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    rerun_of: str | None = None
    is_owed: bool = False
    exclusive: str | None = None
    not_before: float | None = None
    holder: str | None = None

    @property
    def trace(self) -> dict[str, str]:
        """The headers of the trace that its request belongs to; `tracestate` only with a `traceparent`."""
        # W3C: a `tracestate` without its `traceparent` means nothing, and must not be passed on.
        if self.traceparent is None:
            return {}
        return {TRACEPARENT: self.traceparent} | ({TRACESTATE: self.tracestate} if self.tracestate else {})

    @property
    def has_ended(self) -> bool:
        """Whether its state is final."""
        return self.state in END_STATES

    def is_open_to(self, principal: str | None) -> bool:
        """Whether this principal is its owner. A job without a known owner is open to all principals."""
        # Without a login no caller can prove that a job is its own, so a refusal would lock out the owner
        # too.
        return self.owner in (*ANONYMOUS, principal)

    @property
    def wants_notice(self) -> bool:
        """Whether its end has to arrive at `notify`: at a queue, whose reader may be away till tomorrow."""
        # A topic keeps nothing for a reader that is away, so no notice can be owed to it.
        return self.notify is not None and self.notify.startswith("/queue/")


def whose(record: JobRecord) -> dict[str, str]:
    """Principal, request id and trace id of a job, for the log, as far as they are known."""
    known = {"principal": record.owner, "request_id": record.reply_id}
    return {**{name: value for name, value in known.items() if value}, **trace_facts(record.trace)}


def with_step(record: JobRecord, step: tuple[int, int, str] | None, at: float) -> JobRecord:
    """The record of a job that is at this step now; if it is another than before, that one is over."""
    # A runner repeats the present step with each report of progress: only a different step is a new entry.
    last = record.steps[-1] if record.steps else None
    if step is None or (last is not None and last[:3] == step and last.ended_at is None):
        return record
    over = with_steps_over(record, at).steps
    # The last ones are kept: where a job is matters more than where it was.
    return replace(record, steps=(*over[1 - MOST_STEPS :], JobStep(*step, at)))


def with_steps_over(record: JobRecord, at: float) -> JobRecord:
    """The record of a job that is at no step any more."""
    if not record.steps or record.steps[-1].ended_at is not None:
        return record
    *before, last = record.steps
    return replace(record, steps=(*before, last._replace(ended_at=at)))
