"""Codes of `error` replies, and how a caller reads a peer's errors (G.error-codes)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from nebula.errors import RemoteError
from nebula.rpc.contract.verbs import VerbOptions
from nebula.rpc.errors import CODES, VerbError, as_declared, meaning_of
from nebula.rpc.service.responder import Responder
from nebula.rpc.wire.envelope import Envelope
from nebula.rpc.wire.replies import remote_error


def test_codes_are_kebab_case_and_explained() -> None:
    for code, row in CODES.items():
        assert code == row.code
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code)
        assert row.meaning.endswith(".")


def test_retryable_codes_are_those_that_the_protocol_stars() -> None:
    retryable = {code for code, row in CODES.items() if row.is_retryable}

    assert retryable == {
        "busy",
        "deadline-exceeded",
        "engine-unavailable",
        "engine-lost",
        "out-of-memory",
        "upstream-timeout",
        "upstream-unavailable",
    }


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


class OutOfStock(VerbError):
    """There are not so many left.

    And more of it.
    """

    code = "out-of-stock"


class Closed(VerbError):
    code = "closed"
    retryable = True


def test_declared_error_takes_its_code_from_its_class() -> None:
    error = OutOfStock("two are left", details={"left": 2})

    assert (error.code, error.message, error.details) == ("out-of-stock", "two are left", {"left": 2})
    assert not error.retryable
    assert OutOfStock(retryable=True).retryable
    assert Closed().retryable
    assert not Closed(retryable=False).retryable


def test_declared_error_without_a_message_says_what_its_docstring_does() -> None:
    assert OutOfStock().message == "There are not so many left."
    assert Closed().message == "closed"
    assert meaning_of(OutOfStock) == "There are not so many left."


def test_declared_error_takes_no_second_code() -> None:
    with pytest.raises(TypeError, match="the message alone"):
        OutOfStock("sold-out", "none left")


def test_error_without_a_code_is_refused() -> None:
    with pytest.raises(TypeError, match="a code and a message"):
        VerbError("none left")


def test_class_with_an_odd_code_is_refused() -> None:
    with pytest.raises(ValueError, match="not kebab-case"):
        type("Odd", (VerbError,), {"code": "Sold Out"})


class Busy(VerbError):
    code = "busy"


class Nameless(VerbError):
    pass


class SoldOut(VerbError):
    code = "out-of-stock"


class HTTPFailed2Often(Exception):
    """An error class of another library."""


def test_foreign_error_class_is_refused_with_a_remedy() -> None:
    app = Responder("shop")
    kinds: Any = [HTTPFailed2Often]

    with pytest.raises(TypeError, match=r'VerbError\): code = "http-failed-2-often"`'):
        app.verb(errors=kinds)
    with pytest.raises(
        ValueError, match=r'Nameless has no code; write `class Nameless\(VerbError\): code = "nam'
    ):
        app.verb(errors=[Nameless])
    kinds = OutOfStock
    with pytest.raises(TypeError, match=r"write errors=\[OutOfStock\]"):
        app.verb(errors=kinds)
    kinds = [OutOfStock("none")]
    with pytest.raises(TypeError, match="give the class"):
        app.verb(errors=kinds)


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        ([Busy], "means something already"),
        ([Nameless], "has no code"),
        ([OutOfStock, SoldOut], "two of them"),
    ],
)
def test_errors_that_callers_could_not_distinguish_are_refused(
    errors: list[type[VerbError]], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        VerbOptions(errors=tuple(errors))


def test_answered_error_becomes_the_declared_one_by_its_code() -> None:
    answered = RemoteError("out-of-stock", "two are left", details=[2], retryable=True)

    error = as_declared(answered, [Closed, OutOfStock])

    assert isinstance(error, OutOfStock)
    assert (error.message, error.details, error.retryable) == ("two are left", [2], True)
    assert error.__cause__ is answered
    assert as_declared(answered, [Closed]) is answered


def test_declared_error_with_a_constructor_of_its_own_can_still_be_read() -> None:
    class Missing(VerbError):
        code = "missing"

        def __init__(self, what: str, where: str) -> None:
            super().__init__(f"no {what} in {where}")

    assert Missing("cat", "box").message == "no cat in box"
    assert str(as_declared(RemoteError("missing", "no cat in box"), [Missing])) == "no cat in box"
