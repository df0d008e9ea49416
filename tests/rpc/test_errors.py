"""Codes of `error` replies, and what a caller makes of a peer's errors."""

from __future__ import annotations

import re
from typing import Any

import pytest

from nebula.rpc.envelope import Envelope
from nebula.rpc.errors import CODES, VerbError, remote_error


def test_codes_are_kebab_case_and_explained() -> None:
    for code, row in CODES.items():
        assert code == row.code
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code)
        assert row.meaning.endswith(".")


def test_retryable_codes_are_those_that_the_protocol_stars() -> None:
    retryable = {code for code, row in CODES.items() if row.is_retryable}

    assert retryable == {"busy", "deadline-exceeded", "engine-unavailable", "engine-lost", "out-of-memory"}


@pytest.mark.parametrize("code", ["", "Sold out", "soldOut", "sold_out", "-sold", "sold-"])
def test_verb_error_refuses_a_code_that_is_not_kebab_case(code: str) -> None:
    with pytest.raises(ValueError, match="not kebab-case"):
        VerbError(code, "text")


def test_verb_error_is_retryable_if_its_code_is_and_it_does_not_say_otherwise() -> None:
    assert VerbError("busy", "later").retryable
    assert not VerbError("busy", "never", retryable=False).retryable
    assert not VerbError("sold-out", "gone").retryable
    assert VerbError("sold-out", "gone", retryable=True).retryable


@pytest.mark.parametrize(
    ("envelope", "header_code", "expected"),
    [
        (
            Envelope("error", {"code": "busy", "message": "full", "details": [1], "retryable": True}, "full"),
            "busy",
            ("busy", "full", [1], True),
        ),
        (Envelope("error", {"code": "sold-out"}, "none left"), None, ("sold-out", "none left", None, False)),
        (Envelope("error", {"code": "busy"}), None, ("busy", "", None, True)),
        (Envelope("error", ["a", "b"], "oops"), None, ("error", "oops", None, False)),
        (Envelope("error", None, "oops"), "internal", ("internal", "oops", None, False)),
        (
            Envelope("error", {"code": 7, "message": "m", "retryable": "yes"}),
            None,
            ("error", "m", None, False),
        ),
        (Envelope("error"), None, ("error", "", None, False)),
        (Envelope("error", "[]", "text form", is_text=True), "busy", ("busy", "text form", None, True)),
    ],
)
def test_error_reply_of_any_shape_is_understood(
    envelope: Envelope, header_code: str | None, expected: tuple[Any, ...]
) -> None:
    error = remote_error(envelope, header_code)

    assert (error.code, error.message, error.details, error.retryable) == expected
