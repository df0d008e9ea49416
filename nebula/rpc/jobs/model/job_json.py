"""Jobs as `job.list` and `job.show` tell of them: JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from nebula.rpc.contract.job_runner import JobOutput
from nebula.rpc.jobs.model.identifiers import qualified
from nebula.rpc.jobs.model.record import JobRecord, LogLine
from nebula.rpc.jobs.model.states import JobStatus

__all__ = ["listed_job", "result_of", "shown"]


def listed_job(service: str, record: JobRecord, status: JobStatus) -> dict[str, Any]:
    """A job among others: what everybody may know who may ask the service."""
    told = status.to_json()
    return {
        "job": told["job"],
        "verb": record.verb,
        "state": told["state"],
        "progress": told["progress"],
        "note": told["note"],
        "position": told["position"],
        "owner": record.owner or None,
        "attempt": record.attempt,
        "accepted_at": record.accepted_at,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "error": told["error"],
        **_rerun_of(service, record),
    }


def shown(service: str, record: JobRecord, status: JobStatus, log: Iterable[LogLine]) -> dict[str, Any]:
    """All that is known of a job: what its owner may know."""
    return {
        **listed_job(service, record, status),
        "seq": record.seq,
        "via": status.via,
        "parameters": record.parameters,
        "priority": record.priority,
        "timeout": record.timeout,
        "expires_at": record.expires_at,
        "not_before": record.not_before,
        "exclusive": record.exclusive,
        "steps": [step._asdict() for step in record.steps],
        "tasks": None if record.tasks is None else asdict(record.tasks),
        "counters": dict(record.counters),
        "result": None if record.output is None else result_of(record.output),
        "log": [line._asdict() for line in log],
    }


def result_of(output: JobOutput) -> dict[str, Any]:
    """What a job returned: `value`, or `path` with what is known of what is there."""
    return {name: value for name, value in asdict(output).items() if value is not None}


def _rerun_of(service: str, record: JobRecord) -> dict[str, str]:
    return {} if record.rerun_of is None else {"rerun_of": qualified(service, record.rerun_of)}
