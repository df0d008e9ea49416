"""Job states: which may follow which, and the status message."""

from __future__ import annotations

from itertools import product

import pytest

from nebula.rpc.contract.job_runner import JobFailure, StageCounts, TaskCounts
from nebula.rpc.jobs.model.states import (
    END_STATES,
    TABLE,
    IllegalTransition,
    JobEvent,
    JobState,
    next_state,
    require_transition,
)
from nebula.rpc.jobs.model.status import JobStatus

# The picture of the job states, as pairs.
_LEGAL = """
queued -> starting, cancelled, expired, failed
starting -> running, cancelling, failed, lost, queued
running -> cancelling, done, failed, lost, queued
cancelling -> cancelled, timed_out, done, failed
"""


def _legal() -> set[tuple[JobState, JobState]]:
    lines = (line.split(" -> ") for line in _LEGAL.strip().splitlines())
    return {(JobState(old), JobState(new)) for old, news in lines for new in news.split(", ")}


@pytest.mark.parametrize(("old", "new"), [pair for pair in product(JobState, JobState) if pair[0] != pair[1]])
def test_each_pair_of_states_is_legal_or_refused(old: JobState, new: JobState) -> None:
    if (old, new) in _legal():
        require_transition("j", old, new)
    else:
        with pytest.raises(IllegalTransition, match=f"{old} and cannot become {new}"):
            require_transition("j", old, new)


@pytest.mark.parametrize(("state", "event"), list(product(JobState, JobEvent)))
def test_event_leads_where_the_table_says_or_is_refused(state: JobState, event: JobEvent) -> None:
    if (state, event) in TABLE:
        require_transition("j", state, next_state(state, event))
    else:
        with pytest.raises(IllegalTransition, match=f"{state} knows no {event.name}"):
            next_state(state, event)


def test_table_makes_the_legal_changes_and_no_others() -> None:
    assert {(old, new) for (old, _), new in TABLE.items()} == _legal()


def test_six_states_are_final() -> None:
    assert {str(state) for state in END_STATES} == {
        "done", "failed", "cancelled", "timed_out", "lost", "expired",
    }  # fmt: skip


def test_status_survives_its_own_json() -> None:
    status = JobStatus(
        job="reports/01JDB3QK6M0000000000000000",
        seq=7,
        state="failed",
        progress=0.5,
        note="half-way",
        step=(1, 2, "read"),
        tasks=TaskCounts(3, 4, 1, (StageCounts(8, "count", 3, 4, 1),)),
        position=2,
        via="/queue/reports.a",
        error=JobFailure("data", "bad row", "22012", trace="secret"),
    )

    again = JobStatus.from_json(status.to_json())

    assert again.to_json() == status.to_json()
    assert again.error == JobFailure("data", "bad row", "22012", trace="")
    assert again.tasks == TaskCounts(3, 4, 1, (StageCounts(8, "count", 3, 4, 1),))


def test_status_of_a_service_that_knows_no_stages_has_none() -> None:
    counts = {"done": 3, "known": 4, "active": 1}

    status = JobStatus.from_json({"job": "a/b", "seq": 1, "state": "running", "tasks": counts})

    assert status.to_json()["tasks"] == counts


def test_status_has_the_fields_of_the_protocol() -> None:
    assert list(JobStatus(job="a/b", seq=1, state="queued").to_json()) == [
        "job", "seq", "state", "progress", "note", "step", "tasks", "position", "via", "error",
    ]  # fmt: skip


def test_state_that_came_over_the_wire_is_the_member_that_people_compare_with() -> None:
    assert JobStatus.from_json({"job": "a/b", "seq": 1, "state": "running"}).state is JobState.RUNNING


def test_unknown_state_is_not_final() -> None:
    status = JobStatus.from_json({"job": "a/b", "seq": 1, "state": "paused", "colour": "red"})

    assert (status.state, status.is_final) == ("paused", False)


_DONE = {"job": "a", "seq": 1, "state": "done"}


@pytest.mark.parametrize("body", [None, [], "done", {}, _DONE | {"seq": "x"}, _DONE | {"step": [1]}])
def test_malformed_status_is_refused(body: object) -> None:
    with pytest.raises(ValueError, match="no job status"):
        JobStatus.from_json(body)
