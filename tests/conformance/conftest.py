"""The option that rewrites transcripts: `pytest tests/conformance --rewrite-transcripts`."""

from __future__ import annotations

import pytest

_OPTION = "--rewrite-transcripts"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option. It exists where this folder or a file of it is named on the command line."""
    parser.addoption(
        _OPTION, action="store_true", help="write what peers hear into the transcripts; review it as a diff"
    )


@pytest.fixture
def is_rewriting(pytestconfig: pytest.Config) -> bool:
    """Whether transcripts are to be rewritten instead of compared."""
    return bool(pytestconfig.getoption(_OPTION, default=False))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Rewrite in memory, where nothing depends on time, and test nothing meanwhile."""
    if config.getoption(_OPTION, default=False):
        rewriting = [item for item in items if "is_rewriting" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=[item for item in items if item not in rewriting])
        items[:] = rewriting
