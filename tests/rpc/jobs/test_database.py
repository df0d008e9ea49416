"""The address of a registry in PostgreSQL: read without a server, shown without its password."""

from __future__ import annotations

import pytest

from nebula.errors import SettingsError
from nebula.extras.postgres import PostgresJobs
from nebula.extras.postgres_database import Database
from nebula.rpc.jobs.model.limits import JobLimits
from nebula.rpc.service.job_storage import database_of_environment
from nebula.rpc.service.responder import Responder

_URL = "postgresql://nebula:open%2Fsesame@db.example:6432/jobs"


def test_password_is_in_no_text_about_it() -> None:
    database = Database(_URL)

    assert database.place == "Responder(jobs=…): PostgreSQL at db.example:6432, database jobs"
    assert "sesame" not in repr(database) + str(database) + database.place


def test_hosts_may_be_several_without_ports() -> None:
    database = Database("postgresql://db1,db2/jobs?target_session_attrs=read-write", "NEBULA_JOBS")

    assert database.place == "NEBULA_JOBS: PostgreSQL at db1,db2, database jobs"


@pytest.mark.parametrize("password", ["open:sesame", "open#sesame", "open?sesame", "%40sesame%2F"])
def test_password_with_signs_that_need_no_code_is_in_no_text_either(password: str) -> None:
    database = Database(f"postgresql://nebula:{password}@h1:1,h2:2/jobs?connect_timeout=3")

    assert database.place == "Responder(jobs=…): PostgreSQL at h1,h2:1,2, database jobs"
    assert "sesame" not in repr(database)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://nebula:open%zzsesame@h/x",
        "postgresql://nebula:open/sesame@h/x",
        "postgresql://nebula:12/sesame@h:1/x",
        "postgresql://nebula:open@sesame@h/x",
        "postgresql://nebula:open?/sesame@h/x",
        "postgresql://nebula:1?user=/sesame@h/x",
        "postgresql://nebula:sesame/x",
        "host=h password=sesame",
        "sesame",
    ],
)
def test_malformed_url_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Database(url)

    assert "postgresql://user" in str(caught.value)
    assert "sesame" not in f"{caught.value!r} {caught.value} {caught.value.__cause__}"


def test_environment_may_name_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEBULA_JOBS", raising=False)
    assert database_of_environment() is None

    monkeypatch.setenv("NEBULA_JOBS", _URL)
    assert database_of_environment() == PostgresJobs(Database(_URL, "NEBULA_JOBS"))

    monkeypatch.setenv("NEBULA_JOBS", "nonsense")
    with pytest.raises(SettingsError, match="NEBULA_JOBS"):
        database_of_environment()


def test_responder_refuses_nonsense_at_once() -> None:
    with pytest.raises(SettingsError, match="jobs=…"):
        Responder("reports", jobs="mysql://root@localhost")


def test_lease_that_leaves_no_time_to_connect_is_refused() -> None:
    with pytest.raises(ValueError, match=r"lease is 3 s or more, not 2\.5: .* 2 s to connect"):
        JobLimits(lease=2.5)

    assert JobLimits(lease=3.0).lease == 3.0


@pytest.mark.parametrize("name", ["keep_jobs", "keep_for", "max_queued", "adopt_every", "check_timeout"])
def test_limits_below_nothing_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is -1: 0 or more is wanted"):
        JobLimits(**{name: -1})


@pytest.mark.parametrize("name", ["adopt_every", "check_timeout", "max_stored_bytes", "owner_share"])
def test_times_and_room_of_nothing_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 0: more is wanted"):
        JobLimits(**{name: 0})


def test_share_of_more_than_all_is_refused() -> None:
    with pytest.raises(ValueError, match=r"owner_share is 1\.5: 1 at most"):
        JobLimits(owner_share=1.5)
