"""The names of sessions on a Connect server, on disk for the host after a killed one."""

from __future__ import annotations

from pathlib import Path

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
