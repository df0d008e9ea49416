"""Every family of commands in a Python of its own: the other tests fork one that has imported Nebula."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.programs import DEADLINE, environment, nebula, nebula_process, running_process

SCRIPT = Path(sys.executable).with_name("nebula")

# One of each heading of `nebula --help`, with its exit status.
FAMILIES = {
    "Run": ("run shop_that_is_not:there", 2),
    "Call": ("call shop price item=cup qty:=2", 0),
    "Publish": ("pub /topic/news hello", 0),
    "Jobs": ("jobs shop", 0),
    "Operate": ("queues", 0),
    "Secure": ("cert show nothing.pem", 2),
    "Tools": ("schema shop", 0),
}


@pytest.mark.parametrize(("words", "status"), FAMILIES.values(), ids=FAMILIES)
def test_started_program_and_forked_program_do_the_same(url: str, words: str, status: int) -> None:
    env = {"NEBULA_BROKER": url}

    started = nebula_process(*words.split(), env=env)
    forked = nebula(*words.split(), env=env)

    assert started.returncode == status, started.stderr
    assert (started.returncode, started.stderr) == (forked.returncode, forked.stderr)
    assert bool(started.stdout) == bool(forked.stdout)


def test_started_broker_collects_garbage_rarely() -> None:
    program = """if True:
        import gc
        from nebula.broker.settings import BrokerSettings
        from nebula.cli import programs

        def run(broker):
            broker.close()
            print(gc.get_threshold()[0])

        programs._run = run
        programs.run_broker(BrokerSettings(), print, print)
    """
    command = [sys.executable, "-c", program]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)

    assert ended.stdout == "50000\n", ended.stderr


def test_broker_that_was_started_ends_by_its_signal() -> None:
    with running_process("broker", "--port", "0", "--store", "memory") as (broker, line):
        assert line["event"] == "listening"
        broker.terminate()

        assert broker.wait(DEADLINE) == 0


@pytest.mark.parametrize("start", [[sys.executable, "-m", "nebula"], [str(SCRIPT)]], ids=["module", "script"])
def test_each_way_to_start_runs_the_same_command(url: str, start: list[str]) -> None:
    if not Path(start[0]).exists():
        pytest.fail("the script nebula is not installed next to Python")

    ended = subprocess.run(
        [*start, "call", "shop", "price", "item=cup"],
        env=environment({"NEBULA_BROKER": url}),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )

    assert json.loads(ended.stdout) == "1.25"
