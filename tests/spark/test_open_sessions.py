"""The names of sessions on a Connect server, on disk for the host after a killed one."""

from __future__ import annotations

from pathlib import Path

from nebula.spark.host.open_sessions import OpenSessions


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
