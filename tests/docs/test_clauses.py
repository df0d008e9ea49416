"""Each rule of the protocol has code and a test, and each rule that they name stands on the page."""

from __future__ import annotations

import re

import pytest

from tests import clauses

RULES = clauses.rules()
# Code and tests are read when a test first asks, not when each worker collects this module.


def test_no_rule_is_defined_twice() -> None:
    assert len(RULES) == len(set(RULES))


@pytest.mark.parametrize("rule", [rule for rule in RULES if not rule.startswith("E.")])
def test_rule_has_code(rule: str) -> None:
    assert clauses.code().get(rule), f"no comment or docstring of nebula/ names {rule}"


@pytest.mark.parametrize("rule", RULES)
def test_rule_has_a_test(rule: str) -> None:
    assert clauses.tests().get(rule), f"no transcript or test names {rule}"


def test_rules_that_code_and_tests_name_are_on_the_page() -> None:
    known = {*RULES, "A.1", "A.9", "A.11"}
    unknown = {
        rule: places
        for rule, places in [*clauses.code().items(), *clauses.tests().items()]
        if rule not in known
    }

    assert unknown == {}


def test_page_of_clauses_is_as_the_code_and_the_tests_are() -> None:
    assert clauses.PAGE.read_text(encoding="utf-8") == clauses.page(), "python -m tests.clauses writes it"


def test_nothing_points_to_texts_outside_the_repository() -> None:
    outside = re.compile(r"PROTOCOL(?:\.md)? [A-G]\b|PROTOCOL\.md|DESIGN\.md|SPARK \d|\.\./shared")
    found = [
        str(path.relative_to(clauses.ROOT))
        for folder in ("nebula", "tests", "docs", "services", "benchmarks")
        for path in sorted((clauses.ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".md", ".txt", ".toml")
        and path.name != "test_clauses.py"
        and outside.search(path.read_text(encoding="utf-8"))
    ]

    assert found == []
