"""Each case of the transcripts, in memory and over TCP."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.player import cases, needs_memory, play
from tests.conformance.worlds import InMemory, OverTcp
from tests.faults.served import serve

CASES = cases(Path(__file__).parent)


@pytest.mark.parametrize("name", CASES)
def test_in_memory(name: str) -> None:
    play(CASES[name], InMemory())


@pytest.mark.parametrize("name", [name for name, text in CASES.items() if not needs_memory(text)])
def test_over_tcp(name: str) -> None:
    with serve() as broker:
        play(CASES[name], OverTcp(broker))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("connect a 1.2\na> SEND destination:/queue/x; receipt:r | x\na< nothing", "heard something"),
        ("connect a 1.2\na> SEND destination:/queue/x; receipt:r | x", "heard more"),
        ("connect a 1.2\na< RECEIPT", "hears nothing"),
        ("connect a 1.2\na> SEND destination:/queue/x; receipt:r | x\na< RECEIPT receipt-id:q", "receipt-id"),
        (
            "connect a 1.2\na> SEND destination:/queue/x; receipt:r | x\na< RECEIPT !disposition",
            "disposition",
        ),
        ("connect a 1.2\na> BEGIN transaction:t\na< closed", "ERROR"),
        ("connect a 1.2\na says hello", "no word"),
    ],
)
def test_transcript_that_is_not_what_happens_fails(text: str, fault: str) -> None:
    with pytest.raises(AssertionError, match=fault):
        play(text, InMemory())
