"""Children have an end, whatever they do."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from benchmarks import processes
from benchmarks.processes import Unavailable, running, wait_until

_KILLED = """
import sys, time
from pathlib import Path
from benchmarks.processes import running, wait_until

child = "import subprocess; own = subprocess.Popen(['sleep', '60']); print(own.pid, flush=True); own.wait()"
log = Path(sys.argv[1])
with running([sys.executable, "-c", child], log=log) as process:
    wait_until(lambda: log.read_text().endswith("\\n"), process, log=log)
    print(process.pid, log.read_text(), flush=True)
    time.sleep(60)
"""

_STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(60)
"""


def test_child_is_gone_when_the_block_ends(tmp_path: Path) -> None:
    with running([sys.executable, "-c", "import time; time.sleep(60)"], log=tmp_path / "log") as child:
        assert child.poll() is None

    assert child.returncode is not None


def test_child_that_ignores_the_polite_signal_is_gone_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_END_SECONDS", 0.2)
    log = tmp_path / "log"
    with running([sys.executable, "-c", _STUBBORN], log=log) as child:
        wait_until(lambda: "up" in log.read_text(), child, log=log)

    assert child.returncode == -9


def test_children_do_not_outlive_a_program_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _KILLED, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        family = [psutil.Process(int(pid)) for pid in program.stdout.readline().split()]
        program.kill()

    assert len(family) == 2
    deadline = time.monotonic() + 30
    while any(map(_lives, family)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(_lives, family))


def test_child_that_ends_too_soon_is_told_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = [sys.executable, "-c", "raise SystemExit('no room')"]
    with running(program, log=log) as child, pytest.raises(Unavailable, match="ended: no room"):
        wait_until(lambda: False, child, log=log)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_file_system_is_that_of_the_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/self")

    assert processes.file_system() == "proc"
