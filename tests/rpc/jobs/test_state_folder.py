"""State folders: one process each, names that outlive processes."""

from __future__ import annotations

import importlib
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nebula.environment import ServiceEnvironment
from nebula.errors import SettingsError
from nebula.rpc.jobs.registry.state_folder import StateFolder, project_of


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


def test_root_that_is_no_folder_is_reported_with_the_remedy(
    tmp_path: Path, new_name: Callable[[], str]
) -> None:
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
        "import sys, time; from pathlib import Path\n"
        "from nebula.rpc.jobs.registry.state_folder import StateFolder\n"
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
    assert ServiceEnvironment.read().state_root == tmp_path / ".local" / "state" / "nebula"

    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert ServiceEnvironment.read().state_root == Path("/var/state/nebula")

    monkeypatch.setenv("NEBULA_STATE", "/srv/nebula")
    assert ServiceEnvironment.read().state_root == Path("/srv/nebula")


# --- projects ---


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where state is by default."""
    monkeypatch.delenv("NEBULA_STATE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "nebula"


def _taken(project: Path, root: Path | None = None) -> Path:
    with StateFolder.take("prices", lambda: "mine", root, project=project) as folder:
        return folder.path


def test_two_projects_with_a_service_of_one_name_have_a_folder_each(home: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"

    assert [_taken(each) for each in (first, first)] == [home / "prices" / "mine"] * 2
    (beside,) = {_taken(second) for _ in range(2)}
    assert beside.parent != home / "prices"
    assert beside.parent.name.startswith("prices-")
    assert (beside.parent / "project").read_text() == str(second)


def test_folder_of_an_earlier_version_belongs_to_the_first_project_that_comes(
    home: Path, tmp_path: Path
) -> None:
    with StateFolder.take("prices", lambda: "old") as older:
        pass

    assert _taken(tmp_path / "first") == older.path == home / "prices" / "old"
    assert _taken(tmp_path / "second").parent != home / "prices"


def test_root_that_the_user_names_is_shared(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "named"
    assert {_taken(tmp_path / each, named) for each in "ab"} == {named / "prices" / "mine"}

    monkeypatch.setenv("NEBULA_STATE", str(named))
    assert {_taken(tmp_path / each) for each in "ab"} == {named / "prices" / "mine"}
    assert not home.exists()


def test_state_of_a_project_that_is_gone_is_reported_and_not_taken(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _taken(tmp_path / "moved")

    assert _taken(tmp_path / "elsewhere").parent != home / "prices"
    (told,) = caplog.records
    assert told.levelname == "WARNING"
    assert vars(told)["event"] == "state of a lost project found"
    assert vars(told)["project"] == str(tmp_path / "moved")


LAYOUTS = {
    "a module": ("", "prices.py", "prices", ""),
    "a package": ("", "shop/prices.py", "shop.prices", ""),
    "a package's program": ("", "shop/__main__.py", "shop.__main__", ""),
    "a project": ("pyproject.toml", "src/shop/prices.py", "shop.prices", "src"),
    "an older project": ("setup.py", "prices.py", "prices", ""),
}


@pytest.mark.parametrize(("mark", "file", "name", "path"), LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("is_program", [False, True])
def test_project_is_found_however_its_program_is_started(
    tmp_path: Path, mark: str, file: str, name: str, path: str, *, is_program: bool
) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    (project / file).parent.mkdir(parents=True)
    elsewhere.mkdir()
    if mark:
        (project / mark).touch()
    (project / file).write_text(
        "from nebula.rpc.jobs.registry.state_folder import project_of\n"
        "def job(): ...\n"
        "print(project_of(job))\n"
    )
    words = ["-m", name] if is_program else ["-c", f"import {name}"]
    found = subprocess.run(
        [sys.executable, *words],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(project / path), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert set(found.stdout.split()) == {str(project)}


def test_project_of_what_has_no_file_is_where_it_runs(tmp_path: Path) -> None:
    program = (
        "from nebula.rpc.jobs.registry.state_folder import project_of\ndef job(): ...\nprint(project_of(job))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert found.stdout == f"{tmp_path}\n"


def test_project_of_a_package_is_the_folder_that_it_is_imported_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_of_the_test").mkdir()
    (tmp_path / "shop_of_the_test" / "__init__.py").write_text("def job(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    shop = importlib.import_module("shop_of_the_test")

    assert project_of(shop.job) == tmp_path
