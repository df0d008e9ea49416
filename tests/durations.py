"""CPU and wall time of each test: ``pytest -p tests.durations --durations-to FILE``, and a table of them.

A test's CPU time is that of this process and of the child processes that ended while it ran; tests that start
Spark also count the child processes that still run. A process that another one left behind when it was killed
is missed. Wall time depends on the load of the machine; CPU time hardly does.

``python -m tests.durations FILE`` prints the folders, the modules and the tests that take longest.
``--order`` writes `long_modules.txt`: the modules that several workers begin with, the longest first.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil
import pytest


class Duration(NamedTuple):
    """What one test took, its fixtures included, in seconds."""

    test: str
    cpu: float
    wall: float

    @property
    def module(self) -> str:
        return self.test.partition("::")[0]

    @property
    def folder(self) -> str:
        return "/".join(self.module.split("/")[:2])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--durations-to", metavar="FILE", help="append the times of each test to FILE")


def _cpu_seconds(item: pytest.Item) -> float:
    spent: Any = os.times()
    seconds: float = spent.user + spent.system + spent.children_user + spent.children_system
    # To look through all processes takes longer than most tests.
    if item.get_closest_marker("spark"):
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                seconds += sum(child.cpu_times()[:4])
    return seconds


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Append one line for each test; a short line is appended whole, so workers may share the file."""
    cpu, wall = _cpu_seconds(item), time.monotonic()
    try:
        return (yield)
    finally:
        if path := item.config.getoption("durations_to"):
            took = (item.nodeid, round(_cpu_seconds(item) - cpu, 3), round(time.monotonic() - wall, 3))
            with Path(path).open("a") as file:
                file.write(json.dumps(took) + "\n")


ORDER: Final = Path(__file__).parent / "long_modules.txt"
# A module as short as this may be the last one without making the others wait.
_LONG_SECONDS: Final = 8.0


def _write_order(durations: list[Duration]) -> None:
    seconds: dict[str, float] = collections.defaultdict(float)
    for one in durations:
        seconds[one.module] += one.wall
    modules = sorted(
        (name for name in seconds if seconds[name] >= _LONG_SECONDS), key=lambda name: -seconds[name]
    )
    ORDER.write_text("".join(f"{name}\n" for name in modules))


def _print_totals(title: str, durations: list[Duration], key: str, most: int) -> None:
    cpu: dict[str, float] = collections.defaultdict(float)
    wall: dict[str, float] = collections.defaultdict(float)
    tests: collections.Counter[str] = collections.Counter()
    for one in durations:
        name = getattr(one, key)
        cpu[name] += one.cpu
        wall[name] += one.wall
        tests[name] += 1
    print(f"\n{'CPU s':>8} {'wall s':>8} {'tests':>6}  {title}")
    for name, seconds in sorted(wall.items(), key=lambda one: -one[1])[:most]:
        print(f"{cpu[name]:8.1f} {seconds:8.1f} {tests[name]:6}  {name}")
    print(f"{sum(cpu.values()):8.1f} {sum(wall.values()):8.1f} {tests.total():6}  in all")


def main() -> None:
    """Print what takes longest."""
    parser = argparse.ArgumentParser(description="Folders, modules and tests by wall time.")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--most", type=int, default=40, help="lines of each table")
    parser.add_argument("--order", action="store_true", help="write the order of modules that take long")
    options = parser.parse_args()
    durations = [
        Duration(*json.loads(line)) for file in options.files for line in file.read_text().splitlines()
    ]
    if options.order:
        _write_order(durations)
        return
    for title, key in (("folder", "folder"), ("module", "module"), ("test", "test")):
        _print_totals(title, durations, key, options.most)


if __name__ == "__main__":
    main()
