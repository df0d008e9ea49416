"""The table of jobs in SQLite, on a real disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nebula.rpc.jobs.model.states import JobState
from nebula.rpc.jobs.registry.registry import JobRegistry
from nebula.rpc.jobs.registry.sqlite import SqliteJobRegistry, peek
from nebula.rpc.jobs.scheduler.actions import Moment
from nebula.rpc.jobs.scheduler.scheduler import Scheduler
from nebula.rpc.jobs.service.action_runner import keep
from nebula.rpc.jobs.verb import JobVerb
from tests.rpc.jobs.faults import failing_at
from tests.rpc.jobs.harness import count
from tests.rpc.jobs.registries import RegistrySuite, job


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[JobRegistry]:
    opened = SqliteJobRegistry(tmp_path / "jobs.sqlite")
    yield opened
    opened.close()


class TestSqlite(RegistrySuite):
    """What every registry does."""

    taken = sqlite3.IntegrityError


def test_commit_that_fails_leaves_nothing(tmp_path: Path) -> None:
    disk = failing_at("COMMIT")
    registry = SqliteJobRegistry(tmp_path / "jobs.sqlite", connect=partial(sqlite3.connect, factory=disk))
    with pytest.raises(sqlite3.OperationalError), registry.transaction():
        registry.insert(job())
    registry.close()

    assert peek(tmp_path, lambda opened: opened.find(job().id)) is None


def test_commits_wait_for_the_disk(tmp_path: Path) -> None:
    opened: list[sqlite3.Connection] = []

    def connect(*args: Any, **settings: Any) -> sqlite3.Connection:
        opened.append(sqlite3.connect(*args, **settings))
        return opened[-1]

    registry = SqliteJobRegistry(tmp_path / "jobs.sqlite", connect=connect)

    found = [opened[0].execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert found == ["wal", 2]  # FULL
    registry.close()


def test_folder_in_use_can_be_looked_into(registry: JobRegistry, tmp_path: Path) -> None:
    registry.insert(job(1))

    assert peek(tmp_path, lambda opened: opened.find(job(1).id)) == job(1)
    assert peek(tmp_path, lambda opened: opened.find(job(2).id)) is None
    assert peek(tmp_path / "no such", lambda opened: opened.find(job(1).id)) is None


def test_file_that_is_no_registry_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "jobs.sqlite").write_text("not a database, but long enough to be looked at" * 50)

    assert peek(tmp_path, lambda opened: opened.find(job(1).id)) is None


def test_registry_of_another_version_is_not_touched(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "jobs.sqlite") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()

    with pytest.raises(sqlite3.DatabaseError, match="another version of Nebula"):
        SqliteJobRegistry(tmp_path / "jobs.sqlite")


def test_action_after_a_refused_begin_does_not_overwrite_the_run_of_another_instance(
    registry: JobRegistry,
) -> None:
    registry.insert(job())
    theirs = job(state=JobState.STARTING, seq=2, holder="i2")
    registry.begin(theirs)
    scheduler = Scheduler({"count": JobVerb("count", count)}, lambda _: 1, cancel_grace=9.0, instance="i1")
    now = Moment(1.0, 1.0)
    scheduler.add(job(), now)
    scheduler.dispatch(now)
    scheduler.cancel(job().id, now)

    assert [keep(work, registry) for work in scheduler.take_actions()] == [False, False]
    assert registry.find(job().id) == theirs
