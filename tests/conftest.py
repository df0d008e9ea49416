"""What every test shares: the event loops of async tests, an honest count of skips, and who runs what."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import structlog
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # it has no types

_ALLOWED_SKIPS = Path(__file__).parent / "allowed_skips.txt"
_FOREIGN_BROKERS = ("rabbitmq", "activemq")
_OF_SPARK = ("tests/spark/", "tests/services/test_demo.py", "tests/services/test_flights.py")


@pytest.fixture(
    params=[
        pytest.param(("asyncio", {"use_uvloop": True}), id="asyncio"),
        pytest.param(("trio", {}), id="trio"),
    ]
)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Async tests run on asyncio with uvloop, and on trio. Override it where only one makes sense."""
    backend: tuple[str, dict[str, Any]] = request.param
    return backend


def pytest_configure() -> None:
    """Log plain tracebacks: drawing one with its variables takes seconds, in which nothing else is done."""
    renderer = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], renderer])


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Caches are these tests' own: an archive of Java's classes that one makes is there for later ones."""
    ours = tmp_path_factory.getbasetemp()
    # Where there are workers, each has a folder in that of all.
    shared = ours.parent if "PYTEST_XDIST_WORKER" in os.environ else ours
    os.environ["NEBULA_CACHE"] = str(shared / "cache")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """In CI a skipped test is a failure, unless `allowed_skips.txt` lists it with its reason."""
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI") == "true":
        allowed = [line.split("#")[0].strip() for line in _ALLOWED_SKIPS.read_text().splitlines()]
        if item.nodeid not in allowed:
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} was skipped, and allowed_skips.txt does not list it"


class _Sharing(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """Whole files for each worker, so that what a module shares is made once; one worker has all of Spark.

    Spark takes the cores that there are and gigabytes besides: two of them would be in each other's way. And
    a foreign broker takes seconds to start: one worker has all of it, whichever files it is in.
    """

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        if file.startswith("tests/foreign/"):
            return next((broker for broker in _FOREIGN_BROKERS if broker in nodeid), file)
        return "spark" if file.startswith(_OF_SPARK) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share the tests out to the workers so."""
    config.option.loadscopereorder = False  # the order is that of below
    return _Sharing(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files that take long go first where there are workers: else the last of them keeps one alone busy."""
    if hasattr(config, "workerinput"):
        spark, slow = (
            {one.path for one in items if one.get_closest_marker(mark)} for mark in ("spark", "slow")
        )
        items.sort(key=lambda one: (one.path not in spark, one.path not in slow))
