"""The reference of public names says what docstrings say; `python -m tests.docs.test_api_pages` writes it."""

from __future__ import annotations

import functools

import pytest

from tests.api_pages import FOLDER, NAMES, Reference, members


@functools.cache
def _reference() -> Reference:
    # Not when the module is imported: to read all sources takes seconds, and each worker collects all tests.
    return Reference()


@pytest.mark.parametrize("package", NAMES)
def test_page_says_what_the_docstrings_say(package: str) -> None:
    assert (FOLDER / f"{package}.md").read_text() == _reference().page(package), (
        "run: python -m tests.docs.test_api_pages"
    )


@pytest.mark.parametrize("package", NAMES)
def test_each_public_name_has_a_docstring_and_so_has_each_method(package: str) -> None:
    things = [each for _, thing in _reference().things(package) for each in (thing, *members(thing))]

    assert [each.path for each in things if each.docstring is None] == []


def test_there_is_a_page_for_each_package_and_no_other() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == set(NAMES)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for package in NAMES:
        (FOLDER / f"{package}.md").write_text(_reference().page(package))
