"""Jobs: long-running verbs that are accepted at once, recorded, run elsewhere and watched from afar.

The states, the scheduler, the registry, the service, and the handle that a caller holds. How the code of a
job runs is the business of a `JobRunner`: nothing here knows Spark. The names below are loaded when they are
used.
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
    from nebula.rpc.jobs.handle import JobHandle
    from nebula.rpc.jobs.model.limits import JobLimits
    from nebula.rpc.jobs.model.record import LogLine
    from nebula.rpc.jobs.model.states import JobState
    from nebula.rpc.jobs.model.status import JobStatus
    from nebula.rpc.jobs.registry.state_folder import StateFolder
    from nebula.rpc.jobs.service.service import JobService
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
    "JobStatus": "nebula.rpc.jobs.model.status",
    "JobTask": "nebula.rpc.contract.job_runner",
    "JobVerb": "nebula.rpc.jobs.verb",
    "LogLine": "nebula.rpc.jobs.model.record",
    "Progress": "nebula.rpc.contract.job_runner",
    "StateFolder": "nebula.rpc.jobs.registry.state_folder",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
