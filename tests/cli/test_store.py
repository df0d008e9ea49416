"""`nebula store`: what it says and writes, and what it leaves alone while a broker runs."""

from __future__ import annotations

import json
import sqlite3
import stat
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from nebula.broker.store.sqlite import STORE_FILE, SqliteStore
from nebula.sync import Client
from nebula.testing.stored import lines, message, put_message
from tests.cli.programs import DEADLINE, NEBULA, environment, nebula, running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store with three messages."""
    store = SqliteStore(tmp_path / "data")
    store.load()
    store.apply([put_message("/queue/a", message(number)) for number in (1, 2, 3)])
    store.close()
    return tmp_path / "data"


def test_check_says_that_nothing_is_wrong(folder: Path) -> None:
    ended = nebula("store", "check", "--data", str(folder))

    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout) == {"file": str(folder / STORE_FILE), "rows": 3, "findings": []}


def test_check_ends_with_1_where_something_is_wrong(folder: Path) -> None:
    with closing(sqlite3.connect(folder / STORE_FILE, isolation_level=None)) as db:
        db.execute("UPDATE messages SET headers = '{}' WHERE number = 2")

    ended = nebula("store", "check", "--data", str(folder))

    assert ended.returncode == 1
    assert json.loads(ended.stdout)["findings"] == ["messages, row 2: headers is no list of pairs of texts"]


def test_folder_is_found_as_the_broker_finds_it(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "nebula.toml").write_text('data = "data"\n')

    by_file = nebula("store", "check", cwd=tmp_path)
    by_variable = nebula("store", "check", env={"NEBULA_SERVER_DATA": str(folder)})

    assert json.loads(by_file.stdout)["rows"] == json.loads(by_variable.stdout)["rows"] == 3


def test_compact_says_what_it_gained(folder: Path) -> None:
    ended = nebula("store", "compact", "--data", str(folder))

    size = (folder / STORE_FILE).stat().st_size
    assert json.loads(ended.stdout) == {
        "file": str(folder / STORE_FILE),
        "before_bytes": size,
        "after_bytes": size,
    }


def test_export_goes_into_a_file_of_one_user_or_through_a_pipe_and_back(folder: Path, tmp_path: Path) -> None:
    file, new = tmp_path / "messages.jsonl", str(tmp_path / "new")

    written = nebula("store", "export", str(file), "--data", str(folder))
    read = nebula("store", "import", str(file), "--data", new)
    piped = nebula("store", "export", "--data", new)

    assert json.loads(written.stdout) == {"file": str(file), "rows": 3}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(read.stdout) == {"folder": new, "rows": 3}
    assert piped.stdout == file.read_text()
    again = subprocess.run(
        [*NEBULA, "store", "import", "--data", str(tmp_path / "newer")],
        input=piped.stdout,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
    assert json.loads(again.stdout)["rows"] == 3


def test_export_overwrites_nothing(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")

    ended = nebula("store", "export", str(tmp_path / "precious"), "--data", str(folder))

    assert ended.returncode == 2
    assert ended.stderr == f"nebula: {tmp_path / 'precious'}: cannot be written: File exists\n"
    assert (tmp_path / "precious").read_text() == "precious"


def test_wrong_export_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "wrong").write_bytes(b"\xff\n")

    ended = nebula("store", "import", str(tmp_path / "wrong"), "--data", str(tmp_path / "new"))

    assert ended.returncode == 1
    assert ended.stderr == "nebula: line 1: is no line of an export, it is no JSON\n"


def test_running_broker_is_copied_and_not_touched_otherwise(tmp_path: Path) -> None:
    data, standby = str(tmp_path / "data"), tmp_path / "standby"
    standby.mkdir()
    with running("broker", "--port", "0", "--data", data) as (broker, line):
        with Client(line["url"]) as client:
            client.send("orders", "place", {"number": 1})

        refused = [nebula("store", *words, "--data", data) for words in (["check"], ["compact"], ["export"])]
        copied = nebula("store", "backup", "--data", data, str(standby))

    for ended in refused:
        assert ended.returncode == 1
        assert ended.stderr.startswith(
            f"nebula: {data}: another broker keeps its messages there (pid {broker.pid}, {line['url']}); stop"
        )
    told = json.loads(copied.stdout)
    assert told == {"file": str(standby / STORE_FILE), "bytes": (standby / STORE_FILE).stat().st_size}
    store = SqliteStore(standby)
    (kept,) = lines(store.load())["/queue/orders"]
    store.close()
    assert b'"number":1' in kept.body.replace(b" ", b"")


def test_broker_does_not_start_on_a_damaged_store_and_says_what_to_do(folder: Path) -> None:
    file = folder / STORE_FILE
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("UPDATE broker SET is_clean = 0")
        [(page,)] = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'last_values'")
    with file.open("r+b") as opened:
        opened.seek((page - 1) * 4096)
        opened.write(b"\xff" * 4096)

    ended = nebula("broker", "--port", "0", "--data", str(folder))

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"nebula: {file}: is damaged, ")
    assert "; restore the folder from a backup, or move it away" in ended.stderr
