"""Exit statuses and the sentences that go with them."""

from __future__ import annotations

import subprocess

import pytest

from nebula import sync
from nebula.cli.exits import Exit, exit_of, sentence_of, unwrapped
from nebula.errors import CallTimeout, NebulaError, NoResponder, RemoteError, ServerError, SettingsError
from tests.cli.programs import NEBULA, environment


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


def test_failure_that_comes_wrapped_is_found_where_it_is_alone() -> None:
    error = NoResponder("/queue/x", "rejected-no-consumer")
    two = ExceptionGroup("", [error, ValueError()])

    assert unwrapped(ExceptionGroup("", [ExceptionGroup("", [error])])) is error
    assert unwrapped(two) is two


def test_of_failures_that_were_all_foreseen_the_first_is_told() -> None:
    first, second = CallTimeout("x"), ServerError("y")
    wrapped = ExceptionGroup("", [first])

    assert unwrapped(ExceptionGroup("", [wrapped, ExceptionGroup("", [second, first])])) is first


@pytest.mark.parametrize("command", ["services", "top"])
def test_reader_that_has_gone_ends_a_command_without_a_word(url: str, command: str) -> None:
    words = ("services", "--watch") if command == "services" else ("top", "--interval", "0.2")
    process = subprocess.Popen(
        [*NEBULA, *words],
        env=environment({"NEBULA_BROKER": url}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        with sync.Client(url) as client:
            while process.poll() is None:
                # Something to be told.
                client.publish("X/nebula.services.bystander.i1", _someone(), headers={"ephemeral": "true"})
                client.publish("X/nebula.services.bystander.i1", b"")
        said = process.stderr.read()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()  # type: ignore[union-attr]

    assert (process.returncode, said) == (1, "")


def _someone() -> dict[str, str]:
    return {"service": "bystander", "name": "i1"}
