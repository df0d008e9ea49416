"""Contract tests for registries of jobs, whatever the database."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any, ClassVar

import pytest

from nebula.rpc.contract.job_runner import JobFailure, JobOutput, StageCounts, TaskCounts
from nebula.rpc.jobs.model.record import MAX_LOG_LINES, JobRecord, JobStep, LogLine
from nebula.rpc.jobs.model.states import TABLE, IllegalTransition, JobState
from nebula.rpc.jobs.registry.errors import Superseded
from nebula.rpc.jobs.registry.job_filter import JobFilter
from nebula.rpc.jobs.registry.registry import JobRegistry, OwnerBytes


def job(number: int = 1, **fields: object) -> JobRecord:
    record = JobRecord(id=f"{number:026}", verb="count", parameters={"up_to": 3}, accepted_at=float(number))
    return replace(record, **fields)  # type: ignore[arg-type]  # the tests' own names


def _insert_twice(registry: JobRegistry, record: JobRecord) -> None:
    registry.insert(record)
    registry.insert(record)


def _find(registry: JobRegistry, **chosen: Any) -> list[int]:
    return [int(one.id) for one in registry.page(JobFilter(**chosen), 10)]


def prune(registry: JobRegistry, *, ended_before: float, keep: int) -> list[JobRecord]:
    old = registry.old_jobs(ended_before, keep)
    registry.forget(one.id for one in old)
    return old


class RegistrySuite:
    """The tests. A subclass has a fixture `registry`."""

    # How the database says that something is taken.
    taken: ClassVar[type[Exception]]

    def test_everything_that_is_known_of_a_job_comes_back(self, registry: JobRegistry) -> None:
        full = job(
            owner="alice",
            dedupe="key 1",
            state=JobState.CANCELLING,
            attempt=2,
            seq=9,
            priority=7,
            expires_at=5.0,
            timeout=60.0,
            progress_every=0.5,
            reply_id="r1",
            notify="/queue/mine",
            started_at=2.0,
            ended_at=3.0,
            progress=0.25,
            note="reading",
            step=(1, 2, "read"),
            tasks=TaskCounts(1, 4, 2, (StageCounts(3, "count", 1, 2, 1), StageCounts(4, "", 0, 2, 1))),
            output=JobOutput(
                value=[1, None], path="/p", rows=3, bytes=4, schema={"a": "int"}, preview=[{"a": 1}]
            ),
            error=JobFailure("data", "bad", "22012"),
            ends_as=JobState.TIMED_OUT,
            incarnation="e1",
            steps=(JobStep(1, 2, "read", 2.0, 2.5), JobStep(2, 2, "write", 2.5)),
            counters={"rows_read": 7},
            rerun_of=job(2).id,
            is_owed=True,
        )
        registry.insert(full)

        assert registry.find(full.id) == full

    @pytest.mark.parametrize(("old", "new"), list(product(JobState, JobState)))
    def test_states_change_by_the_table_alone(
        self, registry: JobRegistry, old: JobState, new: JobState
    ) -> None:
        registry.insert(job(state=old))

        if new is old or new in {state for (before, _), state in TABLE.items() if before is old}:
            registry.save(job(state=new, seq=2))
            found = registry.find(job().id)
            assert found is not None
            assert (found.state, found.seq) == (new, 2)
        else:
            with pytest.raises(IllegalTransition):
                registry.save(job(state=new, seq=2))
            assert registry.find(job().id) == job(state=old)

    def test_job_that_is_not_there_cannot_change(self, registry: JobRegistry) -> None:
        with pytest.raises(LookupError):
            registry.save(job())

    def test_id_is_taken_once(self, registry: JobRegistry) -> None:
        registry.insert(job())

        with pytest.raises(self.taken):
            registry.insert(job(verb="other"))

    def test_key_is_taken_once_for_each_owner_and_verb(self, registry: JobRegistry) -> None:
        registry.insert(job(1, owner="alice", dedupe="key 1"))
        registry.insert(job(2, owner="bob", dedupe="key 1"))
        registry.insert(job(3, owner="alice", verb="other", dedupe="key 1"))
        registry.insert(job(4, owner="alice"))
        registry.insert(job(5, owner="alice"))

        with pytest.raises(self.taken):
            registry.insert(job(6, owner="alice", dedupe="key 1"))
        assert registry.find_same(job(6, owner="bob", dedupe="key 1")) == job(2, owner="bob", dedupe="key 1")
        assert registry.find_same(job(6, owner="carol", dedupe="key 1")) is None
        assert registry.find_same(job(6)) is None

    def test_last_job_with_a_key_that_begins_so_is_found(self, registry: JobRegistry) -> None:
        for number, owner, key in (
            (1, "alice", "a 1"),
            (2, "alice", "a 2"),
            (3, "bob", "a 3"),
            (4, "alice", "b"),
        ):
            registry.insert(job(number, owner=owner, dedupe=key))

        assert registry.find_alike(job(9, owner="alice"), "a ") == job(2, owner="alice", dedupe="a 2")
        assert registry.find_alike(job(9, owner="alice"), "c ") is None

    def test_transaction_that_fails_leaves_nothing(self, registry: JobRegistry) -> None:
        with pytest.raises(self.taken), registry.transaction():
            _insert_twice(registry, job())

        assert registry.find(job().id) is None

    def test_part_that_fails_leaves_the_rest(self, registry: JobRegistry) -> None:
        with registry.transaction():
            registry.insert(job(1))
            with pytest.raises(self.taken), registry.part():
                _insert_twice(registry, job(2))

        assert [one.id for one in registry.open_jobs()] == [job(1).id]

    def test_open_jobs_come_in_the_order_of_acceptance(self, registry: JobRegistry) -> None:
        for number in (3, 1, 2):
            registry.insert(job(number))
        registry.insert(job(4, state=JobState.DONE))

        assert [int(one.id) for one in registry.open_jobs()] == [3, 1, 2]

    def test_pages_go_back_in_time(self, registry: JobRegistry) -> None:
        for number in range(1, 8):
            registry.insert(job(number, owner="alice" if number % 2 else "bob"))

        first = registry.page(JobFilter(owner="alice"), 3)
        second = registry.page(JobFilter(owner="alice"), 3, before=first[-1].id)

        assert [int(one.id) for one in first] == [7, 5, 3]
        assert [int(one.id) for one in second] == [1]
        assert registry.page(JobFilter(states=(JobState.DONE,)), 3) == []
        assert len(registry.page(JobFilter(verb="count"), 100)) == 7

    def test_jobs_are_found_by_the_first_characters_of_their_ids(self, registry: JobRegistry) -> None:
        ids = ["01JD3Z7VTP5W0Q4YH2X8K6M9NA", "01JD3Z7VTP5W0Q4YH2X8K6M9NB", "01JD3Z7VTZ5W0Q4YH2X8K6M9NB"]
        for place, ulid in enumerate(ids):
            registry.insert(job(place, id=ulid))

        def found(prefix: str) -> list[str]:
            return sorted(one.id for one in registry.page(JobFilter(prefix=prefix), 10))

        assert found("01JD3Z7VT") == ids
        assert found("01JD3Z7VTP") == ids[:2]
        assert found(ids[1]) == ids[1:2]
        assert found("01JD3Z7VTX") == []

    def test_jobs_that_were_taken_over_are_listed_by_when_they_were_accepted(
        self, registry: JobRegistry
    ) -> None:
        # In this table in the order of their numbers; accepted elsewhere before that.
        for number, accepted_at in ((1, 30.0), (2, 10.0), (3, 20.0), (4, 20.0), (5, 5.0)):
            registry.insert(job(number, accepted_at=accepted_at))

        pages = [registry.page(JobFilter(), 2)]
        while len(pages[-1]) == 2:
            pages.append(registry.page(JobFilter(), 2, before=pages[-1][-1].id))

        assert [[int(one.id) for one in page] for page in pages] == [[1, 4], [3, 2], [5]]

    def test_jobs_are_chosen_by_states_time_and_text(self, registry: JobRegistry) -> None:
        registry.insert(job(1, note="reading 10 % of it"))
        registry.insert(job(2, state=JobState.RUNNING, note="Writing"))
        registry.insert(job(3, state=JobState.FAILED, error=JobFailure("data", "NO \u00e9 READINGS")))

        assert _find(registry, states=(JobState.RUNNING, JobState.FAILED)) == [3, 2]
        assert _find(registry, since=2.0) == [3, 2]
        assert _find(registry, until=2.0) == [1]
        assert _find(registry, since=2.0, until=3.0, states=()) == [2]
        assert _find(registry, text="\u00e9 readings") == [3]
        assert _find(registry, text="ing") == [3, 2, 1]
        assert _find(registry, text="0 % o") == [1]
        assert _find(registry, text="%") == [1]
        assert _find(registry, text="message") == []

    def test_end_that_is_owed_is_so_until_it_is_settled(self, registry: JobRegistry) -> None:
        for number in range(1, 4):
            registry.insert(job(number, state=JobState.DONE, is_owed=number > 1))

        assert [int(one.id) for one in registry.owed_jobs(10)] == [2, 3]
        assert [int(one.id) for one in registry.owed_jobs(1)] == [2]
        registry.settle_notice(job(2).id)
        assert registry.owed_jobs(10) == [job(3, state=JobState.DONE, is_owed=True)]

    def test_ends_that_are_owed_are_known_by_their_queues(self, registry: JobRegistry) -> None:
        for number, queue in enumerate(["/queue/b", "/queue/a", "/queue/b", "/queue/c"]):
            registry.insert(job(number, state=JobState.DONE, notify=queue, is_owed=queue != "/queue/c"))

        assert registry.owed_queues() == ["/queue/b", "/queue/a"]
        assert [int(one.id) for one in registry.owed_jobs(10, "/queue/b")] == [0, 2]
        assert [int(one.id) for one in registry.owed_jobs(1, "/queue/b")] == [0]

    def test_log_keeps_its_last_lines(self, registry: JobRegistry) -> None:
        with registry.transaction():
            registry.add_lines("other", [LogLine(0.0, "not mine")])
            for start in range(0, 2 * MAX_LOG_LINES, 500):
                registry.add_lines(
                    "mine", [LogLine(float(n), f"line {n}") for n in range(start, start + 500)]
                )

        kept = registry.lines("mine", 10_000)

        assert [line.at for line in kept] == [float(n) for n in range(MAX_LOG_LINES, 2 * MAX_LOG_LINES)]
        assert registry.lines("mine", 2) == kept[-2:]
        assert registry.lines("mine", 2, after=MAX_LOG_LINES + 4) == kept[4:6]
        assert [line.number for line in registry.lines("mine", 1, after=0)] == [MAX_LOG_LINES + 1]
        assert registry.lines("other", 5) == [LogLine(0.0, "not mine", 1)]

    def test_old_jobs_are_forgotten_with_their_logs_and_keys(self, registry: JobRegistry) -> None:
        registry.insert(job(1, state=JobState.DONE, ended_at=10.0, dedupe="key 1"))
        registry.insert(job(2, state=JobState.FAILED, ended_at=20.0))
        registry.insert(job(3))
        registry.add_lines(job(1).id, [LogLine(1.0, "gone")])

        forgotten = prune(registry, ended_before=15.0, keep=100)

        assert [int(one.id) for one in forgotten] == [1]
        assert registry.lines(job(1).id, 10) == []
        assert registry.find_same(job(9, dedupe="key 1")) is None
        assert [int(one.id) for one in registry.page(JobFilter(), 10)] == [3, 2]

    def test_ended_jobs_beyond_the_limit_are_forgotten_the_oldest_first(self, registry: JobRegistry) -> None:
        for number in range(1, 6):
            registry.insert(job(number, state=JobState.DONE, ended_at=100.0))
        registry.insert(job(6))

        forgotten = prune(registry, ended_before=0.0, keep=2)

        assert sorted(int(one.id) for one in forgotten) == [1, 2, 3]
        assert [int(one.id) for one in registry.page(JobFilter(), 10)] == [6, 5, 4]

    def test_owners_with_the_most_jobs_lose_theirs_and_no_others_do(self, registry: JobRegistry) -> None:
        owners = ["alice", "bob", *["mallory"] * 20, "bob"]
        for number, owner in enumerate(owners, 1):
            registry.insert(job(number, owner=owner, state=JobState.DONE, ended_at=100.0))
        registry.insert(job(90, owner="mallory"))

        forgotten = prune(registry, ended_before=0.0, keep=8)

        assert sorted(int(one.id) for one in forgotten) == list(range(3, 18))
        assert prune(registry, ended_before=0.0, keep=8) == []

    def test_writer_that_has_not_seen_the_last_status_is_refused(self, registry: JobRegistry) -> None:
        registry.insert(job())
        registry.save(job(state=JobState.STARTING, seq=2, holder="i1"))
        registry.save(job(state=JobState.RUNNING, seq=3, holder="i1"))

        for late in (job(state=JobState.CANCELLED, seq=2), job(state=JobState.LOST, seq=3)):
            with pytest.raises(Superseded):
                registry.save(late)
        assert registry.find(job().id) == job(state=JobState.RUNNING, seq=3, holder="i1")

    def test_action_after_another_instances_run_is_refused(self, registry: JobRegistry) -> None:
        running = job(state=JobState.STARTING, seq=2, holder="i2")
        registry.insert(running)
        for held_by in ("i1", None):
            with pytest.raises(Superseded):
                registry.save(job(state=JobState.CANCELLING, seq=3, holder="i1"), held_by=held_by)
        assert registry.find(running.id) == running

        registry.save(job(state=JobState.CANCELLING, seq=3, holder="i2"), held_by="i2")

    def test_record_that_is_written_already_may_be_written_again(self, registry: JobRegistry) -> None:
        registry.insert(job())
        for _ in range(2):
            registry.save(job(state=JobState.STARTING, seq=2, holder="i1"), [LogLine(1.0, "once")])

        assert [line.text for line in registry.lines(job().id, 10)] == ["once"]

    def test_job_that_has_ended_is_held_until_nothing_of_it_runs(self, registry: JobRegistry) -> None:
        ended = job(state=JobState.CANCELLED, holder="i1", ended_at=5.0, is_owed=True)
        registry.insert(ended)
        registry.settle_notice(ended.id)
        registry.release(ended.id, "it is over")

        assert registry.find(ended.id) == replace(ended, holder=None, is_owed=False, note="it is over")

    def test_bytes_are_counted_by_owner_while_jobs_come_change_and_go(self, registry: JobRegistry) -> None:
        for number, owner in enumerate(["alice", "alice", "bob", ""], 1):
            registry.insert(job(number, owner=owner, parameters="x" * 1000 * number))
        registry.add_lines(job(2).id, [LogLine(1.0, "é" * 100), LogLine(2.0, "")])
        registry.save(job(1, owner="alice", state=JobState.CANCELLED, seq=2, parameters="x" * 1000))
        before = registry.owners()

        assert [one.owner for one in before] == ["", "alice", "bob"]
        alice = registry.stored_by("alice")
        assert alice == before[1]
        # Two rows of 400 and somewhat more, their texts, and two lines of 50.
        assert alice.jobs == 2
        assert 3800 + 300 < alice.bytes < 3800 + 300 + 800
        assert 2400 < alice.held_bytes < 2400 + 400
        assert registry.stored_bytes() == sum(one.bytes for one in before)
        assert registry.stored_by("nobody known") == OwnerBytes("nobody known")

        registry.forget([job(2).id, job(3).id, job(3).id, job(99).id])

        assert [(one.owner, one.jobs) for one in registry.owners()] == [("", 1), ("alice", 1)]
        assert 1400 < registry.stored_by("alice").bytes < 1400 + 400
        assert registry.stored_by("alice").held_bytes == 0

        registry.forget(one.id for one in registry.page(JobFilter(), 10))

        assert (registry.owners(), registry.stored_bytes()) == ([], 0)

    def test_lines_that_a_full_log_drops_are_counted_off(self, registry: JobRegistry) -> None:
        registry.insert(job(owner="alice"))
        full = [LogLine(1.0, "x" * 10)] * MAX_LOG_LINES
        registry.add_lines(job().id, full)
        once = registry.stored_by("alice")
        registry.add_lines(job().id, full)

        assert registry.stored_by("alice") == once
        assert once.bytes == registry.stored_bytes() > 60 * MAX_LOG_LINES

    def test_oldest_ended_jobs_make_way_and_none_that_is_open_owed_or_held(
        self, registry: JobRegistry
    ) -> None:
        ended = {"owner": "alice", "state": JobState.DONE}
        registry.insert(job(1, **ended, output=JobOutput(path="/results/1")))
        registry.insert(job(2, owner="alice"))
        registry.insert(job(3, **ended, is_owed=True))
        registry.insert(job(4, **ended, holder="i1"))
        registry.insert(job(5, **ended | {"owner": "bob"}))
        registry.insert(job(6, **ended))
        registry.add_lines(job(6).id, [LogLine(1.0, "x" * 1000)])

        found = list(registry.may_make_way("alice"))

        assert [(int(one.id), one.path) for one in found] == [(1, "/results/1"), (6, None)]
        assert found[1].bytes > 1450
        assert registry.stored_by("alice").held_bytes > 2 * 400

    def test_job_whose_end_is_owed_is_held_until_that_has_arrived(self, registry: JobRegistry) -> None:
        registry.insert(job(owner="alice"))
        open_ = registry.stored_by("alice")
        registry.save(job(owner="alice", state=JobState.CANCELLED, seq=2, is_owed=True))
        owed = registry.stored_by("alice")
        for _ in range(2):
            registry.settle_notice(job().id)

        assert open_.held_bytes == owed.held_bytes == owed.bytes > 400
        assert registry.stored_by("alice") == owed._replace(held_bytes=0)
