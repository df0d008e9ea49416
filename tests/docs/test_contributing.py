"""The lists of CONTRIBUTING.md name files that exist and that belong to their examples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

LISTS = {
    title: (example, body)
    for title, example, body in re.findall(
        r"^### (.+?) \(example: `(.+?)`\)\n(.*?)(?=^### |\Z)", PAGE, re.MULTILINE | re.DOTALL
    )
}


def places(text: str) -> list[str]:
    return re.findall(r"`((?:nebula|tests|docs)/[\w./-]+\w/?)`", text)


def test_lists_are_those_that_contributors_ask_for() -> None:
    kinds = [
        "header",
        "limit",
        "kind of destination",
        "option of destinations",
        "verb of the broker",
        "metric",
        "state of jobs",
    ]
    assert [title.partition(" ")[2] for title in LISTS] == kinds


@pytest.mark.parametrize("place", sorted(set(places(PAGE))))
def test_place_exists(place: str) -> None:
    assert (ROOT / place).exists()


@pytest.mark.parametrize("title", LISTS)
def test_most_files_of_a_list_know_its_example(title: str) -> None:
    example, body = LISTS[title]
    word = re.split(r"[._-]", example)[0 if "." in example else -1]
    named = [ROOT / place for place in places(body) if (ROOT / place).is_file()]
    knowing = [path for path in named if word in path.read_text(encoding="utf-8").lower()]

    assert len(knowing) * 3 >= len(named) * 2, [path.name for path in named if path not in knowing]
