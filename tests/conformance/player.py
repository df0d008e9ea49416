"""Plays transcripts; README.md has their language."""

from __future__ import annotations

import re

from tests.broker.script import Received, octets, read
from tests.conformance.cases import SET_UP
from tests.conformance.envelopes import envelope
from tests.conformance.worlds import InMemory, Rights, World

# What the peers of each profile say to be let in, beside what they speak.
_OFFERS = {"standard": "host:h; heart-beat:0,0", "maxam": "host:MAXVAPI; heart-beat:0,0"}

_BEGINNING = re.compile(r"(?:accept|connect(?= \w+ 1\.)) (\w+)(?: (1\.[012]))?(?: as (\w+))?(?: with (.*))?")


def play(text: str, world: World) -> None:
    """Do what each line says, and see what it says was heard."""
    player = _Player(world)
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            try:
                player.do(line)
            except AssertionError as error:
                error.add_note(f"line {number}: {line}")
                raise
    for name in player.names:
        assert world.hears_nothing(name), f"{name} heard more"


class _Player:
    """One case being played.

    Attributes:
        names: of the peers that are there.
    """

    def __init__(self, world: World) -> None:
        self.names: dict[str, None] = {}
        self._world = world
        self._known: dict[str, str] = {}
        self._rights = Rights()
        self._bodies: dict[str, bytes] = {}

    def do(self, line: str) -> None:
        """One line."""
        word, _, rest = line.partition(" ")
        match word, rest.split():
            case word, _ if word in SET_UP:
                pass  # read before the world was made
            case (("accept" | "connect"), _):
                self._begin(line)
            case body, ["=", *_]:
                self._bodies[body] = envelope(rest.removeprefix("= "))
            case "lose", [name]:
                self._world.lose(name)
                del self.names[name]
            case "advance", [seconds]:
                self._in_memory.advance(float(seconds))
            case (("block" | "unblock"), [name]):
                self._in_memory.set_blocked(name, is_blocked=word == "block")
            case name, ["may", "not", action, *globs]:
                self._rights.withdraw(name, action, globs)
                self._world.let(self._rights)
            case name, ["may", action, *globs]:
                self._rights.grant(name, action, globs)
                self._world.let(self._rights)
            case name, ["saw", *_]:
                assert _unescaped(rest[4:]) in self._world.octets(name)
            case name, ["never", "saw", *_]:
                assert _unescaped(rest[10:]) not in self._world.octets(name)
            case _:
                self._talk(word, rest)

    def _talk(self, word: str, rest: str) -> None:
        """`NAME> FRAME`, `NAME>> OCTETS`, `NAME< FRAME`."""
        name = word.rstrip("<>")
        match word.removeprefix(name):
            case ">":
                self._world.send(name, self._frame(rest))
            case ">>":
                self._world.send(name, _unescaped(self._filled(rest)))
            case "<":
                self._hear(name, rest)
            case _:
                raise AssertionError("no word of this language")

    @property
    def _in_memory(self) -> InMemory:
        assert isinstance(self._world, InMemory), "this world has a clock of its own"
        return self._world

    def _begin(self, line: str) -> None:
        """`accept NAME [as WHO]`, `connect NAME VERSION [as WHO] [with HEADERS]`."""
        match = _BEGINNING.fullmatch(line)
        assert match, "no word of this language"
        name, version, who, more = match.groups()
        self._known[who or name] = self._world.accept(name, who or name)
        self.names[name] = None
        if version:
            offer = "login:guest" if version == "1.0" else f"accept-version:{version}"
            if version != "1.0" and "heart-beat:" not in (more or ""):
                offer += f"; {_OFFERS[self._world.profile]}"
            self._world.send(name, octets(f"CONNECT {offer}; {self._filled(more or '')}"))
            self._compare(self._world.hear(name), "CONNECTED session:*")

    def _hear(self, name: str, expected: str) -> None:
        if expected == "nothing":
            assert self._world.hears_nothing(name), f"{name} heard something"
        elif expected in ("beat", "silence"):
            assert self._world.hears_nothing(name), f"{name} heard something"
            assert self._in_memory.has_beaten(name) is (expected == "beat")
        else:
            self._compare(self._world.hear(name), expected)

    def _frame(self, line: str) -> bytes:
        start, _, name = line.partition(" | ")
        body = self._bodies.get(name)
        if body is None:
            return octets(self._filled(line))
        return octets(self._filled(f"{start}; content-length:{len(body)}"))[:-1] + body + b"\0"

    def _filled(self, text: str) -> str:
        """With the values of the names that were kept."""
        return re.sub(r"\$(\w+)", lambda name: self._known[name[1]], text)

    def _compare(self, frame: Received | None, expected: str) -> None:
        if frame is None or expected == "closed":
            assert (frame, expected) == (None, "closed"), frame
            return
        absent = re.findall(r" !([\w-]+)", expected.partition(" | ")[0])
        command, wanted, *body = read(re.sub(r";? !([\w-]+)", "", expected))
        body = [
            self._bodies[each].decode(errors="backslashreplace") if each in self._bodies else each
            for each in body
        ]
        assert frame[0] == command, frame
        assert body == ["*"] or list(frame[2:]) == body, frame
        assert not frame[1].keys() & set(absent), frame
        for name, value in wanted.items():
            heard = frame[1].get(name)
            if re.fullmatch(r"\$\w+", value):
                value = self._known.setdefault(value[1:], str(heard))
            value = self._filled(value)
            assert heard is not None, (name, frame)
            assert value in ("*", heard), (name, frame)


def _unescaped(text: str) -> bytes:
    """Bytes that were written with Python's escapes, `<3 times x>` for `xxx`."""
    text = re.sub(r"<(\d+) times (.*?)>", lambda times: times[2] * int(times[1]), text)
    return text.encode().decode("unicode_escape").encode("latin-1")
