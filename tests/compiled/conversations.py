"""What the parser and the broker make of given bytes, as values that two processes can compare.

Run as a program, it answers pickled inputs from a pipe with the build that its environment chooses.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

from nebula.broker.core.profiles import MAXAM, STANDARD
from nebula.broker.protocol.send_headers import NAMES
from nebula.compiled import build_name
from nebula.stomp.codec import FrameParser
from nebula.stomp.dialects import DIALECTS
from nebula.stomp.frames import CLIENT_COMMANDS
from tests.broker.harness import BrokerHarness
from tests.fuzz.targets import TARGETS

Parsing: TypeAlias = tuple[str, list[bytes]]
"""The version, and the chunks in which bytes come."""

Conversation: TypeAlias = tuple[bool, list[tuple[int, bytes]]]
"""Whether the profile is maxam, and who says what, in order."""

_PEERS = 3


def parsed(version: str, chunks: list[bytes]) -> list[str]:
    """The frames of each chunk and the text of the fault: with all headers read, and as the broker reads."""
    found = []
    for names in (None, NAMES):
        parser = FrameParser(CLIENT_COMMANDS, None, names)
        parser.begin(DIALECTS[version])
        found += [repr(parser.feed(chunk)) for chunk in chunks]
        found.append(str(parser.failure))
    return found


def heard(is_maxam: bool, said: list[tuple[int, bytes]]) -> list[bytes]:
    """All bytes that each peer was written."""
    broker = BrokerHarness()
    profile = MAXAM if is_maxam else STANDARD
    peers = [broker.accept(f"peer{n}", principal=f"peer{n}", profile=profile) for n in range(_PEERS)]
    for number, data in said:
        peers[number % _PEERS].feed(data)
        broker.advance(0.25)
    broker.advance(30.0)
    return [peer.octets for peer in peers]


def outcome(target: str, data: bytes) -> object:
    """What a target of the fuzzer returns, or the text of what it raises."""
    try:
        return TARGETS[target](data)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main() -> None:
    """Answer until the pipe is closed. The first answer is the name of the build."""
    out = sys.stdout.buffer
    pickle.dump(build_name(), out)
    out.flush()
    questions: dict[str, Callable[..., Any]] = {"parsed": parsed, "heard": heard, "outcome": outcome}
    while True:
        try:
            what, *arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(questions[what](*arguments), out)
        out.flush()


if __name__ == "__main__":
    main()
