"""JSON views of a job: its status message, its entry in a list, the full view.

The status message is the wire format of G.job-status: both services and callers use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from nebula.rpc.contract.job_runner import JobFailure, JobOutput, StageCounts, TaskCounts
from nebula.rpc.jobs.model.identifiers import qualified
from nebula.rpc.jobs.model.record import JobRecord, LogLine
from nebula.rpc.jobs.model.states import END_STATES, JobState
from nebula.rpc.jobs.model.views import JobDetails, JobRow
from nebula.shown import row_of

__all__ = [
    "JobStatus", "error_from_json", "listed_job", "result_of", "shown", "status_destination",
    "tasks_from_json",
]  # fmt: skip


def status_destination(prefix: str, service: str, ulid: str) -> str:
    """Destination where the statuses of a job are published.

    Args:
        prefix: `job_prefix` of the broker's brand.
    """
    return f"{prefix}{service}.{ulid}"


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job's report to its watchers: G.job-status.

    Attributes:
        job: `<service>/<ulid>`.
        seq: rises with each recorded change of the job: of two statuses, the one with the higher number is
            newer. The status of a waiting job is sent again with the same number if its position or its
            reason to wait has changed.
        state: one of `JobState`, or an unknown word from a newer service: such a state is not final.
        progress: 0 to 1, or None if it is not known. It never falls and is 1 only when the job is done.
        note: a short text for people.
        step: number from 1, how many there are, name.
        tasks: small units of work, as far as they are known.
        counters: what is counted, by name, such as `rows_read`; as far as it is known.
        position: 1 for the job whose turn is next, None when it does not wait.
        via: the queue of the instance that holds it.
        error: why it did not end as done.
    """

    job: str
    seq: int
    # Not `JobState`, because a newer service may send a state that this version does not know. `is_final` is
    # then false, and the watcher continues.
    state: str
    progress: float | None = None
    note: str = ""
    step: tuple[int, int, str] | None = None
    tasks: TaskCounts | None = None
    position: int | None = None
    via: str = ""
    error: JobFailure | None = None
    counters: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_final(self) -> bool:
        """Whether the job has ended, so that nothing changes any more."""
        return self.state in END_STATES

    def to_json(self) -> dict[str, Any]:
        """The body of a status message."""
        tasks, error = self.tasks, self.error
        return {
            "job": self.job,
            "seq": self.seq,
            # The fields of G.job-status are always there, null where nothing is known: readers in other
            # languages need no test for a missing one. `counters` came later and is sent only by jobs that
            # count.
            "state": str(self.state),
            "progress": self.progress,
            "note": self.note,
            "step": None if self.step is None else list(self.step),
            "tasks": None if tasks is None else _tasks_to_json(tasks),
            "position": self.position,
            "via": self.via,
            "error": None if error is None else _error_to_json(error),
            **({"counters": dict(self.counters)} if self.counters else {}),
        }

    @classmethod
    def from_json(cls, body: Any) -> JobStatus:
        """Read a status message. Fields that are missing have their defaults; unknown ones are dropped.

        Raises:
            ValueError: it is no job status.
        """
        try:
            step, tasks, error = body.get("step"), body.get("tasks"), body.get("error")
            return cls(
                job=str(body["job"]),
                seq=int(body["seq"]),
                state=_state(str(body["state"])),
                progress=None if body.get("progress") is None else float(body["progress"]),
                note=str(body.get("note") or ""),
                step=None if step is None else (int(step[0]), int(step[1]), str(step[2])),
                tasks=None if tasks is None else tasks_from_json(tasks),
                position=None if body.get("position") is None else int(body["position"]),
                via=str(body.get("via") or ""),
                error=None if error is None else error_from_json(error),
                counters={str(name): int(count) for name, count in (body.get("counters") or {}).items()},
            )
        # A peer's body may have any shape. `reading` turns this one error into `UnexpectedReply`.
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is no job status: {error!r}") from error


def _state(word: str) -> str:
    # Ours is the member itself, since people compare with `is`.
    try:
        return JobState(word)
    except ValueError:
        return word


def _tasks_to_json(tasks: TaskCounts) -> dict[str, Any]:
    counts: dict[str, Any] = {"done": tasks.done, "known": tasks.known, "active": tasks.active}
    # Sent only where there are stages, as `counters` are.
    return {**counts, "stages": [asdict(stage) for stage in tasks.stages]} if tasks.stages else counts


def tasks_from_json(tasks: Mapping[str, Any]) -> TaskCounts:
    """Task counts as a status or a record holds them."""
    stages = tuple(
        StageCounts(int(stage["id"]), str(stage.get("name") or ""), *_counts_from_json(stage))
        for stage in tasks.get("stages") or ()
    )
    return TaskCounts(*_counts_from_json(tasks), stages)


def _counts_from_json(counts: Mapping[str, Any]) -> tuple[int, int, int]:
    return int(counts["done"]), int(counts["known"]), int(counts.get("active") or 0)


def _error_to_json(error: JobFailure) -> dict[str, str]:
    # The trace is for the job's log, which its owner alone may read.
    fields = {"code": error.code, "message": error.message}
    return fields if error.sqlstate is None else {**fields, "sqlstate": error.sqlstate}


def error_from_json(error: Mapping[str, Any]) -> JobFailure:
    """A failure as a status or a record holds it: without its trace."""
    return JobFailure(str(error["code"]), str(error["message"]), error.get("sqlstate"))


# Two views, because parameters, result and log may hold data of the owner. `job.list` has this one, for the
# jobs of all owners; `job.show` checks the owner.
def listed_job(service: str, record: JobRecord, status: JobStatus) -> dict[str, Any]:
    """A job in a list: what all callers of the service may know."""
    told = status.to_json()
    row = JobRow(
        job=told["job"],
        verb=record.verb,
        state=told["state"],
        progress=told["progress"],
        note=told["note"],
        position=told["position"],
        owner=record.owner or None,
        attempt=record.attempt,
        accepted_at=record.accepted_at,
        started_at=record.started_at,
        ended_at=record.ended_at,
        error=told["error"],
        rerun_of=None if record.rerun_of is None else qualified(service, record.rerun_of),
    )
    listed = row_of(row)
    if row.rerun_of is None:
        # `row_of` has every field of the view; most jobs repeat none.
        del listed["rerun_of"]
    return listed


def shown(service: str, record: JobRecord, status: JobStatus, log: Iterable[LogLine]) -> dict[str, Any]:
    """All that is known of a job: what its owner may know."""
    details = JobDetails(
        seq=record.seq,
        via=status.via,
        parameters=record.parameters,
        priority=record.priority,
        timeout=record.timeout,
        expires_at=record.expires_at,
        not_before=record.not_before,
        exclusive=record.exclusive,
        steps=[step._asdict() for step in record.steps],
        tasks=None if record.tasks is None else _tasks_to_json(record.tasks),
        counters=dict(record.counters),
        result=None if record.output is None else result_of(record.output),
        log=[line._asdict() for line in log],
    )
    return {**listed_job(service, record, status), **row_of(details)}


def result_of(output: JobOutput) -> dict[str, Any]:
    """What a job returned: `value`, or `path` with what is known of what is there."""
    # A job that returned None has no field at all: `JobHandle.result` reads what is missing as None.
    return {name: value for name, value in asdict(output).items() if value is not None}
