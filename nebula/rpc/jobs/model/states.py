"""Job states, and the table of events that change them.

A job moves by the table alone: `next_state` gives the state that follows from an event, and refuses an event
that a state has no row for. The registry checks each record that it writes against the same table, so that a
bug cannot bring an ended job back to life.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum, auto
from types import MappingProxyType
from typing import Final

__all__ = [
    "END_STATES",
    "TABLE",
    "IllegalTransition",
    "JobEvent",
    "JobState",
    "next_state",
    "require_transition",
]


class JobState(StrEnum):
    """Lifecycle of a job. The first four states are open, the others final."""

    QUEUED = "queued"
    """Recorded; waits for its turn."""

    STARTING = "starting"
    """Handed to its runner, which may have to start first."""

    RUNNING = "running"
    """Its code runs."""

    CANCELLING = "cancelling"
    """A caller or its time limit told it to end, and it has not ended yet."""

    DONE = "done"
    """Its code returned; there is a result."""

    FAILED = "failed"
    """Its code raised, or could not be run."""

    CANCELLED = "cancelled"
    """A caller ended it."""

    TIMED_OUT = "timed_out"
    """Its time limit ended it."""

    LOST = "lost"
    """Its runner died, and the verb does not say that it may run again."""

    EXPIRED = "expired"
    """Its turn did not come in time. It never ran."""


class JobEvent(Enum):
    """What happens to a job. Progress and log lines change no state and are no events."""

    BEGIN = auto()
    """A runner gets it."""

    START = auto()
    """Its code runs."""

    RETURN = auto()
    """Its code returned."""

    FAIL = auto()
    """Its code raised, or it cannot be run."""

    CANCEL = auto()
    """A caller wants it to end."""

    TIME_OUT = auto()
    """Its run takes longer than it may."""

    STOP = auto()
    """The run of a job that was cancelled is over."""

    STOP_LATE = auto()
    """The run of a job that took too long is over."""

    RERUN = auto()
    """Its attempt is gone, and it gets another one."""

    LOSE = auto()
    """Its attempt is gone, and it gets no other one."""

    EXPIRE = auto()
    """It waited longer than it may."""


_S, _E = JobState, JobEvent

# How to read it: a row is one legal step, and there are no others. QUEUED has no RETURN, since nothing of
# a waiting job runs; CANCELLING has no LOSE and no RERUN, because a run that died while it was being
# cancelled is exactly what its canceller wanted (STOP). TIME_OUT leads to CANCELLING, not to an end: the
# code has to be ended first, and only then is it known how the job ended.
TABLE: Final[Mapping[tuple[JobState, JobEvent], JobState]] = MappingProxyType(
    {
        (_S.QUEUED, _E.BEGIN): _S.STARTING,
        (_S.QUEUED, _E.CANCEL): _S.CANCELLED,
        (_S.QUEUED, _E.EXPIRE): _S.EXPIRED,
        # Its verb is gone since it was recorded.
        (_S.QUEUED, _E.FAIL): _S.FAILED,
        (_S.STARTING, _E.START): _S.RUNNING,
        (_S.STARTING, _E.CANCEL): _S.CANCELLING,
        (_S.STARTING, _E.FAIL): _S.FAILED,
        (_S.STARTING, _E.RERUN): _S.QUEUED,
        (_S.STARTING, _E.LOSE): _S.LOST,
        (_S.RUNNING, _E.RETURN): _S.DONE,
        (_S.RUNNING, _E.FAIL): _S.FAILED,
        (_S.RUNNING, _E.CANCEL): _S.CANCELLING,
        (_S.RUNNING, _E.TIME_OUT): _S.CANCELLING,
        (_S.RUNNING, _E.RERUN): _S.QUEUED,
        (_S.RUNNING, _E.LOSE): _S.LOST,
        (_S.CANCELLING, _E.STOP): _S.CANCELLED,
        (_S.CANCELLING, _E.STOP_LATE): _S.TIMED_OUT,
        # A run that ended before it heard of the cancel has ended as it did.
        (_S.CANCELLING, _E.RETURN): _S.DONE,
        (_S.CANCELLING, _E.FAIL): _S.FAILED,
    }
)

# The end states are derived, so that a new state cannot be forgotten in one of two lists.
_FOLLOWING: Final = {state: {new for (old, _), new in TABLE.items() if old is state} for state in JobState}

END_STATES: Final = frozenset(state for state, following in _FOLLOWING.items() if not following)


class IllegalTransition(AssertionError):
    """A bug in Nebula: an event, or a change of state, that the table does not have. Nothing was written."""


def next_state(state: JobState, event: JobEvent) -> JobState:
    """The state that follows from an event.

    Raises:
        IllegalTransition: the table does not have it.
    """
    try:
        return TABLE[state, event]
    except KeyError:
        raise IllegalTransition(f"a job that is {state} knows no {event.name}") from None


def require_transition(job: str, old: JobState, new: JobState) -> None:
    """Raise `IllegalTransition` unless some event leads from `old` to `new`, or they are the same."""
    if new is not old and new not in _FOLLOWING[old]:
        raise IllegalTransition(f"job {job} is {old} and cannot become {new}")
