"""The player: a transcript that is wrong goes red, and rewriting mends it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.cases import Case, read_cases, replace_case
from tests.conformance.player import Different, play, rewritten
from tests.conformance.stage import WORDS
from tests.conformance.worlds import InMemory

HERE = Path(__file__).parent
CASES = read_cases(HERE)
SENT = "connect a 1.2\na> SEND destination:/queue/x; receipt:r | x\n"
RECEIPT = "a< RECEIPT receipt-id:r; disposition:accepted; durable:false; consumers:0"
SUBSCRIBED = "connect a 1.2\na> SUBSCRIBE id:s; destination:/queue/x\na> SEND destination:/queue/x; x:y | z\n"


def case_of(text: str) -> Case:
    return Case("E 1: invented", text, Path())


def rewrite(text: str) -> str:
    return rewritten(text, InMemory(case_of(text), "standard"))


# Each of these is wrong, and what is right stands next to it.
WRONG = [
    (f"{SENT}a< nothing", f"{SENT}{RECEIPT}"),
    (SENT, f"{SENT.rstrip()}\n{RECEIPT}\n"),
    ("connect a 1.2\na< RECEIPT", "connect a 1.2"),
    (f"{SENT}a< RECEIPT receipt-id:q", f"{SENT}a< RECEIPT receipt-id:r"),
    (f"{SENT}a< RECEIPT !disposition", f"{SENT}a< RECEIPT disposition:accepted"),
    (f"{SENT}a< RECEIPT receipt-id:*; colour:*", f"{SENT}a< RECEIPT receipt-id:*; !colour"),
    (f"{SENT}a< RECEIPT | body", f"{SENT}a< RECEIPT"),
    (f"{SENT}a< ERROR", f"{SENT}{RECEIPT}"),
    (f"{SENT}{RECEIPT}\na< closed", f"{SENT}{RECEIPT}"),
    (f"{SUBSCRIBED}a< MESSAGE x:y | w", f"{SUBSCRIBED}a< MESSAGE x:y | z"),
    (f"{SUBSCRIBED}a< MESSAGE x:y", f"{SUBSCRIBED}a< MESSAGE x:y | z"),
    (f"{SUBSCRIBED}a< MESSAGE sender:b | *", f"{SUBSCRIBED}a< MESSAGE sender:$a | *"),
    ("connect a 1.2\na saw CONECTED", "connect a 1.2\na never saw CONECTED"),
    ("connect a 1.2\na never saw CONNECTED", "connect a 1.2\na saw CONNECTED"),
    ("connect a 1.2\na< beat", "connect a 1.2\na< silence"),
    (
        "connect a 1.2 with host:h; heart-beat:0,1000\nadvance 2\na< silence",
        "connect a 1.2 with host:h; heart-beat:0,1000\nadvance 2\na< beat",
    ),
]


@pytest.mark.parametrize(("wrong", "right"), WRONG)
def test_transcript_that_is_not_what_happens_fails(wrong: str, right: str) -> None:
    with pytest.raises(Different):
        play(wrong, InMemory(case_of(wrong), "standard"))


@pytest.mark.parametrize(("wrong", "right"), WRONG)
def test_rewriting_mends_a_transcript_that_is_wrong(wrong: str, right: str) -> None:
    assert rewrite(wrong) == right
    play(right, InMemory(case_of(right), "standard"))


def test_difference_names_its_line() -> None:
    text = f"# A remark\n{SENT}a< RECEIPT receipt-id:q\n"
    with pytest.raises(Different) as failure:
        play(text, InMemory(case_of(text), "standard"))

    assert failure.value.number == 4
    assert "a< RECEIPT receipt-id:q\n" in str(failure.value)
    assert str(failure.value).endswith("a< RECEIPT receipt-id:r")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("connect a 1.2\na says hello", "no word"),
        ("connect a 1.3", "no word"),
        ("connect a 1.2 like b", "no word"),
        ("connect a 1.2\na> ACK id:$first", "no earlier line keeps $first"),
        ("limit max_headers few\nconnect a 1.2", "not all written"),
    ],
)
def test_line_that_is_not_written_as_it_should_be_fails(text: str, fault: str) -> None:
    with pytest.raises(AssertionError) as failure:
        play(text, InMemory(case_of(text), "standard"))

    assert fault in str(failure.value)


def test_connection_that_is_refused_is_rewritten_as_what_was_said_and_heard() -> None:
    text = "connect a 1.2 with heart-beat:x\n"
    happened = rewrite(text)

    assert happened.startswith("accept a\na> CONNECT accept-version:1.2; heart-beat:x\na< ERROR ")
    play(happened, InMemory(case_of(happened), "standard"))


def test_rewriting_changes_no_byte_of_a_true_transcript() -> None:
    changed = [
        case.name for case in CASES if rewritten(case.text, InMemory(case, case.profiles[0])) != case.text
    ]

    assert changed == []


def test_damaged_files_are_mended(tmp_path: Path) -> None:
    """Each value that a RECEIPT is said to have is damaged, in every file."""
    for path in HERE.glob("*.txt"):
        damaged = re.sub(r"(< RECEIPT receipt-id:)\w+", r"\1wrong", path.read_text())
        (tmp_path / path.name).write_text(damaged)
    for case in read_cases(tmp_path):
        replace_case(case, rewritten(case.text, InMemory(case, case.profiles[0])))

    differing = [
        path.name for path in HERE.glob("*.txt") if path.read_text() != (tmp_path / path.name).read_text()
    ]
    assert differing == []


def test_option_rewrites_in_memory_and_tests_nothing_else() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "--collect-only", "--rewrite-transcripts"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", str(HERE)],
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
    )
    tests = {line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line}

    assert tests == {"tests/conformance/test_transcripts.py::test_in_memory"}


@pytest.mark.parametrize(
    ("text", "departure"),
    [
        (f"{SENT}except rabbitmq: why\n{RECEIPT}\n", 4),
        (f"{SENT}except rabbitmq: why\nexcept activemq: why\n# remark\n{RECEIPT}\n", 6),
        (f"{SENT}{RECEIPT}\nexcept rabbitmq: it says more\n\n", 5),
        (f"{SENT}except activemq: why\n{RECEIPT}\n", None),
    ],
)
def test_other_broker_departs_at_the_line_below_its_exception(text: str, departure: int | None) -> None:
    assert case_of(text).departure("rabbitmq") == departure


def test_every_word_is_in_the_readme() -> None:
    """By an example of each in its tables."""
    rows = re.findall(r"^\| (`.+`) \|", (HERE / "README.md").read_text(), re.MULTILINE)
    examples = [each.replace("\\|", "|") for row in rows for each in re.findall("`(.+?)`", row)]
    lacking = [word.pattern for word in WORDS if not any(word.fullmatch(each) for each in examples)]

    assert lacking == []


def test_no_frame_can_be_missing_from_a_transcript() -> None:
    """Each line of a frame that is heard is left out of its case, one at a time."""
    unnoticed = []
    for case in CASES:
        lines = case.text.split("\n")
        for at, line in enumerate(lines):
            if re.match(r"\w+< [A-Z]", line):
                text = "\n".join((*lines[:at], *lines[at + 1 :]))
                try:
                    play(text, InMemory(case, case.profiles[0]))
                except AssertionError:
                    continue
                unnoticed.append(f"{case.name}: {line}")

    assert unnoticed == []
