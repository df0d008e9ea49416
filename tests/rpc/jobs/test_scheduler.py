"""Scheduler: what follows from each event of a job; by values alone, no loop, no disk, no waiting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from nebula.rpc.contract.job_runner import JobFailure, JobOutput, Progress, TaskCounts
from nebula.rpc.jobs.model.record import JobRecord
from nebula.rpc.jobs.model.states import JobState, require_transition
from nebula.rpc.jobs.scheduler.actions import Action, Cancel, Ended, Keep, Moment, Submit
from nebula.rpc.jobs.scheduler.scheduler import Scheduler
from nebula.rpc.jobs.service.status_publisher import waits_for
from nebula.rpc.jobs.verb import JobVerb
from tests.rpc.jobs.harness import count

_CAPACITY = 2
_GRACE = 10.0


class Table:
    """A scheduler with a clock, verbs of two engines, and the outcome of each job."""

    def __init__(self, **options: Any) -> None:
        self.verbs = {
            "count": JobVerb("count", count, engine="spark", **options),
            "lone": JobVerb("lone", count, engine="spark", max_running=1),
            "here": JobVerb("here", count),
            "keyed": JobVerb("keyed", count),
        }
        self.left: list[str] = []
        self.scheduler = Scheduler(
            self.verbs, lambda engine: _CAPACITY, cancel_grace=_GRACE, left_to_others=lambda: self.left
        )
        self.moved: list[str] = []
        self.now = Moment(5000.0, 100.0)
        self.told: list[JobRecord] = []
        self.actions: list[Submit | Cancel] = []
        self.lines: list[str] = []
        self.ended: list[str] = []

    def add(self, number: int, verb: str = "count", **fields: Any) -> str:
        record = JobRecord(id=f"j{number}", verb=verb, parameters=None, accepted_at=float(number))
        self.scheduler.add(replace(record, **fields), self.now)
        return record.id

    def dispatch(self) -> None:
        self.scheduler.dispatch(self.now)
        self.work()

    def run(self, number: int = 1, **fields: Any) -> tuple[str, int]:
        """A job that runs."""
        key = self.add(number, **fields), fields.get("attempt", 1)
        self.dispatch()
        self.scheduler.started(key, self.now)
        self.work()
        return key

    def work(self) -> list[Action]:
        works = self.scheduler.take_actions()
        for work in works:
            self.lines += [line.text for line in work.lines]
            if work.keep is Keep.RECORD:
                self.told.append(work.record)
            if work.keep is Keep.NOTHING:
                self.moved.append(work.record.id)
            if isinstance(work.then, Ended):
                self.ended.append(work.then.job)
            elif work.then is not None:
                self.actions.append(work.then)
        return works

    def later(self, seconds: float) -> None:
        self.now = Moment(self.now.wall + seconds, self.now.steady + seconds)
        self.scheduler.advance(self.now)
        self.work()

    def last(self, job: str = "j1") -> JobRecord:
        return [record for record in self.told if record.id == job][-1]

    def begun(self) -> list[str]:
        return [effect.task.job for effect in self.actions if isinstance(effect, Submit)]


@pytest.fixture
def table() -> Table:
    return Table()


def test_engine_gets_as_many_jobs_as_it_takes_and_the_next_when_one_ends(table: Table) -> None:
    for number in (1, 2, 3, 4):
        table.add(number)
    table.dispatch()
    assert table.begun() == ["j1", "j2"]
    assert [table.scheduler.waiting_state(job).position for job in ("j1", "j3", "j4")] == [None, 1, 2]

    table.scheduler.done(("j2", 1), JobOutput(), table.now)
    table.work()

    assert table.begun() == ["j1", "j2", "j3"]
    assert table.scheduler.waiting_state("j4").position == 1


def test_engines_do_not_wait_for_each_other(table: Table) -> None:
    for number in (1, 2, 3):
        table.add(number)
    table.add(4, "here")
    table.dispatch()

    assert table.begun() == ["j1", "j2", "j4"]


def test_higher_priority_goes_first_and_equals_by_age(table: Table) -> None:
    table.add(3, priority=4)
    table.add(2, priority=4)
    table.add(1, priority=1)
    table.add(4, priority=9)

    assert [table.scheduler.waiting_state(job).position for job in ("j4", "j2", "j3", "j1")] == [1, 2, 3, 4]


def test_verb_with_a_limit_of_its_own_lets_others_pass(table: Table) -> None:
    table.add(1, "lone")
    table.add(2, "lone")
    table.add(3, "count")
    table.dispatch()

    assert table.begun() == ["j1", "j3"]


def test_jobs_with_one_exclusive_key_run_one_after_the_other_whatever_their_verbs(table: Table) -> None:
    table.add(1, "count", exclusive="/data/a")
    table.add(2, "keyed", exclusive="/data/a")
    table.add(3, "keyed", exclusive="/data/b")
    table.add(4, "keyed")
    table.dispatch()
    assert table.begun() == ["j1", "j3", "j4"]

    table.scheduler.started(("j1", 1), table.now)
    table.scheduler.done(("j1", 1), JobOutput(), table.now)
    table.scheduler.done(("j3", 1), JobOutput(), table.now)
    table.work()

    assert table.begun() == ["j1", "j3", "j4", "j2"]


def test_cancelled_job_keeps_its_exclusive_key_as_long_as_its_code_runs(table: Table) -> None:
    key = table.run(1, exclusive="/data/a")
    table.add(2, exclusive="/data/a")
    table.scheduler.cancel("j1", table.now)
    table.later(_GRACE + 0.1)
    assert table.last("j1").state is JobState.CANCELLED
    assert table.begun() == ["j1"]

    table.scheduler.cancelled(key, table.now, slots_free=True)
    table.work()

    assert table.begun() == ["j1", "j2"]


def test_job_is_not_begun_before_its_time_and_then_by_its_priority(table: Table) -> None:
    at = table.now.wall + 60.0
    table.add(1, priority=9, not_before=at)
    table.add(2, not_before=at + 5.0)
    for number in (3, 4, 5):
        table.add(number)
    table.dispatch()
    assert table.begun() == ["j3", "j4"]
    assert [table.scheduler.waiting_state(job).position for job in ("j1", "j2", "j5")] == [None, None, 1]
    assert table.scheduler.queued == 3
    table.later(2.0)
    assert table.scheduler.next_due() == table.now.steady + 58.0

    table.later(58.0)
    assert [table.scheduler.waiting_state(job).position for job in ("j1", "j2", "j5")] == [1, None, 2]
    table.scheduler.done(("j3", 1), JobOutput(), table.now)
    table.work()

    assert table.begun() == ["j3", "j4", "j1"]


def test_job_that_waits_for_its_time_is_cancelled_or_expires_like_any_other(table: Table) -> None:
    for number in (1, 2):
        table.add(number, not_before=table.now.wall + 60.0, expires_at=table.now.wall + 30.0 * number)
    table.scheduler.cancel("j2", table.now)
    table.later(31.0)

    assert [table.last(job).state for job in ("j1", "j2")] == [JobState.EXPIRED, JobState.CANCELLED]
    assert table.scheduler.queued == 0
    table.later(60.0)
    assert table.begun() == []


def test_first_positions_of_a_line_are_published_when_it_moves_and_not_too_often(
    table: Table,
) -> None:
    for number in range(1, 12):
        table.add(number)
    table.dispatch()
    assert [table.scheduler.waiting_state(f"j{number}").position for number in (3, 11)] == [1, 9]
    assert table.moved == []

    for number in (1, 2):
        table.scheduler.done((f"j{number}", 1), JobOutput(), table.now)
    table.work()
    assert table.moved == []
    # Time, and nothing else.
    table.later(2.0)

    assert table.moved == ["j5", "j6", "j7", "j8", "j9"]
    assert table.scheduler.waiting_state("j5").position == 1
    assert table.scheduler.next_due() is None


def test_status_of_a_waiting_job_leaves_what_its_log_is_to_get(table: Table) -> None:
    for number in range(1, 5):
        table.add(number)
    table.dispatch()
    table.scheduler._note_line(table.scheduler._open["j4"], "kept", table.now)
    table.scheduler.done(("j1", 1), JobOutput(), table.now)
    table.scheduler.advance(Moment(table.now.wall + 2.0, table.now.steady + 2.0))
    table.scheduler.cancel("j4", table.now)
    works = [work for work in table.work() if work.record.id == "j4"]

    assert [work.keep for work in works] == [Keep.NOTHING, Keep.RECORD]
    assert [[line.text for line in work.lines] for work in works] == [[], ["kept"]]


def test_job_that_waits_says_what_for(table: Table) -> None:
    table.add(1, exclusive="/data/a")
    table.add(2, "keyed", exclusive="/data/a")
    table.add(3, "lone")
    table.add(4, "lone")
    table.add(5, not_before=4_000_000_000.0)
    table.dispatch()
    notes = [waits_for(table.scheduler.waiting_state(f"j{number}"), "reports") for number in range(1, 6)]

    assert notes == [
        "",
        "waits for reports/j1, which has the same exclusive key",
        "",
        "waits for jobs of lone: 1 run at a time",
        "waits until 2096-10-02 07:06:40 UTC",
    ]


def test_job_that_cannot_run_here_is_left_to_others_as_long_as_they_can(table: Table) -> None:
    table.left = ["count"]
    table.add(1)
    table.add(2, "lone")
    table.dispatch()
    assert table.begun() == ["j2"]
    assert table.scheduler.waiting_state("j1").reason.startswith("waits for another instance")

    table.left = []
    table.dispatch()

    assert table.begun() == ["j2", "j1"]


def test_job_is_written_as_starting_before_it_is_handed_over(table: Table) -> None:
    table.add(1, timeout=9.0)
    table.scheduler.dispatch(table.now)
    (work,) = table.work()

    assert (work.record.state, work.record.seq) == (JobState.STARTING, 2)
    assert isinstance(work.then, Submit)
    assert (work.then.engine, work.then.task.job, work.then.task.timeout) == ("spark", "j1", 9.0)


def test_progress_never_falls_and_is_not_complete_before_the_end(table: Table) -> None:
    key = table.run(progress_every=0.0)
    for fraction in (0.2, 0.1, None, 0.5, -3.0, 1.0, 7.0):
        table.scheduler.progress(key, Progress(fraction, note=f"{fraction}"), table.now)
    table.scheduler.done(key, JobOutput(), table.now)
    table.work()

    assert [record.progress for record in table.told][2:] == [0.2, 0.2, 0.2, 0.5, 0.5, 0.99, 0.99, 1.0]


def test_progress_is_published_at_intervals_and_the_latest_of_it(table: Table) -> None:
    key = table.run(progress_every=2.0)
    told = len(table.told)
    for step in range(1, 16):
        table.now = Moment(table.now.wall + 0.125, table.now.steady + 0.125)
        table.scheduler.progress(key, Progress(step / 100, tasks=TaskCounts(step, 100, 2)), table.now)
        table.work()
    assert len(table.told) == told
    assert table.scheduler.next_due() == 102.0

    table.later(0.125)

    assert len(table.told) == told + 1
    assert (table.last().progress, table.last().tasks) == (0.15, TaskCounts(15, 100, 2))


def test_change_of_state_publishes_the_pending_progress(table: Table) -> None:
    key = table.run()
    table.scheduler.progress(key, Progress(0.3, note="reading", step=(1, 2, "read")), table.now)
    table.scheduler.cancel("j1", table.now)
    table.work()

    assert table.last().state is JobState.CANCELLING
    assert (table.last().progress, table.last().note, table.last().step) == (0.3, "reading", (1, 2, "read"))


def test_same_progress_is_not_published_again(table: Table) -> None:
    key = table.run(progress_every=0.0)
    for _ in range(3):
        table.scheduler.progress(key, Progress(0.3), table.now)
        table.work()

    assert [record.progress for record in table.told] == [None, None, 0.3]


def test_waiting_job_is_cancelled_at_once_and_never_handed_over(table: Table) -> None:
    for number in (1, 2, 3):
        table.add(number)
    table.dispatch()
    table.scheduler.cancel("j3", table.now)
    table.work()

    assert table.last("j3").state is JobState.CANCELLED
    assert table.last("j3").error == JobFailure("cancelled", "it was cancelled")
    assert table.begun() == ["j1", "j2"]
    assert table.ended == ["j3"]


@pytest.mark.parametrize("state", [JobState.STARTING, JobState.RUNNING])
def test_job_in_work_is_cancelled_when_its_runner_says_so(table: Table, state: JobState) -> None:
    key = table.add(1), 1
    table.dispatch()
    if state is JobState.RUNNING:
        table.scheduler.started(key, table.now)
    table.scheduler.cancel("j1", table.now)
    table.scheduler.cancel("j1", table.now)
    table.work()
    assert table.last().state is JobState.CANCELLING
    assert table.actions[1:] == [Cancel("spark", "j1", 1, "cancelled")]

    table.scheduler.cancelled(key, table.now, slots_free=True)
    table.work()

    assert (table.last().state, table.last().note) == (JobState.CANCELLED, "")


def test_job_that_ended_before_the_cancel_reached_it_has_its_result(table: Table) -> None:
    key = table.run()
    table.scheduler.cancel("j1", table.now)
    table.scheduler.done(key, JobOutput(value=3), table.now)
    table.work()

    assert (table.last().state, table.last().output) == (JobState.DONE, JobOutput(value=3))


def test_job_that_fails_while_it_is_cancelled_has_failed(table: Table) -> None:
    key = table.run()
    table.scheduler.cancel("j1", table.now)
    table.scheduler.failed(key, JobFailure("data", "bad row"), table.now)
    table.work()

    assert table.last().state is JobState.FAILED


def test_cancelled_job_holds_its_place_until_its_resources_are_free(table: Table) -> None:
    keys = [table.run(1), table.run(2)]
    table.add(3)
    table.scheduler.cancel("j1", table.now)
    table.scheduler.cancelled(keys[0], table.now, slots_free=False)
    table.work()
    assert (table.last("j1").state, table.begun()) == (JobState.CANCELLED, ["j1", "j2"])
    assert "free soon" in table.last("j1").note

    table.scheduler.slots_free(keys[0], table.now)
    released, _ = table.work()

    assert table.begun() == ["j1", "j2", "j3"]
    assert (released.keep, released.record) == (Keep.RELEASE, replace(table.last("j1"), note=""))
    assert table.ended == ["j1"]


def test_code_that_does_not_stop_is_called_cancelled_after_its_grace_and_keeps_its_place(
    table: Table,
) -> None:
    key = table.run(1)
    table.run(2)
    table.add(3)
    table.scheduler.cancel("j1", table.now)
    table.later(_GRACE - 0.1)
    assert table.last("j1").state is JobState.CANCELLING
    table.later(0.2)
    assert (table.last("j1").state, table.last("j1").note) == (JobState.CANCELLED, "its code did not stop")
    assert any("did not stop" in line for line in table.lines)
    assert table.begun() == ["j1", "j2"]

    table.scheduler.cancelled(key, table.now, slots_free=True)
    table.work()

    assert table.begun() == ["j1", "j2", "j3"]


def test_run_that_takes_too_long_times_out(table: Table) -> None:
    key = table.run(timeout=60.0)
    table.later(59.9)
    assert table.last().state is JobState.RUNNING
    table.later(0.2)
    assert table.last().state is JobState.CANCELLING
    assert table.actions[-1] == Cancel("spark", "j1", 1, "timed-out")

    table.scheduler.cancelled(key, table.now, slots_free=True)
    table.work()

    assert table.last().state is JobState.TIMED_OUT
    assert table.last().error == JobFailure("deadline-exceeded", "it ran longer than 60 s")


def test_time_limit_counts_from_the_start_of_the_code(table: Table) -> None:
    key = table.add(1, timeout=60.0), 1
    table.dispatch()
    table.later(300.0)
    table.scheduler.started(key, table.now)
    table.later(59.0)

    assert table.last().state is JobState.RUNNING


def test_job_whose_turn_does_not_come_in_time_expires(table: Table) -> None:
    for number in (1, 2):
        table.add(number)
    table.add(3, expires_at=table.now.wall + 30.0)
    table.dispatch()
    table.later(29.0)
    assert table.scheduler.waiting_state("j3").position == 1
    table.later(2.0)

    assert table.last("j3").state is JobState.EXPIRED
    assert table.begun() == ["j1", "j2"]


def test_job_that_has_begun_does_not_expire(table: Table) -> None:
    table.run(expires_at=table.now.wall + 30.0)
    table.later(100.0)

    assert table.last().state is JobState.RUNNING


def test_lost_job_is_lost_unless_its_verb_lets_it_run_again(table: Table) -> None:
    key = table.run()
    table.scheduler.lost(key, "the engine died", table.now)
    table.work()

    assert table.last().state is JobState.LOST
    assert table.last().error == JobFailure("engine-lost", "the engine died")


def test_lost_job_runs_again_as_another_attempt_as_often_as_its_verb_says() -> None:
    table = Table(on_lost="rerun", retries=2)
    key = table.run()
    table.scheduler.progress(key, Progress(0.5), table.now)
    for attempt in (1, 2):
        table.scheduler.lost(("j1", attempt), "the engine died", table.now)
        table.scheduler.started(("j1", attempt + 1), table.now)
        table.work()
        assert (table.last().state, table.last().attempt) == (JobState.RUNNING, attempt + 1)
        assert table.last().progress == 0.5
    table.scheduler.lost(("j1", 3), "the engine died", table.now)
    table.work()

    assert table.last().state is JobState.LOST
    assert [task.task.attempt for task in table.actions if isinstance(task, Submit)] == [1, 2, 3]


def test_failure_that_its_verb_names_is_run_again_later_and_later_until_its_retries_are_used() -> None:
    table = Table(retry_on=("worker-crashed", "rate-limited"), retry_delay=5.0, retries=2)
    table.run()
    for attempt, delay in ((1, 5.0), (2, 10.0)):
        table.scheduler.started(("j1", attempt), table.now)
        table.scheduler.failed(("j1", attempt), JobFailure("rate-limited", "slowly"), table.now)
        table.work()
        assert (table.last().state, table.last().attempt) == (JobState.QUEUED, attempt + 1)
        assert table.last().note == "to be run again: rate-limited: slowly"
        table.later(delay - 0.1)
        assert len(table.begun()) == attempt
        table.later(0.2)
        assert len(table.begun()) == attempt + 1
    table.scheduler.failed(("j1", 3), JobFailure("rate-limited", "slowly"), table.now)
    table.work()

    assert (table.last().state, table.last().error) == (JobState.FAILED, JobFailure("rate-limited", "slowly"))


def test_other_failures_are_final_and_so_is_that_of_a_job_to_be_cancelled() -> None:
    table = Table(retry_on=("worker-crashed",))
    other, wanted = table.run(1), table.run(2)
    table.scheduler.failed(other, JobFailure("data", "bad row"), table.now)
    table.scheduler.cancel("j2", table.now)
    table.scheduler.failed(wanted, JobFailure("worker-crashed", "gone"), table.now)
    table.work()

    assert [table.last(job).state for job in ("j1", "j2")] == [JobState.FAILED, JobState.FAILED]


def test_loss_that_is_to_be_retried_waits_as_a_failure_does() -> None:
    table = Table(retry_on=("engine-lost",), retry_delay=5.0)
    key = table.run()
    table.scheduler.lost(key, "the engine died", table.now)
    table.work()
    assert (table.last().state, table.last().not_before) == (JobState.QUEUED, table.now.wall + 5.0)
    table.later(5.0)

    assert table.begun() == ["j1", "j1"]


@pytest.mark.parametrize("named", ["engine-lost", "out-of-memory"])
@pytest.mark.parametrize("code", ["engine-lost", "out-of-memory"])
def test_retry_on_either_code_of_a_dead_engine_is_one_policy_for_both(named: str, code: str) -> None:
    table = Table(retry_on=(named,), retry_delay=5.0)
    key = table.run()
    table.scheduler.lost(key, "the JVM died", table.now, code=code)
    table.work()
    assert table.last().state is JobState.QUEUED
    table.later(5.0)
    table.scheduler.lost(("j1", 2), "the JVM died", table.now, code=code)
    table.work()

    assert (table.last().state, table.last().error) == (JobState.LOST, JobFailure(code, "the JVM died"))


def test_job_whose_own_code_ran_out_of_memory_is_not_retried_as_one_whose_engine_was_lost() -> None:
    table = Table(retry_on=("engine-lost",), on_lost="rerun")
    key = table.run()
    table.scheduler.failed(key, JobFailure("out-of-memory", "the engine ran out of memory"), table.now)
    table.work()

    assert table.last().state is JobState.FAILED


def test_delay_between_attempts_has_a_limit() -> None:
    verb = JobVerb("count", count, retry_on=("x",), retry_delay=5.0, retries=2000)

    assert [verb.retry_after("x", attempt) for attempt in (1, 7, 8, 2000)] == [5.0, 320.0, 600.0, 600.0]


def test_lost_job_that_was_being_cancelled_is_cancelled_and_not_run_again() -> None:
    table = Table(on_lost="rerun")
    key = table.run()
    table.scheduler.cancel("j1", table.now)
    table.scheduler.lost(key, "the engine died", table.now)
    table.work()

    assert table.last().state is JobState.CANCELLED
    assert table.begun() == ["j1"]


def test_report_of_an_earlier_attempt_is_ignored() -> None:
    table = Table(on_lost="rerun")
    old = table.run()
    table.scheduler.lost(old, "the engine died", table.now)
    table.scheduler.started(("j1", 2), table.now)
    table.work()
    before = len(table.told)

    table.scheduler.progress(old, Progress(0.9), table.now)
    table.scheduler.done(old, JobOutput(value="old"), table.now)
    table.scheduler.failed(old, JobFailure("job", "old"), table.now)
    table.scheduler.cancelled(old, table.now, slots_free=True)
    table.scheduler.log(old, "old", table.now)
    table.later(5.0)

    assert len(table.told) == before


def test_job_that_its_engine_ended_unasked_is_lost(table: Table) -> None:
    key = table.run()
    table.scheduler.cancelled(key, table.now, slots_free=True)
    table.work()

    assert table.last().state is JobState.LOST


def test_failure_is_one_line_for_its_caller_and_a_trace_for_the_log(table: Table) -> None:
    key = table.run()
    table.scheduler.failed(
        key, JobFailure("job", "first\n  second " + "x" * 1000, trace="Traceback…"), table.now
    )
    table.work()

    error = table.last().error
    assert error is not None
    assert error.message.startswith("first second xxx")
    assert len(error.message) == 300
    assert error.trace == ""
    assert table.lines == ["Traceback…"]


def test_lines_of_a_log_are_written_together_and_soon(table: Table) -> None:
    key = table.run()
    for number in range(5):
        table.scheduler.log(key, f"line {number}", table.now)
    assert table.work() == []
    told = len(table.told)
    table.later(0.6)

    assert table.lines == [f"line {number}" for number in range(5)]
    assert len(table.told) == told


def test_job_that_logs_without_end_costs_bounded_memory(table: Table) -> None:
    key = table.run()
    for number in range(5000):
        table.scheduler.log(key, f"{number} " + "x" * 10_000, table.now)
    table.later(0.6)

    assert len(table.lines) == 1000
    assert max(map(len, table.lines)) <= 4001


def test_nothing_is_begun_after_stop() -> None:
    table = Table(on_lost="rerun")
    key = table.run()
    table.add(2)
    table.scheduler.stop()
    table.scheduler.lost(key, "the service stopped", table.now)
    table.dispatch()

    assert (table.last("j1").state, table.last("j1").attempt) == (JobState.QUEUED, 2)
    assert table.begun() == ["j1"]


@pytest.mark.parametrize(
    ("found", "rerun", "becomes"),
    [
        (JobState.QUEUED, False, JobState.STARTING),
        (JobState.STARTING, False, JobState.LOST),
        (JobState.RUNNING, False, JobState.LOST),
        (JobState.CANCELLING, False, JobState.CANCELLED),
        (JobState.QUEUED, True, JobState.STARTING),
        (JobState.STARTING, True, JobState.STARTING),
        (JobState.RUNNING, True, JobState.STARTING),
        (JobState.CANCELLING, True, JobState.CANCELLED),
    ],
)
def test_job_found_at_the_start_becomes(found: JobState, rerun: bool, becomes: JobState) -> None:
    table = Table(on_lost="rerun" if rerun else "fail")
    record = JobRecord(id="j1", verb="count", parameters=None, accepted_at=1.0, state=found, seq=5)
    table.scheduler.recover(record, table.now)
    table.dispatch()

    assert table.last().state is becomes
    assert table.last().seq > 5
    assert table.last().attempt == (2 if rerun and found in (JobState.STARTING, JobState.RUNNING) else 1)


def test_timed_out_job_found_at_the_start_has_timed_out(table: Table) -> None:
    record = JobRecord(
        id="j1", verb="count", parameters=None, accepted_at=1.0, timeout=5.0, state=JobState.CANCELLING,
        ends_as=JobState.TIMED_OUT,
    )  # fmt: skip
    table.scheduler.recover(record, table.now)
    table.work()

    assert table.last().state is JobState.TIMED_OUT


def test_waiting_job_whose_verb_is_gone_fails(table: Table) -> None:
    record = JobRecord(id="j1", verb="dropped", parameters=None, accepted_at=1.0)
    table.scheduler.recover(record, table.now)
    table.dispatch()

    assert table.last().state is JobState.FAILED
    assert table.last().error == JobFailure("unknown-verb", "the service has no job 'dropped' any more")


def test_job_whose_time_to_wait_ran_out_while_the_service_was_away_expires(table: Table) -> None:
    record = JobRecord(id="j1", verb="count", parameters=None, accepted_at=1.0, expires_at=4000.0)
    table.scheduler.recover(record, table.now)
    table.later(0.0)

    assert table.last().state is JobState.EXPIRED
    assert table.begun() == []


# --- with other instances ---


def shared(**options: Any) -> Table:
    table = Table(**options)
    table.scheduler = Scheduler(
        table.verbs, lambda engine: _CAPACITY, cancel_grace=_GRACE, instance="me", is_shared=True
    )
    return table


def known(number: int, **fields: Any) -> JobRecord:
    return replace(JobRecord(f"j{number}", "count", None, float(number)), **fields)


def test_job_that_another_instance_accepted_is_begun_in_its_turn() -> None:
    table = shared()
    table.add(2)
    table.scheduler.learn(known(1), table.now)
    table.scheduler.learn(known(3, verb="unknown here"), table.now)
    assert (table.scheduler.waiting_state("j1").position, table.scheduler.waiting_state("j3").position) == (
        1,
        None,
    )
    table.dispatch()

    assert table.begun() == ["j1", "j2"]
    assert table.last("j1").holder == "me"


def test_runs_of_other_instances_count_for_keys_and_verbs_and_not_for_engines() -> None:
    table = shared()
    running = known(1, verb="lone", state=JobState.RUNNING, seq=3, holder="other", exclusive="a")
    table.scheduler.learn(running, table.now)
    table.add(2, "lone")
    table.add(3, exclusive="a")
    table.add(4)
    table.add(5)
    table.dispatch()
    assert table.begun() == ["j4", "j5"]

    # It has ended, and something of it runs on.
    table.scheduler.learn(replace(running, state=JobState.CANCELLED, seq=4), table.now)
    table.scheduler.done(("j4", 1), JobOutput(), table.now)
    table.work()
    assert table.begun() == ["j4", "j5"]
    table.scheduler.learn(replace(running, state=JobState.CANCELLED, seq=4, holder=None), table.now)
    table.dispatch()

    assert table.begun() == ["j4", "j5", "j2"]


def test_job_that_another_instance_has_begun_waits_here_no_more() -> None:
    table = shared()
    for number in (1, 2, 3):
        table.add(number, not_before=table.now.wall + 9.0)
    table.scheduler.learn(known(1, state=JobState.STARTING, seq=2, holder="other"), table.now)
    table.scheduler.learn(known(2, state=JobState.CANCELLED, seq=2), table.now)
    table.scheduler.keep_only(["j1"])
    table.later(9.0)

    assert table.scheduler.queued == 0
    assert table.begun() == []


def test_job_that_was_refused_leaves_its_place_to_the_next() -> None:
    table = shared()
    for number in (1, 2, 3):
        table.add(number)
    table.scheduler.dispatch(table.now)
    table.scheduler.withdraw(table.work()[0])
    table.scheduler.learn(known(1, state=JobState.STARTING, seq=2, holder="other"), table.now)
    table.dispatch()

    assert table.begun() == ["j1", "j2", "j3"]
    assert table.scheduler.waiting_state("j1").position is None


@pytest.mark.parametrize("seconds", [0.0, _GRACE])
def test_job_that_was_refused_after_its_cancel_leaves_its_place_and_its_key_to_the_next(
    seconds: float,
) -> None:
    table = shared()
    table.add(1, exclusive="a")
    table.scheduler.dispatch(table.now)
    table.scheduler.cancel("j1", table.now)
    table.scheduler.advance(Moment(table.now.wall + seconds, table.now.steady + seconds))
    for work in table.work():
        table.scheduler.withdraw(work)
    for number in (2, 3):
        table.add(number, exclusive="a" if number == 2 else None)
    table.dispatch()

    assert table.begun() == ["j1", "j2", "j3"]


def test_own_writes_are_no_news() -> None:
    table = shared()
    key = table.run(1)
    before = table.last("j1")
    table.scheduler.learn(replace(before, seq=before.seq - 1, state=JobState.QUEUED, holder=None), table.now)
    table.scheduler.learn(replace(before, seq=before.seq + 1), table.now)
    table.scheduler.done(key, JobOutput(), table.now)
    table.work()

    assert (table.last("j1").state, table.last("j1").holder) == (JobState.DONE, None)
    assert table.begun() == ["j1"]


def test_job_keeps_its_holder_as_long_as_something_of_it_runs() -> None:
    table = shared()
    key = table.run(1)
    table.scheduler.cancel("j1", table.now)
    table.later(_GRACE)
    assert (table.last("j1").state, table.last("j1").holder) == (JobState.CANCELLED, "me")

    table.scheduler.cancelled(key, table.now, slots_free=True)
    (work,) = table.work()

    assert (work.keep, work.record.id) == (Keep.RELEASE, "j1")


class AnyOrder(RuleBasedStateMachine):
    """Any order of any events leads to consistent statuses of each job."""

    jobs = st.integers(1, 4).map(lambda number: f"j{number}")
    keys = st.tuples(jobs, st.integers(1, 3))

    def __init__(self) -> None:
        super().__init__()
        self.table = Table(on_lost="rerun", retry_on=("job",), retries=1)
        self.checked = 0
        self.latest: dict[str, JobRecord] = {}

    @rule(
        job=jobs,
        verb=st.sampled_from(["count", "lone", "here"]),
        expires=st.none() | st.floats(0, 20),
        begins=st.none() | st.floats(0, 20),
        exclusive=st.sampled_from([None, None, "a", "b"]),
    )
    def add(
        self, job: str, verb: str, expires: float | None, begins: float | None, exclusive: str | None
    ) -> None:
        if job not in self.latest:
            wall = self.table.now.wall
            self.latest[job] = JobRecord(
                job,
                verb,
                None,
                float(job[1:]),
                timeout=15.0,
                expires_at=None if expires is None else wall + expires,
                not_before=None if begins is None else wall + begins,
                exclusive=exclusive,
            )
            self.table.scheduler.add(self.latest[job], self.table.now)
            self.table.scheduler.dispatch(self.table.now)

    @rule(key=keys)
    def started(self, key: tuple[str, int]) -> None:
        self.table.scheduler.started(key, self.table.now)

    @rule(key=keys, fraction=st.none() | st.floats(-1, 2))
    def progress(self, key: tuple[str, int], fraction: float | None) -> None:
        self.table.scheduler.progress(key, Progress(fraction), self.table.now)

    @rule(key=keys, free=st.booleans())
    def cancelled(self, key: tuple[str, int], free: bool) -> None:
        if self._is_handed_over(key):
            self.table.scheduler.cancelled(key, self.table.now, slots_free=free)

    @rule(key=keys)
    def slots_free(self, key: tuple[str, int]) -> None:
        self.table.scheduler.slots_free(key, self.table.now)

    @rule(key=keys, end=st.sampled_from(["done", "failed", "lost"]))
    def end(self, key: tuple[str, int], end: str) -> None:
        if not self._is_handed_over(key):
            return
        value: Any = {"done": JobOutput(), "failed": JobFailure("job", "x"), "lost": "died"}[end]
        getattr(self.table.scheduler, end)(key, value, self.table.now)

    @rule(job=jobs)
    def cancel(self, job: str) -> None:
        self.table.scheduler.cancel(job, self.table.now)

    @rule(seconds=st.floats(0, 12))
    def later(self, seconds: float) -> None:
        self.table.later(seconds)

    def _is_handed_over(self, key: tuple[str, int]) -> bool:
        # A runner can only speak of what it was given.
        self.table.work()
        given = [effect.task for effect in self.table.actions if isinstance(effect, Submit)]
        return key in [(task.job, task.attempt) for task in given]

    @invariant()
    def what_is_told_makes_sense(self) -> None:
        self.table.work()
        for record in self.table.told[self.checked :]:
            before = self.latest[record.id]
            require_transition(record.id, before.state, record.state)
            if record.state is JobState.STARTING and before.not_before is not None:
                assert self.table.now.wall >= before.not_before
            assert record.seq > before.seq
            assert (record.progress or 0.0) >= (before.progress or 0.0)
            assert (record.progress == 1.0) == (record.state is JobState.DONE)
            assert (record.ended_at is not None) == record.has_ended
            self.latest[record.id] = record
        self.checked = len(self.table.told)
        assert len(self.table.ended) == len(set(self.table.ended))
        assert sorted(self.table.ended) == sorted(one.id for one in self.latest.values() if one.has_ended)
        self._check_places()

    def _check_places(self) -> None:
        known = self.latest.values()
        assert self.table.scheduler.queued == sum(one.state is JobState.QUEUED for one in known)
        for engine in ("spark", None):
            here = [one for one in known if self.table.verbs[one.verb].engine == engine]
            assert sum(one.state is not JobState.QUEUED and not one.has_ended for one in here) <= _CAPACITY
        for key in ("a", "b"):
            alike = [one for one in known if one.exclusive == key]
            assert sum(one.state is not JobState.QUEUED and not one.has_ended for one in alike) <= 1

    @invariant()
    def each_attempt_is_begun_once(self) -> None:
        begun = [(one.task.job, one.task.attempt) for one in self.table.actions if isinstance(one, Submit)]
        assert len(begun) == len(set(begun))


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAnyOrder = AnyOrder.TestCase


def test_place_is_taken_for_a_job_before_it_is_recorded_and_given_back_if_it_is_not() -> None:
    table = Table()
    reserved = [table.scheduler.reserve(known(number, verb="lone"), table.now) for number in (1, 2)]
    assert reserved[0] is not None
    assert (reserved[0].waiting.position, reserved[1]) == (1, None)
    table.add(3, "lone")
    table.dispatch()
    assert table.begun() == []

    table.scheduler.give_back(reserved[0], table.now)
    table.work()

    assert table.begun() == ["j3"]


def test_place_is_not_taken_before_waiting_jobs_that_may_begin() -> None:
    table = Table()
    table.left = ["count"]
    table.add(1)
    table.dispatch()
    # Its engine works again, and no event has come since.
    table.left = []

    assert table.scheduler.reserve(known(2), table.now) is None


def test_request_for_a_job_that_another_instance_runs_leaves_its_place_alone() -> None:
    running = known(1, verb="lone", state=JobState.RUNNING, seq=3, holder="other")
    learned_before, learned_after = shared(), shared()
    learned_before.scheduler.learn(running, table_now := learned_before.now)
    assert learned_before.scheduler.reserve(known(1, verb="lone"), table_now) is None
    reserved = learned_after.scheduler.reserve(known(1, verb="lone"), table_now)
    assert reserved is not None
    learned_after.scheduler.learn(running, table_now)
    learned_after.scheduler.give_back(reserved, table_now)

    for table in (learned_before, learned_after):
        table.add(2, "lone")
        table.dispatch()
        assert table.begun() == []
