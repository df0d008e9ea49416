"""The names of sessions on a Connect server, on disk for the host after a killed one."""

from __future__ import annotations

from pathlib import Path

import pytest

from nebula.errors import JobError
from nebula.spark.addresses import parse_remote
from nebula.spark.host.connect import ConnectSession
from nebula.spark.host.open_sessions import OpenSessions, groups_before, session_id_of


def test_successor_finds_what_was_remembered_and_not_forgotten(tmp_path: Path) -> None:
    first = OpenSessions(tmp_path / "connect")
    for session_id in ("a", "b", "c"):
        first.remember(session_id, f"job-{session_id}.1", object())
    first.forget("b")
    second = OpenSessions(tmp_path / "connect")

    assert list(second.left_over()) == [("a", "job-a.1"), ("c", "job-c.1")]
    assert second.opened() == []


def test_session_is_forgotten_once_by_whoever_closes_it_first(tmp_path: Path) -> None:
    sessions = OpenSessions(tmp_path)
    sessions.remember("a", "job.1", object())
    sessions.forget("a")
    sessions.forget("a")

    assert sessions.opened() == []
    assert list(sessions.left_over()) == []


def test_next_attempt_can_name_the_sessions_of_all_earlier_ones() -> None:
    assert groups_before("job.3") == ["job.1", "job.2"]
    assert groups_before("job.1") == []
    assert session_id_of("readings", "job.1") == session_id_of("readings", "job.1")
    assert len({session_id_of(*one) for one in [("a", "j.1"), ("a", "j.2"), ("b", "j.1")]}) == 3


def session_without_a_server() -> ConnectSession:
    # There is none to be had without one, and what is asked here needs no more.
    session = ConnectSession.__new__(ConnectSession)
    session._service, session._user, session._clear_at = "readings", "somebody", 0.0
    session._remote = parse_remote("sc://127.0.0.1:1")
    return session


def test_job_that_waits_for_the_end_of_its_earlier_attempt_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("nebula.spark.host.connect._AGAIN_SECONDS", 0.0)
    looks = iter([True, True])
    session_without_a_server().end_before("job.2", lambda: next(looks, False))

    (said,) = [one.getMessage() for one in caplog.records if one.name == "nebula.spark.host.connect"]
    assert said.startswith("end of an earlier attempt awaited attempt=job.1 reason=")


def test_attempt_whose_session_cannot_be_ended_fails_its_successor_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nebula.spark.host.connect._END_SECONDS", 0.0)
    session = session_without_a_server()
    looks = iter([True, True])

    with pytest.raises(JobError, match=r"job\.1 has left .* could not be ended") as failed:
        session.end_before("job.2", lambda: next(looks, False))

    assert failed.value.code == "engine-lost"
