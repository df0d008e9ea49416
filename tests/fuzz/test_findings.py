"""Every input that the fuzzer begins with, and all that it has found: none finds anything any more."""

from __future__ import annotations

import pytest

from tests.fuzz import folders
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_is_found_by_any_input_that_is_known(name: str) -> None:
    inputs = folders.inputs(name)

    assert inputs
    for file in inputs:
        try:
            TARGETS[name](file.read_bytes())
        except BaseException as error:
            error.add_note(f"the input: {file}")
            raise


def test_every_folder_is_that_of_a_target() -> None:
    there = {each.name for part in ("corpus", "findings") for each in (folders.HERE / part).glob("*/")}

    assert there <= set(TARGETS)
