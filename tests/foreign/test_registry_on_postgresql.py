"""The table of jobs in PostgreSQL: what every table does, and what several instances agree on by it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import anyio
import psycopg
import pytest

from nebula.errors import SettingsError
from nebula.extras.postgres_database import Database
from nebula.extras.postgres_listener import PostgresListener
from nebula.extras.postgres_registry import PostgresJobRegistry
from nebula.rpc.contract.job_runner import JobFailure
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.model.record import LogLine
from nebula.rpc.jobs.model.states import JobState
from nebula.rpc.jobs.registry.errors import Fenced, RegistryAway, Superseded
from nebula.rpc.jobs.registry.job_filter import JobFilter
from tests.foreign.postgresql import PASSWORD, PostgresServer, SlowDatabase
from tests.rpc.jobs.registries import RegistrySuite, job

# The first one waits for PostgreSQL to be installed.
pytestmark = [pytest.mark.foreign, pytest.mark.timeout(300)]

_LEASE = 60.0


@pytest.fixture
def registry(database: Database) -> Iterator[PostgresJobRegistry]:
    opened = PostgresJobRegistry(database, "counting")
    yield opened
    opened.close()


@pytest.fixture
def other(database: Database, registry: PostgresJobRegistry) -> Iterator[PostgresJobRegistry]:
    opened = PostgresJobRegistry(database, "counting")
    yield opened
    opened.close()


class TestPostgres(RegistrySuite):
    """What every registry does."""

    taken = psycopg.IntegrityError


def _join(registry: PostgresJobRegistry, name: str, lease: float = _LEASE) -> None:
    with registry.transaction():
        assert registry.join(name, f"of {name}", lease) == []


def test_services_in_one_database_know_nothing_of_each_other(
    database: Database, registry: PostgresJobRegistry
) -> None:
    registry.insert(job(1))
    reports = PostgresJobRegistry(database, "reports")
    reports.insert(job(1, verb="other"))

    assert registry.open_jobs() == [job(1)]
    assert reports.open_jobs() == [job(1, verb="other")]
    reports.close()


def test_texts_that_postgresql_cannot_keep_are_kept_with_a_mark(registry: PostgresJobRegistry) -> None:
    odd = "a\0b\ud800c"
    registry.insert(job(1, note=odd, parameters={"up_to": odd}, error=JobFailure("job", "fine")))
    registry.add_lines(job(1).id, [LogLine(1.0, odd)])
    (found,) = registry.page(JobFilter(text="FINE"), 5)

    assert (found.note, found.parameters) == ("a\ufffdb?c", {"up_to": odd})
    assert [line.text for line in registry.lines(job(1).id, 5)] == ["a\ufffdb?c"]


def test_job_is_begun_by_one_instance_alone(
    registry: PostgresJobRegistry, other: PostgresJobRegistry
) -> None:
    registry.insert(job())
    with registry.transaction():
        registry.begin(job(state=JobState.STARTING, seq=2, holder="i1"))

    with other.transaction(), pytest.raises(Superseded):
        other.begin(job(state=JobState.STARTING, seq=2, holder="i2"))
    found = other.find(job().id)
    assert found is not None
    assert found.holder == "i1"


def _is_locked(registry: PostgresJobRegistry) -> bool:
    query = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = ?"
    return bool(list(registry._all(query, registry.backend)))


def _refuse(registry: PostgresJobRegistry) -> None:
    with registry.part():
        registry.lock()
        raise VerbError("busy", "1000 jobs are queued")


def test_what_follows_a_part_that_was_refused_is_written_under_the_lock(
    registry: PostgresJobRegistry,
) -> None:
    registry.insert(job())
    with registry.transaction():
        with pytest.raises(VerbError):
            _refuse(registry)
        assert not _is_locked(registry)
        registry.begin(job(state=JobState.STARTING, seq=2, holder="i1"))
        with pytest.raises(VerbError):
            _refuse(registry)

        assert _is_locked(registry)


def test_job_that_changes_after_it_was_looked_at_is_not_written_over(
    database: Database, registry: PostgresJobRegistry, other: PostgresJobRegistry
) -> None:
    registry.insert(job())
    refused: list[Superseded] = []

    def begin() -> None:
        try:
            # Outside of a transaction nothing holds the lock from the look to the writing.
            other.save(job(state=JobState.STARTING, seq=2, holder="i2"))
        except Superseded as error:
            refused.append(error)

    late = threading.Thread(target=begin)
    with psycopg.connect(database.url) as db:
        db.execute(f'UPDATE "{registry.schema}".jobs SET seq = 2, holder = %s'.encode(), ("i1",))
        late.start()
        waits = "SELECT 1 FROM pg_stat_activity WHERE pid = ? AND wait_event_type = 'Lock'"
        while late.is_alive() and not list(registry._all(waits, other.backend)):
            time.sleep(0.01)
    late.join(30.0)
    found = registry.find(job().id)

    assert refused
    assert found is not None
    assert found.holder == "i1"


def test_exclusive_key_holds_over_all_instances_and_beyond_the_end(
    registry: PostgresJobRegistry, other: PostgresJobRegistry
) -> None:
    for number in (1, 2):
        registry.insert(job(number, exclusive="/data/a"))
    registry.begin(job(1, state=JobState.STARTING, seq=2, holder="i1", exclusive="/data/a"))
    second = job(2, state=JobState.STARTING, seq=2, holder="i2", exclusive="/data/a")
    with pytest.raises(Superseded):
        other.begin(second)
    registry.save(job(1, state=JobState.FAILED, seq=3, holder="i1", exclusive="/data/a"))
    with pytest.raises(Superseded):
        other.begin(second)
    registry.release(job(1).id, "")
    other.begin(second)

    assert other.find(second.id) == second


def test_number_of_a_verb_holds_over_all_instances(
    registry: PostgresJobRegistry, other: PostgresJobRegistry
) -> None:
    for number in (1, 2, 3):
        registry.insert(job(number))
    registry.begin(job(1, state=JobState.STARTING, seq=2, holder="i1"), most=2)
    other.begin(job(2, state=JobState.STARTING, seq=2, holder="i2"), most=2)

    with pytest.raises(Superseded):
        other.begin(job(3, state=JobState.STARTING, seq=2, holder="i2"), most=2)


def test_instance_that_was_not_heard_of_loses_its_jobs_to_the_others_and_writes_no_more(
    registry: PostgresJobRegistry, other: PostgresJobRegistry
) -> None:
    _join(registry, "i1", lease=0.0)
    with other.transaction():
        other.join("i2", "of i2", _LEASE)
    held = job(1, state=JobState.RUNNING, holder="i1")
    other.insert(held)
    other.insert(job(2, state=JobState.CANCELLED, holder="i1"))
    other.insert(job(3, state=JobState.RUNNING, holder="i2"))
    other.insert(job(4, state=JobState.RUNNING, holder="i1", verb="unknown"))
    with other.transaction():
        heard = other.beat(_LEASE, ["count"])
    released = other.find(job(2).id)

    assert (heard.orphans, heard.has_lost_others) == ([held], True)
    assert released is not None
    assert released.holder is None
    with pytest.raises(Fenced), registry.transaction():
        registry.save(job(1, state=JobState.DONE, seq=2, holder="i1"))
    with pytest.raises(Fenced), registry.transaction():
        registry.beat(_LEASE, ["count"])
    assert other.find(held.id) == held


def test_jobs_of_a_verb_that_no_instance_has_any_more_are_left_to_any(
    registry: PostgresJobRegistry, other: PostgresJobRegistry
) -> None:
    _join(registry, "i1")
    _join(other, "i2")
    for number, holder in ((1, None), (2, "gone"), (3, "i1")):
        state = JobState.QUEUED if holder is None else JobState.RUNNING
        registry.insert(job(number, verb="old", state=state, holder=holder))
    registry.insert(job(4, verb="old", state=JobState.DONE))
    with registry.transaction():
        registry.beat(_LEASE, ["old", "count"])
    with other.transaction():
        seen = other.beat(_LEASE, ["count"], unseen=_LEASE).orphans
    with other.transaction():
        deserted = other.beat(_LEASE, ["count"], unseen=0.0).orphans

    assert seen == []
    assert [int(one.id) for one in deserted] == [1, 2]


def test_verb_whose_engine_is_broken_is_there_but_does_not_work(
    registry: PostgresJobRegistry, other: PostgresJobRegistry
) -> None:
    _join(registry, "i1")
    _join(other, "i2")
    with registry.transaction():
        registry.beat(_LEASE, ["count", "old"], working=["count"])
    registry.insert(job(1, verb="old"))
    with other.transaction():
        heard = other.beat(_LEASE, ["count"], unseen=_LEASE)
    with registry.transaction():
        later = registry.beat(_LEASE, ["count", "old"], working=["old"]).working

    assert heard.orphans == []
    assert heard.working == {"count"}
    assert later == {"count", "old"}


def test_job_in_work_that_nobody_holds_is_an_orphan(registry: PostgresJobRegistry) -> None:
    _join(registry, "i1")
    for number, state in enumerate((JobState.QUEUED, JobState.STARTING, JobState.CANCELLING), start=1):
        registry.insert(job(number, state=state))
    registry.insert(job(4, state=JobState.DONE))
    with registry.transaction():
        orphans = registry.beat(_LEASE, ["count"]).orphans

    assert [int(one.id) for one in orphans] == [2, 3]


@pytest.mark.anyio
async def test_what_others_say_on_the_channel_in_another_encoding_is_not_heard(
    database: Database, registry: PostgresJobRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with (
        PostgresListener(database, registry.schema, lambda: 0) as listener,
        psycopg.connect(database.url) as db,
    ):
        db.execute("SELECT pg_notify('nebula_jobs', chr(233))")
        db.execute(f"NOTIFY nebula_jobs, '{registry.schema}'".encode())
        db.commit()
        with anyio.fail_after(30.0):
            told = await listener.wait()

    assert told == (True, frozenset())


def test_instance_that_is_heard_of_in_time_keeps_its_jobs(
    registry: PostgresJobRegistry, other: PostgresJobRegistry
) -> None:
    _join(registry, "i1")
    _join(other, "i2")
    registry.insert(job(1, state=JobState.RUNNING, holder="i1"))
    for one in (registry, other):
        with one.transaction():
            heard = one.beat(_LEASE, ["count"])
        assert (heard.orphans, heard.has_lost_others) == ([], False)


def test_next_process_of_an_instance_finds_what_the_last_one_left_and_shuts_it_out(
    registry: PostgresJobRegistry, other: PostgresJobRegistry
) -> None:
    _join(registry, "i1")
    registry.insert(job(1, state=JobState.RUNNING, holder="i1"))
    with other.transaction():
        left = other.join("i1", "another process", _LEASE)

    assert left == [job(1, state=JobState.RUNNING, holder="i1")]
    with pytest.raises(Fenced):
        registry.insert(job(2))


def test_instance_that_leaves_is_given_up_at_once(
    registry: PostgresJobRegistry, database: Database, other: PostgresJobRegistry
) -> None:
    _join(registry, "i1")
    _join(other, "i2")
    held = job(1, state=JobState.RUNNING, holder="i1")
    registry.insert(held)
    registry.close()
    with other.transaction():
        heard = other.beat(_LEASE, ["count"])

    assert (heard.orphans, heard.has_lost_others) == ([held], False)


def test_changes_are_told_once_in_their_order_with_what_is_to_be_cancelled(
    registry: PostgresJobRegistry, other: PostgresJobRegistry
) -> None:
    for number in (1, 2, 3):
        registry.insert(job(number))
    registry.insert(job(4, state=JobState.DONE))
    first = other.changes(None)
    registry.save(job(1, state=JobState.STARTING, seq=2, holder="i1"))
    registry.ask_to_cancel(job(3).id)
    registry.forget([job(2).id])
    second = other.changes(first.last)

    assert [int(one.id) for one in first.records] == [1, 2, 3]
    assert [int(one.id) for one in second.records] == [1, 3]
    assert second.unwanted == {job(3).id}
    assert second.ids == {job(1).id, job(3).id}
    assert other.changes(second.last).records == []


def _cut(registry: PostgresJobRegistry, by: PostgresJobRegistry) -> None:
    by._do("SELECT pg_terminate_backend(?, 5000)", registry.backend)


def _insert_two(registry: PostgresJobRegistry, other: PostgresJobRegistry) -> None:
    with registry.transaction():
        registry.insert(job(1))
        _cut(registry, other)
        registry.insert(job(2))


def test_transaction_over_a_connection_that_ends_is_lost_and_may_be_done_again(
    registry: PostgresJobRegistry, other: PostgresJobRegistry
) -> None:
    with pytest.raises(RegistryAway) as caught:
        _insert_two(registry, other)
    assert other.open_jobs() == []
    assert PASSWORD not in str(caught.value)

    registry.reconnect()
    with registry.transaction():
        registry.insert(job(1))

    assert other.open_jobs() == [job(1)]


def test_database_that_is_not_there_is_told_with_its_place_and_without_its_password(
    postgres: PostgresServer,
) -> None:
    with pytest.raises(RegistryAway) as caught:
        PostgresJobRegistry(Database(postgres.url("nowhere")), "counting")

    place = f"PostgreSQL at 127.0.0.1:{postgres.port}, database nowhere"
    assert str(caught.value).startswith(f"Responder(jobs=…): {place}: ")
    assert "does not exist" in str(caught.value)
    assert PASSWORD not in str(caught.value)


def _fail(registry: PostgresJobRegistry, sqlstate: str) -> None:
    with registry.transaction():
        registry.insert(job(1))
        registry._do(f"DO $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '{sqlstate}'; END $$")


@pytest.mark.parametrize("sqlstate", ["25006", "53100", "53200", "53300", "57014", "57P01", "57P03"])
def test_what_the_server_may_do_later_is_tried_again_over_another_connection(
    registry: PostgresJobRegistry, other: PostgresJobRegistry, sqlstate: str
) -> None:
    before = registry.backend
    with pytest.raises(RegistryAway, match="not now"):
        _fail(registry, sqlstate)
    assert other.open_jobs() == []

    registry.reconnect()
    registry.insert(job(1))

    assert registry.backend != before
    assert other.open_jobs() == [job(1)]


def test_what_the_server_never_does_is_an_error(registry: PostgresJobRegistry) -> None:
    with pytest.raises(psycopg.DataError):
        _fail(registry, "22012")

    assert registry.open_jobs() == []


def test_registry_that_is_given_up_while_it_connects_writes_nothing_more(postgres: PostgresServer) -> None:
    database = SlowDatabase(postgres.new_database())
    registry = PostgresJobRegistry(database, "counting")
    other = PostgresJobRegistry(Database(database.url), "counting")
    _join(registry, "i1")
    _cut(registry, other)
    with pytest.raises(RegistryAway):
        registry.open_jobs()
    refused: list[RegistryAway] = []

    def write() -> None:
        try:
            registry.reconnect()
            registry.insert(job(1))
        except RegistryAway as error:
            refused.append(error)

    database.shut()
    late = threading.Thread(target=write)
    late.start()
    assert database.is_tried.wait(30.0)
    registry.abort()
    registry.close()
    database.gate.set()
    late.join(30.0)

    assert refused
    assert registry._db.closed
    assert other.open_jobs() == []
    # Its lease ends by itself.
    assert other.instances() == {"i1"}
    other.close()


def test_role_that_may_not_make_the_schema_is_told_what_is_missing(
    postgres: PostgresServer, database: Database
) -> None:
    name = database.url.rpartition("/")[2]
    weak = Database(f"postgresql://weak:weak@127.0.0.1:{postgres.port}/{name}", "NEBULA_JOBS")
    grant = f'GRANT CREATE ON DATABASE "{name}" TO "weak"'
    with psycopg.connect(database.url, autocommit=True) as db:
        db.execute("CREATE ROLE weak LOGIN PASSWORD 'weak'")
        with pytest.raises(SettingsError) as caught:
            PostgresJobRegistry(weak, "counting")
        db.execute(grant.encode())
    PostgresJobRegistry(weak, "counting").close()
    PostgresJobRegistry(database, "other").close()
    with pytest.raises(SettingsError) as of_another:
        PostgresJobRegistry(weak, "other")

    assert str(caught.value).startswith(
        f"NEBULA_JOBS: PostgreSQL at 127.0.0.1:{postgres.port}, database {name}"
    )
    assert str(caught.value).endswith(grant)
    assert str(of_another.value).endswith("role weak may not use this schema: connect as its owner, nebula")


def test_schema_of_another_version_is_not_touched(database: Database, registry: PostgresJobRegistry) -> None:
    with registry.transaction():
        registry._do("UPDATE version SET number = 99")

    with pytest.raises(SettingsError, match="another version of Nebula"):
        PostgresJobRegistry(database, "counting")


def test_service_with_a_name_that_is_too_long_is_refused(database: Database) -> None:
    with pytest.raises(SettingsError, match="50 characters"):
        PostgresJobRegistry(database, "x" * 60)


_BACK_TO_VERSION_3 = b"""
DROP FUNCTION count_job, count_line CASCADE;
DROP TABLE owners, stored;
DROP INDEX jobs_ended;
ALTER TABLE jobs DROP COLUMN bytes;
UPDATE version SET number = 3;
"""


def test_jobs_of_an_earlier_version_are_counted_and_not_told_as_changed(
    database: Database, registry: PostgresJobRegistry
) -> None:
    for number, owner in enumerate(["alice", "bob", "alice"], 1):
        registry.insert(job(number, owner=owner, parameters="x" * 1000))
    registry.add_lines(job(3).id, [LogLine(1.0, "é" * 100)])
    owners, stored = registry.owners(), registry.stored_bytes()
    with registry.transaction():
        changed = registry.changes(None).last
    with database.connect("test") as db:
        db.execute(f'SET search_path TO "{registry.schema}"'.encode())
        db.execute(_BACK_TO_VERSION_3)

    upgraded = PostgresJobRegistry(database, "counting")

    assert (upgraded.owners(), upgraded.stored_bytes()) == (owners, stored)
    with upgraded.transaction():
        assert upgraded.changes(changed).records == []
    upgraded.insert(job(4, owner="bob"))
    assert upgraded.stored_by("bob").jobs == 2
    upgraded.close()
