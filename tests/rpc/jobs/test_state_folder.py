"""Folders of instances: one process each, names that outlive processes."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nebula.errors import SettingsError
from nebula.places import state_root
from nebula.rpc.jobs.state_folder import StateFolder


@pytest.fixture
def new_name() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"n{next(numbers)}"


def test_next_process_takes_the_folder_and_its_name(tmp_path: Path, new_name: Callable[[], str]) -> None:
    with StateFolder.take("reports", new_name, tmp_path) as first:
        (first.path / "jobs").write_text("kept")
    with StateFolder.take("reports", new_name, tmp_path) as second:
        assert (second.instance, second.path) == ("n1", tmp_path / "reports" / "n1")
        assert (second.path / "jobs").read_text() == "kept"


def test_folders_are_for_this_user_alone_whatever_the_umask(
    tmp_path: Path, new_name: Callable[[], str]
) -> None:
    before = os.umask(0)
    try:
        with StateFolder.take("reports", new_name, tmp_path / "state" / "nebula") as folder:
            made = [folder.path, *folder.path.parents[:3]]
    finally:
        os.umask(before)

    assert [oct(path.stat().st_mode & 0o777) for path in made] == ["0o700"] * 4


def test_folder_in_use_is_left_alone(tmp_path: Path, new_name: Callable[[], str]) -> None:
    with (
        StateFolder.take("reports", new_name, tmp_path) as first,
        StateFolder.take("reports", new_name, tmp_path) as second,
    ):
        assert (first.instance, second.instance) == ("n1", "n2")
        assert first.others() == [second.path]
        first.close()
        with StateFolder.take("reports", new_name, tmp_path) as third:
            assert third.instance == "n1"


def test_root_that_is_no_folder_is_told_with_the_cure(tmp_path: Path, new_name: Callable[[], str]) -> None:
    file = tmp_path / "file"
    file.touch()

    with pytest.raises(SettingsError) as caught:
        StateFolder.take("reports", new_name, file)

    assert str(caught.value) == (
        f"{file}/reports: jobs cannot be kept there, Not a directory; "
        "name a folder that this user may write to, with NEBULA_STATE or Responder(state=…)"
    )


def test_services_share_a_root_but_no_folder(tmp_path: Path, new_name: Callable[[], str]) -> None:
    with StateFolder.take("reports", new_name, tmp_path):
        pass
    with StateFolder.take("prices", new_name, tmp_path) as folder:
        assert folder.path == tmp_path / "prices" / "n2"


def test_folder_of_a_killed_process_is_free(tmp_path: Path, new_name: Callable[[], str]) -> None:
    program = (
        "import sys, time; from pathlib import Path; from nebula.rpc.jobs.state_folder import StateFolder\n"
        "folder = StateFolder.take('reports', lambda: 'mine', Path(sys.argv[1]))\n"
        "print(folder.instance, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"mine\n"
        with StateFolder.take("reports", new_name, tmp_path) as beside:
            assert beside.instance == "n1"
        child.kill()
        child.wait(10)
    with StateFolder.take("reports", new_name, tmp_path) as after:
        assert after.instance == "mine"


def test_root_is_the_users_own_unless_said_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NEBULA_STATE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "not/absolute")
    assert state_root() == tmp_path / ".local" / "state" / "nebula"

    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert state_root() == Path("/var/state/nebula")

    monkeypatch.setenv("NEBULA_STATE", "/srv/nebula")
    assert state_root() == Path("/srv/nebula")
