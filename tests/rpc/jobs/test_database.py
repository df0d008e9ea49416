"""Where a registry in PostgreSQL is: read without a server, told without its password."""

from __future__ import annotations

import pytest

from nebula.errors import SettingsError
from nebula.rpc.jobs.postgres import Database, jobs_database

_URL = "postgresql://nebula:open%2Fsesame@db.example:6432/jobs"


def test_password_is_in_no_text_about_it() -> None:
    database = Database(_URL)

    assert database.place == "PostgreSQL at db.example:6432, database jobs"
    assert "sesame" not in repr(database) + str(database) + database.place


@pytest.mark.parametrize("url", ["postgresql://nebula:open%zzsesame@h/x", "host=h password=sesame", "sesame"])
def test_url_that_is_none_is_refused_without_being_told(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Database(url)

    assert "postgresql://user" in str(caught.value)
    assert "sesame" not in f"{caught.value!r} {caught.value} {caught.value.__cause__}"


def test_database_is_the_arguments_else_the_settings_else_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEBULA_JOBS", raising=False)
    assert jobs_database(None) is None

    monkeypatch.setenv("NEBULA_JOBS", "postgresql://named/jobs")
    assert jobs_database(None) == Database("postgresql://named/jobs", "NEBULA_JOBS")
    assert jobs_database(_URL) == Database(_URL)

    monkeypatch.setenv("NEBULA_JOBS", "nonsense")
    with pytest.raises(SettingsError, match="NEBULA_JOBS"):
        jobs_database(None)
