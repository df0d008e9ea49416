"""Processes that are forked from an engine host: they say nothing, and end where the job's code ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nebula.spark import lines

# An engine host's main part: its conversation is on standard output.
HOST = """
import os, signal, sys
from nebula.spark import lines
from nebula.spark.host.__main__ import Speaker
from nebula.spark.host.forks import ended_where_forked, leave_to_forks

speaker = Speaker(os.dup(1))
leave_to_forks(speaker.mute)
signal.signal(signal.SIGTERM, lambda *_: speaker.say(lines.Bye("terminated")))
speaker.say(lines.Hello(lines.VERSION, os.getpid()))
try:
    with ended_where_forked():
        child = os.fork()
        if child == 0:
            speaker.say(lines.Bye("a fork"))
            {code}
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    speaker.say(lines.Broken(str(status)))
except BaseException:
    speaker.say(lines.Bye("it went on"))
"""


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("pass", 0),
        ("raise KeyError", 1),
        ("sys.exit(3)", 3),
        ("sys.exit('no more')", 1),
        ("sys.exit()", 0),
        ("os.kill(os.getpid(), signal.SIGTERM)", -15),
    ],
)
def test_fork_says_nothing_and_ends_with_a_status_of_its_own(tmp_path: Path, code: str, status: int) -> None:
    program = [sys.executable, "-c", HOST.format(code=code)]
    said = subprocess.run(program, cwd=tmp_path, env=_environment(), capture_output=True, check=True).stdout
    hello, last = lines.LineReader().feed(said)

    assert isinstance(hello, lines.Hello)
    assert last == lines.Broken(str(status))


# The grandchild is to have whatever is open in its parent, under the number of what that closed.
NESTED = """
import os
from nebula.spark.host.forks import leave_to_forks

commands = os.open(os.devnull, os.O_RDONLY)
leave_to_forks(lambda: os.close(commands))

def in_child(code):
    child = os.fork()
    if child == 0:
        code()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

def child():
    assert os.open(os.devnull, os.O_WRONLY) == commands
    in_child(lambda: os.write(commands, b"x"))

in_child(child)
"""


def test_what_the_host_has_is_left_once_and_not_again_by_forks_of_forks(tmp_path: Path) -> None:
    program = [sys.executable, "-c", NESTED]
    done = subprocess.run(program, cwd=tmp_path, env=_environment(), capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, b"")


# A pool may end a worker before it has begun.
ENDED_AT_ONCE = """
import os, signal, sys, threading, time
from nebula.spark.host.forks import leave_to_forks

leave_to_forks()
signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"taken for the host's end"))

def fork():
    for _ in range(200):
        child = os.fork()
        if child == 0:
            time.sleep(20)
            os._exit(0)
        os.kill(child, signal.SIGTERM)
        if os.waitpid(child, 0)[1] != signal.SIGTERM:
            os.write(1, b"lost")
            break
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

thread = threading.Thread(target=fork)
thread.start()
thread.join()
"""


def test_signal_that_comes_at_once_ends_a_fork_and_nothing_else(tmp_path: Path) -> None:
    program = [sys.executable, "-c", ENDED_AT_ONCE]
    done = subprocess.run(program, cwd=tmp_path, env=_environment(), capture_output=True, check=False)

    # The host has got the one signal that was for it.
    assert (done.returncode, done.stdout, done.stderr) == (0, b"taken for the host's end", b"")


def _environment() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(sys.path)}
