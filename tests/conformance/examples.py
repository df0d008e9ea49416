"""The page of the protocol's examples: transcripts as the frames that go over the wire.

`python -m tests.conformance.examples` writes docs/reference/examples.md. An `example` line puts a case there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from typing_extensions import override

from tests.conformance.cases import Case, read_cases
from tests.conformance.stage import Stage
from tests.conformance.worlds import InMemory

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "reference" / "examples.md"
SECTIONS: Final = ("Connecting", "Queues", "Topics", "Transactions", "Errors", "Last values", "Rights")

_OPENING: Final = """\
# Examples of the protocol

Each example is a test: a transcript from `tests/conformance/` that is played against the broker. The page
shows the frames that the peers send and receive, in order. `python -m tests.conformance.examples` writes it.

- `^@` is NUL, the end of a frame. A client ignores headers that it does not know.
- "alice connects" stands for the frames CONNECT and CONNECTED, which the first section shows.
- Identifiers such as E.54 name the rules of the [protocol](protocol.md) that an example shows.
  [Clauses](clauses.md) lists the code and the tests of each rule.
- The examples about STOMP itself also run on RabbitMQ and ActiveMQ. Where one of these differs, the example
  says how.
"""
_BRANDS: Final = {"rabbitmq": "RabbitMQ", "activemq": "ActiveMQ"}


class _Told(InMemory):
    """A world that tells what went over the wire."""

    def __init__(self, case: Case) -> None:
        super().__init__(case, case.profiles[0])
        self._told: list[str] = []
        self._seen: dict[str, int] = {}
        self._closed: set[str] = set()

    @override
    def send(self, name: str, data: bytes) -> None:
        self._told += [_shown(f"{name} sends", frame) for frame in _frames(data)]
        super().send(name, data)

    def news(self) -> Iterator[str]:
        """What was sent and received since this was last asked."""
        yield from self._told
        self._told = []
        for name, peer in self._peers.items():
            received = peer.octets[self._seen.get(name, 0) :]
            self._seen[name] = len(peer.octets)
            for frame in _frames(received):
                yield _shown(f"{name} receives", frame)
            if peer.is_closed and name not in self._closed:
                self._closed.add(name)
                yield f"The broker closes the connection of {name}.\n"


def page() -> str:
    """The page, from the present transcripts and the present broker."""
    parts = [_OPENING]
    examples = [(case, case.example) for case in read_cases(Path(__file__).parent)]
    for section in SECTIONS:
        chosen = [(case, told[1]) for case, told in examples if told and told[0] == section]
        parts += [f"\n## {section}\n", *(_example(case, introduction) for case, introduction in chosen)]
    return "".join(parts)


def _example(case: Case, introduction: str) -> str:
    title, _, text = introduction.partition(". ")
    rules = ", ".join(subject.replace(" ", ".", 1) for subject in case.subjects)
    story = "\n".join(_story(case)).rstrip()
    return (
        f"\n### {title}\n\n{text} ({rules}, `{case.path.name}`)\n\n```text\n{story}\n```\n{_exceptions(case)}"
    )


def _exceptions(case: Case) -> str:
    reasons: dict[str, list[str]] = {}
    for broker, why in case.exceptions:
        reasons.setdefault(why, []).append(_BRANDS[broker])
    return "".join(f"\nOn {' and '.join(brands)}: {why}.\n" for why, brands in reasons.items())


def _story(case: Case) -> Iterator[str]:
    world = _Told(case)
    stage = Stage(world)
    for line in case.text.rstrip("\n").split("\n"):
        stage.perform(line)
        news = list(world.news())
        match line.split():
            case ["connect", name, version, *_]:
                yield f"{name} connects with STOMP {version}.\n"
            case ["lose", name]:
                yield f"The connection of {name} breaks.\n"
                yield from news
            case ["advance", seconds]:
                yield f"{seconds} seconds pass.\n"
                yield from news
            case [_, "may", *_]:
                yield f"{line}.\n"
                yield from news
            case [name, "nothing"]:
                yield f"{name.removesuffix('<')} receives nothing.\n"
            case _:
                yield from news


def _frames(data: bytes) -> list[str]:
    """The frames of some bytes; none of these examples has a NUL in a body."""
    return [frame.lstrip("\n") + "^@" for frame in data.decode().split("\0")[:-1]]


def _shown(start: str, frame: str) -> str:
    return f"{start}\n{re.sub('(?m)^(?=.)', '    ', frame)}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
