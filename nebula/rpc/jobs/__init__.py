"""Long-running verbs: accepted at once, recorded, run elsewhere, watched from afar.

Here are the states, the registry, the dispatcher, and the handle that a caller holds. How a job's code
runs is a `JobRunner`'s business: nothing in here knows Spark. `context`, `runner` and `states` are values
and interfaces without any I/O, which other processes share; what is named here is loaded when it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nebula.rpc.jobs.context import Job, JobCancelled
    from nebula.rpc.jobs.handle import JobHandle
    from nebula.rpc.jobs.limits import JobLimits
    from nebula.rpc.jobs.record import LogLine
    from nebula.rpc.jobs.runner import JobFailure, JobListener, JobOutput, JobRunner, JobTask, Progress
    from nebula.rpc.jobs.service import JobService
    from nebula.rpc.jobs.state_folder import StateFolder
    from nebula.rpc.jobs.states import JobState, JobStatus
    from nebula.rpc.jobs.verb import JobVerb

__all__ = [
    "Job",
    "JobCancelled",
    "JobFailure",
    "JobHandle",
    "JobLimits",
    "JobListener",
    "JobOutput",
    "JobRunner",
    "JobService",
    "JobState",
    "JobStatus",
    "JobTask",
    "JobVerb",
    "LogLine",
    "Progress",
    "StateFolder",
]

# The engine host imports the context of jobs and must not pay for the registry.
_HOMES = {
    "Job": "context",
    "JobCancelled": "context",
    "JobFailure": "runner",
    "JobHandle": "handle",
    "JobLimits": "limits",
    "JobListener": "runner",
    "JobOutput": "runner",
    "JobRunner": "runner",
    "JobService": "service",
    "JobState": "states",
    "JobStatus": "states",
    "JobTask": "runner",
    "JobVerb": "verb",
    "LogLine": "record",
    "Progress": "runner",
    "StateFolder": "state_folder",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
