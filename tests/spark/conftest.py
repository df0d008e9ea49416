"""One real engine for all tests of this session that do not need one of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.engine import Engine, engine


@pytest.fixture(scope="session")
def shared_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the shared engine: its log, and the results of its jobs."""
    return tmp_path_factory.mktemp("shared-engine")


@pytest.fixture(scope="session")
def shared_engine(shared_state: Path) -> Iterator[Engine]:
    """An engine with the options that most tests want: starting one costs seconds.

    Each module gives its jobs names that no other module uses. A test may kill the engine or stop its Spark;
    it leaves one that works. With several workers, one of them runs all modules that name this fixture.
    """
    with engine(shared_state) as running:
        running.until_ready()
        yield running
