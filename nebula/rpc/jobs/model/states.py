"""A job's states, which may follow which, and what is told of them.

Everything about states is here: elsewhere they are values to compare with, and each change is checked
against `TRANSITIONS` when it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from nebula.rpc.contract.job_runner import JobFailure, TaskCounts

__all__ = ["END_STATES", "TRANSITIONS", "IllegalTransition", "JobState", "JobStatus", "require_transition"]


class JobState(StrEnum):
    """Where a job is in its life. The first four are open, the others final."""

    QUEUED = "queued"
    """Recorded; waits for its turn."""

    STARTING = "starting"
    """Handed to what runs it, which may itself have to start first."""

    RUNNING = "running"
    """Its code runs."""

    CANCELLING = "cancelling"
    """It was told to end, by a caller or by its time limit, and has not yet."""

    DONE = "done"
    """Its code returned; there is a result."""

    FAILED = "failed"
    """Its code raised, or could not be run."""

    CANCELLED = "cancelled"
    """A caller ended it."""

    TIMED_OUT = "timed_out"
    """Its time limit ended it."""

    LOST = "lost"
    """What ran it died, and the verb does not say that it may run again."""

    EXPIRED = "expired"
    """Its turn did not come in time. It never ran."""


_S = JobState

# Old state -> new ones. Queued again: lost, and its verb allows another attempt.
TRANSITIONS: Final[Mapping[JobState, frozenset[JobState]]] = MappingProxyType(
    {
        _S.QUEUED: frozenset({_S.STARTING, _S.CANCELLED, _S.EXPIRED, _S.FAILED}),
        _S.STARTING: frozenset({_S.RUNNING, _S.CANCELLING, _S.FAILED, _S.LOST, _S.QUEUED}),
        _S.RUNNING: frozenset({_S.CANCELLING, _S.DONE, _S.FAILED, _S.LOST, _S.QUEUED}),
        # What ended before it heard of the cancel has ended so.
        _S.CANCELLING: frozenset({_S.CANCELLED, _S.TIMED_OUT, _S.DONE, _S.FAILED}),
        **{end: frozenset() for end in (_S.DONE, _S.FAILED, _S.CANCELLED, _S.TIMED_OUT, _S.LOST, _S.EXPIRED)},
    }
)

END_STATES: Final = frozenset(state for state, following in TRANSITIONS.items() if not following)


class IllegalTransition(AssertionError):
    """Our own code tried to move a job where the table does not let it: nothing was written."""


def require_transition(job: str, old: JobState, new: JobState) -> None:
    """Raise `IllegalTransition` unless `new` may follow `old`; a state may always be told again."""
    if new is not old and new not in TRANSITIONS[old]:
        raise IllegalTransition(f"job {job} is {old} and cannot become {new}")


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What is told of a job: PROTOCOL G, "Job status".

    Attributes:
        job: `<service>/<ulid>`.
        seq: rises with each change that is kept of one job. Of two, the one with the higher number is the
            newer. A job that waits is told again with the same one when it has come nearer, or waits for
            something else.
        state: one of `JobState`, or, from a newer service, a word that is not: such a state is not final.
        progress: 0 to 1, or None where nobody knows. It never falls and is 1 only when the job is done.
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
        """Whether nothing of it will change any more."""
        return self.state in END_STATES

    def to_json(self) -> dict[str, Any]:
        """The body of a status message."""
        tasks, error = self.tasks, self.error
        return {
            "job": self.job,
            "seq": self.seq,
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
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is no job status: {error!r}") from error


def _state(word: str) -> str:
    # Ours is the member itself, since people compare with `is`.
    try:
        return JobState(word)
    except ValueError:
        return word


def _tasks_to_json(tasks: TaskCounts) -> dict[str, int]:
    return {"done": tasks.done, "known": tasks.known, "active": tasks.active}


def tasks_from_json(tasks: Mapping[str, Any]) -> TaskCounts:
    """Task counts as a status or a record holds them."""
    return TaskCounts(int(tasks["done"]), int(tasks["known"]), int(tasks.get("active") or 0))


def _error_to_json(error: JobFailure) -> dict[str, str]:
    # The trace is for the job's log, which its owner alone may read.
    fields = {"code": error.code, "message": error.message}
    return fields if error.sqlstate is None else {**fields, "sqlstate": error.sqlstate}


def error_from_json(error: Mapping[str, Any]) -> JobFailure:
    """A failure as a status or a record holds it: without its trace."""
    return JobFailure(str(error["code"]), str(error["message"]), error.get("sqlstate"))
