"""Long-running verbs: accepted at once, recorded, run elsewhere, watched from afar.

Here are the states, the registry, the dispatcher, and the handle that a caller holds. How a job's code
runs is a `JobRunner`'s business: nothing in here knows Spark. `context`, `runner` and `states` are values
and interfaces without any I/O, which other processes share; what is named here is loaded when it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nebula.rpc.contract.job_context import Job, JobCancelled
    from nebula.rpc.contract.job_runner import (
        JobFailure,
        JobListener,
        JobOutput,
        JobRunner,
        JobTask,
        Progress,
    )
    from nebula.rpc.contract.job_verb import JobVerb
    from nebula.rpc.jobs.handle import JobHandle
    from nebula.rpc.jobs.model.limits import JobLimits
    from nebula.rpc.jobs.model.record import LogLine
    from nebula.rpc.jobs.model.states import JobState
    from nebula.rpc.jobs.model.status import JobStatus
    from nebula.rpc.jobs.registry.state_folder import StateFolder
    from nebula.rpc.jobs.service.service import JobService

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
    "Job": "nebula.rpc.contract.job_context",
    "JobCancelled": "nebula.rpc.contract.job_context",
    "JobFailure": "nebula.rpc.contract.job_runner",
    "JobHandle": "nebula.rpc.jobs.handle",
    "JobLimits": "nebula.rpc.jobs.model.limits",
    "JobListener": "nebula.rpc.contract.job_runner",
    "JobOutput": "nebula.rpc.contract.job_runner",
    "JobRunner": "nebula.rpc.contract.job_runner",
    "JobService": "nebula.rpc.jobs.service.service",
    "JobState": "nebula.rpc.jobs.model.states",
    "JobStatus": "nebula.rpc.jobs.model.states",
    "JobTask": "nebula.rpc.contract.job_runner",
    "JobVerb": "nebula.rpc.contract.job_verb",
    "LogLine": "nebula.rpc.jobs.model.record",
    "Progress": "nebula.rpc.contract.job_runner",
    "StateFolder": "nebula.rpc.jobs.registry.state_folder",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
