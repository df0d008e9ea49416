"""What web pages are given is there as a whole: the module, its types, and a command that copies both."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from nebula.browser import MODULE, TYPES
from nebula.rpc.jobs.model.states import JobState

_METHOD = r"^  (?:static |async |get )*(?:\*\s*)?([a-z]\w*)(?:<[^(]*>)?\("


def members(text: str) -> dict[str, set[str]]:
    """The public methods of each exported class."""
    classes = re.findall(r"^export class (\w+)[^{]*\{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    return {name: set(re.findall(_METHOD, body, re.MULTILINE)) - {"constructor"} for name, body in classes}


def test_types_know_each_method_of_the_module() -> None:
    typed = members(TYPES.read_text())
    # Of EventTarget: there for the names of the events.
    typed["Nebula"] -= {"addEventListener", "removeEventListener"}

    assert members(MODULE.read_text()) == typed
    assert {"call", "stream", "start"} < typed["Nebula"]


def test_types_know_each_state_of_a_job() -> None:
    declared = re.search(r"type JobState =(.*?);", TYPES.read_text(), re.DOTALL)

    assert declared is not None
    assert set(re.findall(r'"(\w+)"', declared[1])) == set(JobState)


def nebula_browser(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nebula.browser", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_module_is_found_or_copied_with_its_types(tmp_path: Path) -> None:
    assert nebula_browser().stdout == f"{MODULE}\n"
    assert nebula_browser("--copy", str(tmp_path)).returncode == 0

    assert (tmp_path / "nebula.js").read_text() == MODULE.read_text()
    assert (tmp_path / "nebula.d.ts").read_text() == TYPES.read_text()


def test_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    ended = nebula_browser("--copy", str(tmp_path / "nowhere" / "deep"))

    assert ended.returncode == 2
    assert "nowhere" in ended.stderr
    assert "Traceback" not in ended.stderr
