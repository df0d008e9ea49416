"""The page of other brokers says what the suite that runs over them checks."""

from __future__ import annotations

from importlib import import_module

from tests.foreign.lacks import LACKS, PAGE, table


def test_page_of_brokers_has_the_table() -> None:
    assert table() in PAGE.read_text(encoding="utf-8"), "python -m tests.foreign.lacks writes it"


def test_what_shows_a_lack_is_a_test_that_runs_over_the_brokers() -> None:
    suites = ("rpc", "streams", "discovery", "jobs", "sync", "values")
    modules = [import_module(f"tests.foreign.test_{suite}_on_brokers") for suite in suites]
    names = {name for module in modules for name in vars(module)}

    assert [name for lack in LACKS for name in lack.tests if name not in names] == []
