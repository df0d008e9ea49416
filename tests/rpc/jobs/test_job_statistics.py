"""Statistics of jobs and engines: one set per declared verb, whatever is recorded."""

from __future__ import annotations

from dataclasses import replace

from nebula.rpc.jobs.model.record import JobRecord
from nebula.rpc.jobs.model.states import JobState
from nebula.rpc.jobs.service.job_statistics import UNDECLARED, EndedJobs, EngineFacts, engine_facts

_RECORD = JobRecord("01JDB3QK6M0000000000000000", "add", None, 10.0)


def test_verbs_that_are_not_declared_are_one() -> None:
    ended = EndedJobs({"add": None})
    for number in range(100):
        ended.add(replace(_RECORD, verb=f"old-{number}", state=JobState.LOST))
    told = ended.statistics([replace(_RECORD, verb="older")], {})

    assert told.ended[UNDECLARED, JobState.LOST] == 100
    assert told.open[UNDECLARED, JobState.QUEUED] == 1
    assert {verb for verb, _ in (*told.ended, *told.open)} == {"add", UNDECLARED}


def test_durations_are_those_of_jobs_that_began_and_never_negative() -> None:
    ended = EndedJobs({"add": None})
    ended.add(replace(_RECORD, state=JobState.EXPIRED, ended_at=20.0))
    ended.add(replace(_RECORD, state=JobState.DONE, started_at=13.0, ended_at=18.0))
    ended.add(replace(_RECORD, state=JobState.DONE, started_at=9.0, ended_at=8.0))
    told = ended.statistics([], {})

    assert (told.waited["add"].seconds, told.waited["add"].histogram.total) == (3.0, 2)
    assert (told.ran["add"].seconds, told.ran["add"].histogram.total) == (5.0, 2)


def test_engine_without_a_status_has_no_numbers() -> None:
    assert engine_facts({}) == EngineFacts(is_ready=False, restarts=0, rss_bytes=0)
