"""No rule of the protocol is without a test: each case of E, decision of D and clause of A, by name.

`SUBJECTS` lists them. A transcript covers what its name begins with (`E 41, D 5: …`); what is tested
elsewhere stands in elsewhere.toml, with the tests' names.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conformance.cases import read_cases

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

OPENING = ["CONNECT", "STOMP", "DISCONNECT"]
MESSAGING = ["SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK"]
TRANSACTIONS = ["BEGIN", "COMMIT", "ABORT"]
CLAUSES = [
    *(f"A.1.{rule}" for rule in range(1, 7)),
    *("A.2", "A.3", "A.4", "A.5"),
    *(f"A.6 {frame}" for frame in (*OPENING, *MESSAGING, *TRANSACTIONS)),
    *(f"A.7 {frame}" for frame in ("CONNECTED", "MESSAGE", "RECEIPT", "ERROR")),
    "A.8",
    *(f"A.9.{rule}" for rule in range(1, 6)),
    *(f"A.10 {mode}" for mode in ("auto", "client", "client-individual", "NACK")),
    *(f"A.11.{rule}" for rule in range(1, 7)),
]
# D.39 is about a cache that we do not have yet.
SUBJECTS = [
    *(f"E {number}" for number in range(1, 61)),
    *(f"D {number}" for number in range(1, 51) if number != 39),
    *CLAUSES,
]
# What transcripts may be about besides: clauses of B, rows of G, other cases.
OTHERS = ("B.", "G ", "Other")

# The cases that the protocol marks with M: they are about MaXaM.
MAXAM = {f"E {number}" for number in (22, 29, 33, 35, 36, *range(38, 54))}

CASES = read_cases(HERE)
TRANSCRIPTS = {subject for case in CASES for subject in case.subjects}
ELSEWHERE: dict[str, list[str]] = tomllib.loads((HERE / "elsewhere.toml").read_text())


@pytest.mark.parametrize("subject", SUBJECTS)
def test_everything_has_a_transcript_or_a_test_elsewhere(subject: str) -> None:
    assert subject in TRANSCRIPTS or ELSEWHERE.get(subject)


@pytest.mark.parametrize("subject", [subject for subject in SUBJECTS if subject.startswith("E ")])
def test_each_case_is_played_in_its_profile(subject: str) -> None:
    profiles = {profile for case in CASES if subject in case.subjects for profile in case.profiles}

    assert ("maxam" if subject in MAXAM else "standard") in profiles or subject in ELSEWHERE


def test_transcripts_and_the_list_are_about_what_exists() -> None:
    named = {subject for subject in TRANSCRIPTS if not subject.startswith(OTHERS)} | set(ELSEWHERE)

    assert named <= set(SUBJECTS)


def test_exceptions_of_other_brokers_are_where_these_are_tested() -> None:
    """`tests/foreign` plays the cases about STOMP itself, and stops at the first difference."""
    told = [(case, [broker for broker, _why in case.exceptions]) for case in CASES]

    assert [case.name for case, brokers in told if brokers and not case.is_of_stomp] == []
    assert [case.name for case, brokers in told if len(set(brokers)) != len(brokers)] == []


def test_every_test_elsewhere_exists() -> None:
    wanted = {test for tests in ELSEWHERE.values() for test in tests}
    files = sorted({test.partition("::")[0] for test in wanted})

    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
    )
    found = {line.partition("[")[0] for line in collected.stdout.splitlines() if "::" in line}

    assert wanted <= found | set(collected.stdout.splitlines())
