"""The console's calls of the broker's verbs are those that the broker has."""

from __future__ import annotations

from pathlib import Path

from tests.console.broker_calls import CALLS, broker_calls


def test_console_calls_the_verbs_that_the_broker_describes(tmp_path: Path) -> None:
    described, written = broker_calls(tmp_path), CALLS.read_text(encoding="utf-8")

    assert described == written, "run `make console`, and commit console/src/broker.ts and what it builds to"
