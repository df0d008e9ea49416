"""The page on `nebula doctor` has each check that there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "doctor.md"
CODE = ROOT / "nebula" / "cli" / "doctor"

_AREAS = "broker|versions|disk|limits|certificates|rights|queues|services|settings"
# Verbs of the broker have such names, too.
_VERBS = {"broker.status", "broker.machine", "rights.check", "settings.check", "queues.list", "rights.reload"}


def checks_of_code() -> set[str]:
    texts = "".join(file.read_text() for file in CODE.glob("*.py"))
    found = set(re.findall(rf'"((?:{_AREAS})\.[a-z]+|clocks)"', texts))
    return {name for name in found if not name.endswith(".toml")} - _VERBS


def checks_of_page() -> list[str]:
    return re.findall(rf"^\| `((?:{_AREAS})\.[a-z]+|clocks)` \|", PAGE.read_text(), re.MULTILINE)


def test_page_has_each_check_once() -> None:
    named = checks_of_page()

    assert sorted(named) == sorted(checks_of_code())
    assert len(named) > 25
