"""Each case of the transcripts, in each world and each profile that it holds in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nebula.broker.core.profiles import PROFILES
from nebula.broker.server import connection
from tests.conformance.cases import Case, read_cases
from tests.conformance.identities import Identities
from tests.conformance.player import play
from tests.conformance.running import over_tcp, over_websocket
from tests.conformance.worlds import InMemory

CASES = read_cases(Path(__file__).parent)
# What needs no clock.
SERVED = [case for case in CASES if not case.needs_memory]
# What may be played where everybody is anonymous.
ANONYMOUS = [case for case in SERVED if "standard" in case.profiles and not case.names_who]
IN_MEMORY = [(profile, case) for profile in PROFILES for case in CASES if profile in case.profiles]
# `maxam` needs certificates, and so does who is somebody.
OVER_TLS = [
    (profile, case)
    for profile in PROFILES
    for case in SERVED
    if profile in case.profiles and (profile == "maxam" or case.names_who)
]


def name_of(value: object) -> str:
    return value.name if isinstance(value, Case) else str(value)


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Identities]:
    with pytest.MonkeyPatch.context() as patch:
        # TLS has no half-closed connections: the broker waits for its peer, which waits for the broker.
        patch.setattr(connection, "LINGER_SECONDS", 0.02)
        yield Identities(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize(("profile", "case"), IN_MEMORY, ids=name_of)
def test_in_memory(profile: str, case: Case) -> None:
    play(case.text, InMemory(case, profile))


@pytest.mark.parametrize("case", ANONYMOUS, ids=name_of)
def test_over_tcp(case: Case) -> None:
    with over_tcp(case) as world:
        play(case.text, world)


@pytest.mark.parametrize("case", ANONYMOUS, ids=name_of)
def test_over_websocket(case: Case) -> None:
    with over_websocket(case) as world:
        play(case.text, world)


@pytest.mark.parametrize(("profile", "case"), OVER_TLS, ids=name_of)
def test_over_tls(identities: Identities, profile: str, case: Case) -> None:
    with identities.over_tls(case, profile) as world:
        play(case.text, world)


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
        ("connect a 1.2\na> SEND x:y\na< closed", "ERROR"),
        ("connect a 1.2\na saw CONECTED", "CONECTED"),
        ("connect a 1.2\na never saw CONNECTED", "CONNECTED"),
        ("connect a 1.2\na< beat", "beat"),
        ("connect a 1.2 with host:h; heart-beat:0,1000\nadvance 2\na< silence", "silence"),
        ("connect a 1.2\na says hello", "no word"),
        ("connect a 1.3", "no word"),
        ("connect a 1.2 like b", "no word"),
        ("limit max_headers few\nconnect a 1.2", "not all written"),
    ],
)
def test_transcript_that_is_not_what_happens_fails(text: str, fault: str) -> None:
    case = Case("E 1: wrong", text)
    with pytest.raises(AssertionError) as failure:
        play(text, InMemory(case, "standard"))

    assert fault in "\n".join((str(failure.value), *getattr(failure.value, "__notes__", ())))
