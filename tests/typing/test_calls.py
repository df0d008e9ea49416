"""What the type checkers must accept, and what they must reject: `check.py`, line by line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_WRONG = {
    number
    for number, line in enumerate((_HERE / "check.py").read_text().splitlines(), start=1)
    if line.endswith("# wrong")
}


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_mypy_accepts_right_calls_and_rejects_wrong_ones() -> None:
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "tests/typing/check.py"]

    checked = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stdout


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_pyright_accepts_right_calls_and_rejects_wrong_ones() -> None:
    # By pyright's own rules, see the settings beside this file: the comments for mypy do not count.
    command = [sys.executable, "-m", "basedpyright", "--project", str(_HERE), "--pythonpath", sys.executable]

    checked = subprocess.run(
        [*command, "--outputjson"], cwd=_ROOT, capture_output=True, text=True, check=False
    )

    told = json.loads(checked.stdout)["generalDiagnostics"]
    errors = {one["range"]["start"]["line"] + 1: one["message"] for one in told if one["severity"] == "error"}
    assert len(_WRONG) > 10
    assert errors.keys() == _WRONG, errors


_ONE_WRONG_ARGUMENT = """
from tests.typing.check import app, crunch, look, quote, report, rows
from nebula.rpc.client.client import Client
from nebula.sync import Client as SyncClient

async def calls(client: Client, sync: SyncClient) -> None:
    await client.call(quote, 7)
    await client.call(quote, symbol=7)
    await client.call(quote, "ABC", qty="2")
    await client.call(quote, "ABC", quantity=2)
    await client.call(look, 7)
    await client.start(report, "x")
    await client.start(report, month="x")
    await client.send(quote, 7)
    client.stream(rows, 7)
    client.call_all(quote, 7)
    await app.call(quote, 7)
    await app.call(quote, symbol=7)
    sync.call(crunch, ["x"])
    sync.call(crunch, values=["x"])
    sync.start(report, "x")
    sync.stream(rows, 7)
    sync.call_all(quote, 7)
"""


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_mypy_tells_of_one_wrong_argument_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(_ONE_WRONG_ARGUMENT)
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(tmp_path / "wrong.py")]

    checked = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)

    told = [line.partition(": error: ")[2] for line in checked.stdout.splitlines() if ": error: " in line]
    assert len(told) == _ONE_WRONG_ARGUMENT.count("    "), checked.stdout
    assert max(map(len, told)) < 250, checked.stdout
