"""Shared by all tests: event loops, a count of skips in CI, and which worker runs which tests."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # it has no types

from nebula.compiled import is_compiled

_ALLOWED_SKIPS = Path(__file__).parent / "allowed_skips.txt"
# Each test in this folder is marked `foreign`: a test of tests/project compares.
_FOREIGN = Path(__file__).parent / "foreign"
_COMPILED = Path(__file__).parent / "compiled"
_FOREIGN_BROKERS = ("rabbitmq", "activemq")
# Workers that have Spark at a time.
_MOST_SPARKS = 2
# Two engines may start at the same time on few cores.
_SPARK_SECONDS = 240
_MAKES_ARCHIVE = "test_archive.py"
_LONG_MODULES = Path(__file__).parent / "long_modules.txt"
# The fixture of tests/spark/conftest.py, and the name of the work unit of all files that use it.
_SHARED_ENGINE = "shared_engine"


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
    """What holds of all examples holds on a busy machine."""
    settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("unhurried")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without garbage collection, and keep what was collected out of later ones.

    Millions of objects stay until the end. Looking through them again and again takes a sixth of the time of
    collection, and half a second of each `gc.collect()` of a test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even collect the tests with foreign brokers where the marks exclude them: one in eight.

    Nor those that compare the builds where there is one.
    """
    if collection_path == _COMPILED:
        return None if is_compiled() else True
    return True if collection_path == _FOREIGN and "not foreign" in config.option.markexpr else None


@pytest.fixture(scope="session", autouse=True)
def environment(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Environment of the programs that tests start: their own caches, and a Java that starts quickly.

    An archive of Java's classes that one test makes is there for later ones. Code that is optimised less, and
    garbage that is collected by one thread, take a Spark of a few jobs half of the CPU time.
    """
    ours = tmp_path_factory.getbasetemp()
    # Where there are workers, each has a folder in that of all.
    shared = ours.parent if "PYTEST_XDIST_WORKER" in os.environ else ours
    os.environ["NEBULA_CACHE"] = str(shared / "cache")
    os.environ["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """In CI a skipped test is a failure, unless `allowed_skips.txt` lists it with its reason."""
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    # A worker can send only what can be encoded, and the log of a test may hold any text of a peer.
    report.sections = [
        (title, text.encode(errors="backslashreplace").decode()) for title, text in report.sections
    ]
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI") == "true":
        allowed = [line.split("#")[0].strip() for line in _ALLOWED_SKIPS.read_text().splitlines()]
        if item.nodeid not in allowed:
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} was skipped, and allowed_skips.txt does not list it"


class _Sharing(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """Whole files for each worker, so that what a module shares is made once. At most two workers have Spark.

    Spark uses all cores and gigabytes of memory: more of them would slow each other down. A foreign broker
    takes seconds to start, so one worker runs all its tests, whichever files they are in; the same holds for
    the engine that modules share. The pages of the docs share nothing: together they would keep one worker
    busy for minutes.
    """

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        if file.startswith("tests/foreign/"):
            return next((broker for broker in _FOREIGN_BROKERS if broker in nodeid), file)
        if _shares_engine(file):
            return _SHARED_ENGINE
        return nodeid if file == "tests/docs/test_docs.py" else file

    def _assign_work_unit(self, node: Any) -> None:
        if sum(self._has_spark(other) for other in self.nodes if other is not node) >= _MOST_SPARKS:
            others = (scope for scope in self.workqueue if not _is_of_spark(scope))
            if (first := next(others, None)) is not None:
                self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)

    def _has_spark(self, node: Any) -> bool:
        work = self.assigned_work[node]
        return any(_is_of_spark(scope) and not all(done.values()) for scope, done in work.items())


@functools.cache
def _is_of_spark(scope: str) -> bool:
    """Whether a file has tests that start Spark: they are marked so."""
    return scope == _SHARED_ENGINE or "mark.spark" in _text(scope.partition("::")[0])


@functools.cache
def _shares_engine(file: str) -> bool:
    return file.startswith("tests/spark/") and _SHARED_ENGINE in _text(file)


def _text(file: str) -> str:
    path = Path(__file__).parents[1] / file
    return path.read_text() if path.is_file() else ""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Use our own way to distribute tests among the workers."""
    config.option.loadscopereorder = False  # the order is that of below
    return _Sharing(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give Spark time. Where there are workers, begin with the modules that take long: else one is last.

    Those with Spark go before all others, since only two workers have Spark at a time; then those that
    `long_modules.txt` lists, in its order. The very first one makes an archive of Java's classes, from which
    the other engines start in half the time.
    """
    for one in items:
        if one.get_closest_marker("spark") and not one.get_closest_marker("timeout"):
            one.add_marker(pytest.mark.timeout(_SPARK_SECONDS))
    if hasattr(config, "workerinput"):
        spark, slow = (
            {one.path for one in items if one.get_closest_marker(mark)} for mark in ("spark", "slow")
        )
        root = Path(__file__).parents[1]
        rank = {root / line: place for place, line in enumerate(_LONG_MODULES.read_text().splitlines())}
        items.sort(
            key=lambda one: (
                one.path.name != _MAKES_ARCHIVE,
                one.path not in spark,
                rank.get(one.path, len(rank)),
                one.path not in slow,
            )
        )
