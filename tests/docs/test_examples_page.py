"""The page of the protocol's examples is made from the transcripts."""

from __future__ import annotations

from tests.conformance import examples
from tests.conformance.cases import read_cases


def test_page_of_examples_is_as_the_transcripts_and_the_broker_are() -> None:
    page = examples.PAGE.read_text(encoding="utf-8")

    assert page == examples.page(), "python -m tests.conformance.examples writes it"


def test_every_example_has_a_section_and_every_section_an_example() -> None:
    cases = read_cases(examples.ROOT / "tests" / "conformance")

    assert {case.example[0] for case in cases if case.example} == set(examples.SECTIONS)
