"""Both builds are given the same bytes, and answer with the same bytes, faults and their texts among them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nebula import headers
from nebula.compiled import build_name
from nebula.stomp.frames import CLIENT_COMMANDS
from tests.compiled.conversations import Conversation, Parsing, heard, outcome, parsed
from tests.compiled.twin import Twin
from tests.depth import DEPTH
from tests.fuzz import folders
from tests.fuzz.targets import COMPILED


@pytest.fixture(scope="module")
def twin() -> Iterator[Twin]:
    process = Twin("interpreted")
    yield process
    process.close()


VERSIONS = st.sampled_from(["1.0", "1.1", "1.2"])
COMMANDS = st.sampled_from(["SEND", "SEND", "SEND", "SUBSCRIBE", *sorted(CLIENT_COMMANDS), "MESSAGE", "Send"])
STANDARD_NAMES = ["destination", "id", "ack", "receipt", "transaction", "content-length", "content-type", "x"]
NAMES = st.one_of(
    st.sampled_from(STANDARD_NAMES),
    st.sampled_from(sorted(str(text) for name, text in vars(headers).items() if name[0].isupper())),
)
DESTINATIONS = ["/queue/a", "/queue/b", "/topic/t", "/topic/*", "X/v", "X/*", "/queue/neb.dead-letter"]
WORDS = ["auto", "client", "client-individual", "true", "false", "text/plain", "m1", "s", "a\\cb", "a\\x"]
NUMBERS = ["0", "1", "5", "-1", "1.5", "9999999999999", "1e9", "nan", "\u0661"]
ODD = ["", " ", "a b", "\u00e9", "x" * 300]
VALUES = st.one_of([st.sampled_from(texts) for texts in (DESTINATIONS, WORDS, NUMBERS, ODD)])
BODIES = st.sampled_from([b"", b"hello", b'{"a": 1}', b"\xff\xfe", b"a\nb", b"x" * 2000])


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """A frame that is whole in most cases, and right in some."""
    command = draw(COMMANDS)
    fields = draw(st.lists(st.tuples(NAMES, VALUES), max_size=6))
    if draw(st.integers(0, 3)):
        fields = [("destination", "/queue/a"), ("id", "s"), *fields]
    end = draw(st.sampled_from(["\n", "\n", "\n", "\r\n"]))
    head = "".join(f"{name}:{value}{end}" for name, value in fields)
    stop = draw(st.sampled_from([b"\0", b"\0\n", b"\0", b""]))
    body = draw(BODIES) if command in ("SEND", "MESSAGE") else b""
    return f"{command}{end}{head}{end}".encode() + body + stop


CHUNKS = st.one_of(
    frames(), frames(), frames(), st.binary(max_size=30), st.lists(frames(), max_size=4).map(b"".join)
)
PARSINGS = st.tuples(VERSIONS, st.lists(CHUNKS, min_size=1, max_size=6))


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    """Peers that connect, in most cases rightly, and then say anything."""
    said = []
    for number in range(3):
        version = draw(st.sampled_from(["1.0", "1.1", "1.2", "1.2", "2.0"]))
        # The virtual host of the profile maxam is another: such a CONNECT is refused, with a text.
        head = draw(st.sampled_from(["host:h\n", "host:/\n", "", "host:h\nheart-beat:0,x\n"]))
        said.append((number, f"CONNECT\naccept-version:{version}\n{head}\n\0".encode()))
    more = draw(st.lists(st.tuples(st.integers(0, 2), CHUNKS), max_size=25))
    return draw(st.booleans()), said + more


def test_builds_that_are_compared_are_the_two(twin: Twin) -> None:
    assert (build_name(), twin.build) == ("compiled", "interpreted")


@pytest.mark.deep
@settings(max_examples=200 * DEPTH, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(parsing=PARSINGS)
def test_parsers_find_the_same_frames_and_faults(twin: Twin, parsing: Parsing) -> None:
    assert parsed(*parsing) == twin.ask("parsed", *parsing)


@pytest.mark.deep
@settings(max_examples=150 * DEPTH, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(conversation=conversations())
def test_brokers_write_the_same_bytes(twin: Twin, conversation: Conversation) -> None:
    assert heard(*conversation) == twin.ask("heard", *conversation)


@pytest.mark.parametrize("target", COMPILED)
def test_known_inputs_of_the_fuzzer_come_to_the_same(twin: Twin, target: str) -> None:
    for file in folders.inputs(target):
        data = file.read_bytes()
        assert outcome(target, data) == twin.ask("outcome", target, data), file.name
