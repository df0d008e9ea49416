"""Each case of the transcripts, in each world and each profile that it holds in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nebula.broker.core.profiles import PROFILES
from nebula.broker.server import connection
from tests.conformance.cases import Case, read_cases, replace_case
from tests.conformance.identities import Identities
from tests.conformance.player import play, rewritten
from tests.conformance.running import over_tcp, over_websocket
from tests.conformance.worlds import InMemory

HERE = Path(__file__).parent
CASES = read_cases(HERE)
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
def test_in_memory(profile: str, case: Case, is_rewriting: bool) -> None:
    if not is_rewriting:
        play(case.text, InMemory(case, profile))
    elif profile == case.profiles[0]:
        replace_case(case, rewritten(case.text, InMemory(case, profile)))


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


def test_case_is_rewritten_in_its_file(tmp_path: Path) -> None:
    sent = "connect a 1.2\na> SEND destination:/queue/x; receipt:r | x\n"
    path = tmp_path / "cases.txt"
    path.write_text(
        f"Text above.\n\n## E 1: one\n{sent}a< RECEIPT receipt-id:q\n\n## E 2: two\nconnect a 1.2\n"
    )
    for case in read_cases(tmp_path):
        test_in_memory("standard", case, is_rewriting=True)

    text = f"Text above.\n\n## E 1: one\n{sent}a< RECEIPT receipt-id:r\n\n## E 2: two\nconnect a 1.2\n"
    assert path.read_text() == text
