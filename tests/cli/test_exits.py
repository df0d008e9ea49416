"""Exit statuses and the sentences that go with them."""

from __future__ import annotations

import pytest

from nebula.cli.exits import Exit, exit_of, foreseen_in, sentence_of
from nebula.errors import CallTimeout, NebulaError, NoResponder, RemoteError, ServerError, SettingsError


@pytest.mark.parametrize(
    "error",
    [
        RemoteError("sold-out", "\x1b]0;owned\x07"),
        RemoteError("bad-parameters", "\x1b[2J", details=[{"field": "\x1b", "message": "\x07"}, "\x9b2J"]),
        ServerError("\x1b[2J"),
    ],
)
def test_what_a_stranger_says_is_only_text(error: NebulaError) -> None:
    sentence = sentence_of(error)

    assert "\\x1b" in sentence
    assert all(line.isprintable() for line in sentence.split("\n"))


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (SettingsError("x"), Exit.USAGE),
        (RemoteError("sold-out", "x"), Exit.FAILED),
        (CallTimeout("x"), Exit.UNREACHED),
    ],
)
def test_status_says_whose_fault_it_was(error: NebulaError, status: Exit) -> None:
    assert exit_of(error) is status


def test_failure_that_comes_wrapped_is_found_and_a_bug_is_none() -> None:
    error = NoResponder("/queue/x", "rejected-no-consumer")

    assert foreseen_in(ExceptionGroup("", [ExceptionGroup("", [error])])) is error
    assert foreseen_in(ExceptionGroup("", [error, ValueError()])) is None
