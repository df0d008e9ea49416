"""Plays transcripts; README.md has their language."""

from __future__ import annotations

import re
from pathlib import Path

from tests.broker.script import Received, octets, read
from tests.conformance.worlds import InMemory, World

_IN_MEMORY_ONLY = re.compile(r"^(advance|block|unblock) ", re.MULTILINE)


def cases(folder: Path) -> dict[str, str]:
    """All cases of a folder's transcripts, by name."""
    found = {}
    for file in sorted(folder.glob("*.txt")):
        _, *parts = re.split(r"^## (.+)\n", file.read_text(), flags=re.MULTILINE)
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            assert name not in found, name
            found[name] = text
    return found


def needs_memory(text: str) -> bool:
    """Whether a case moves time or blocks a socket."""
    return bool(_IN_MEMORY_ONLY.search(text))


def play(text: str, world: World) -> None:
    """Do what each line says, and see what it says was heard."""
    known: dict[str, str] = {}
    names: dict[str, None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            try:
                _do(line, world, names, known)
            except AssertionError as error:
                error.add_note(f"line {number}: {line}")
                raise
    for name in names:
        assert world.hears_nothing(name), f"{name} heard more"


def _do(line: str, world: World, names: dict[str, None], known: dict[str, str]) -> None:
    word, _, rest = line.partition(" ")
    match word, rest.split():
        case "accept", [name]:
            world.accept(name)
            names[name] = None
        case "connect", [name, version]:
            _do(f"accept {name}", world, names, known)
            offer = "login:guest" if version == "1.0" else f"accept-version:{version}; host:h"
            world.send(name, octets(f"CONNECT {offer}"))
            _compare(world.hear(name), "CONNECTED session:*", known)
        case "lose", [name]:
            world.lose(name)
            del names[name]
        case "advance", [seconds]:
            assert isinstance(world, InMemory)
            world.harness.advance(float(seconds))
        case (("block" | "unblock"), [name]):
            assert isinstance(world, InMemory)
            getattr(world.peers[name], word)()
        case said, _ if said.endswith(">>"):
            world.send(said[:-2], rest.encode().decode("unicode_escape").encode("latin-1"))
        case said, _ if said.endswith(">"):
            world.send(said[:-1], octets(re.sub(r"\$(\w+)", lambda name: known[name[1]], rest)))
        case heard, ["nothing"]:
            assert world.hears_nothing(heard[:-1]), f"{heard[:-1]} heard something"
        case heard, _:
            assert heard.endswith("<"), "no word of this language"
            _compare(world.hear(heard[:-1]), rest, known)


def _compare(frame: Received | None, expected: str, known: dict[str, str]) -> None:
    if frame is None or expected == "closed":
        assert (frame, expected) == (None, "closed"), frame
        return
    absent = re.findall(r" !([\w-]+)", expected)
    command, wanted, *body = read(re.sub(r";? !([\w-]+)", "", expected))
    assert frame[0] == command, frame
    assert body == ["*"] or list(frame[2:]) == body, frame
    assert not frame[1].keys() & set(absent), frame
    for name, value in wanted.items():
        heard = frame[1].get(name)
        if value.startswith("$"):
            value = known.setdefault(value[1:], str(heard))
        assert heard is not None, (name, frame)
        assert value in ("*", heard), (name, frame)
