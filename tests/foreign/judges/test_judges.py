"""Clients that we did not write, in several languages, find nothing to complain about in our broker.

Each judge is a program in the client's own language, see `checks.py`. It makes its checks once, and each test
reads what it said of one of them.
"""

from __future__ import annotations

import pytest

from tests.foreign.judges.checks import CHECKS, JUDGES, VERSIONS, not_offered, offered
from tests.foreign.judges.conftest import Trials

# The first one waits for the judges to be installed.
pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]

_RUNS = [(judge, version) for judge in JUDGES for version in VERSIONS]


@pytest.mark.parametrize(
    ("judge", "version", "check"),
    [
        pytest.param(judge, version, check, id=f"{judge}, STOMP {version}, {check}")
        for judge, version in _RUNS
        for check in offered(judge, version)
    ],
)
def test_foreign_client_is_content(trials: Trials, judge: str, version: str, check: str) -> None:
    trial = trials[judge, version]

    assert check in trial.results, f"{judge} says nothing of {check}:\n{trial.explain()}"
    assert trial.results[check].ok, trial.results[check].detail


@pytest.mark.parametrize(("judge", "version"), _RUNS)
def test_foreign_client_leaves_out_only_what_is_listed(trials: Trials, judge: str, version: str) -> None:
    assert set(trials[judge, version].results) == set(CHECKS) - set(not_offered(judge, version))


def test_browser_page_of_a_strange_origin_is_kept_out(trials: Trials) -> None:
    result = trials["chromium", "stranger"].results["kept-out"]

    assert result.ok, result.detail
