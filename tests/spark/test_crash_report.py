"""How an engine host died that did not say why, as its jobs and its log are told."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nebula.rpc.contract.job_runner import JobTask
from nebula.spark import Spark, SparkRunner
from nebula.spark.crash_report import CrashReport, read_crash
from tests.own_logs import all_logs
from tests.spark.told import Told, isolated, running, task

_RAISED = """\
a job said this
Traceback (most recent call last):
  File "old.py", line 1, in <module>
    old()
ValueError: of an old job
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "host.py", line 3, in <module>
    from nebula.spark import lines
ImportError: cannot import name 'lines'
and its second line
"""
_CRASHED = _RAISED + 'Fatal Python error: Aborted\n\nCurrent thread 0x01:\n  File "native.py", line 1\n'

One = Callable[..., JobTask]


@pytest.mark.parametrize(
    ("said", "status", "how"),
    [
        (_RAISED, 1, "exit status 1: ImportError: cannot import name 'lines'"),
        (_CRASHED, -signal.SIGABRT, "SIGABRT: Fatal Python error: Aborted"),
        ("Traceback (most recent call last):\n", 1, "exit status 1: Traceback (most recent call last):"),
        ("", 7, "exit status 7"),
        # Whom a signal kills dies by no exception: what is there is a job's.
        (_RAISED, -signal.SIGKILL, "SIGKILL"),
        (_RAISED, 0, "exit status 0"),
        (_RAISED, -250, "signal 250"),
        (_RAISED, None, "it cannot be ended"),
        (_RAISED + "later\n" * 2000, 1, "exit status 1"),
    ],
)
def test_death_is_told_by_its_status_and_the_error_that_was_printed_last(
    tmp_path: Path, said: str, status: int | None, how: str
) -> None:
    (tmp_path / "said").write_text(said)

    assert read_crash(tmp_path / "said", status).how == how


def test_trace_is_that_of_the_last_error_alone(tmp_path: Path) -> None:
    (tmp_path / "said").write_bytes(_RAISED.encode() + b"\xff")
    trace = read_crash(tmp_path / "said", 1).trace

    assert trace is not None
    assert trace.startswith('Traceback (most recent call last):\n  File "<frozen runpy>"')
    assert "old" not in trace


def test_host_that_said_nothing_at_all_leaves_its_status(tmp_path: Path) -> None:
    assert read_crash(tmp_path / "none", 1) == CrashReport("exit status 1")


_HOST = """
import os, sys
from nebula.spark import lines
writer, reader = lines.LineWriter(), lines.LineReader()
os.write(1, writer.encode(lines.Hello(lines.VERSION, os.getpid())))
os.write(1, writer.encode(lines.Ready("4", "Java 17", os.getpid(), 0.1)))
while True:
    for line in reader.feed(os.read(0, 65536)):
        if isinstance(line, lines.Submit):
            raise LookupError("no such thing")
"""


@pytest.mark.anyio
@pytest.mark.parametrize("one", [task, isolated])
async def test_error_that_a_host_dies_by_is_told_to_its_jobs_and_logged_with_its_stack(
    tmp_path: Path, one: One
) -> None:
    command = [sys.executable, "-c", _HOST]
    runner = SparkRunner(Spark(cds=False), tmp_path, "reports", is_shared=one is task, command=command)
    told = Told()
    with all_logs() as logged:
        async with running(runner, told):
            runner.submit(one("A", "any"))
            reason = await told.until("A", "lost")

    assert reason == "the engine host died (exit status 1: LookupError: no such thing)"
    (ended,) = [entry for entry in logged if entry.get("reason") == reason]
    assert (ended["log_level"], ended["status"]) == ("warning", 1)
    assert ended["trace"].startswith("Traceback (most recent call last):")
    assert ended["trace"].endswith("LookupError: no such thing")
