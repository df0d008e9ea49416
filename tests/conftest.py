"""What every test shares: the event loops that async tests run on, and an honest count of skips."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

_ALLOWED_SKIPS = Path(__file__).parent / "allowed_skips.txt"


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
